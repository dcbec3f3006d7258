/**
 * Root tokens from key shares. Stock commands of different ages call different families of paths: an older one that answers
 * without an envelope, and a newer one with it. They are about one attempt. Both take a token that has sudo, the older one
 * also callers without a token where the configuration says so.
 */
import type { Barrier } from '../../../storage/barrier/barrier.ts'
import { decodeToken, TokenGeneration, type GenerationStatus } from '../../../storage/seal/token-generation.ts'
import { decodeShare } from '../../../storage/seal/shares.ts'
import { type EngineCall, path, type Path } from '../../../engines/framework/engine.ts'
import { text } from '../../../engines/framework/fields.ts'
import type { MadeWith, Opened, Timed } from '../core-parts.ts'
import type { PgpRate } from './pgp-rate.ts'
import { checkCancel, withoutTokenWhile } from './seal-access.ts'
import { sealLog, type Tell } from './seal-log.ts'
import { ROOT_TOKEN_LENGTH, type TokenStore } from '../../tokens/token-store.ts'

const START = {
  nonce: text('The name of the attempt that is to be cancelled', { fallback: '' }),
  otp: text('A one-time password of the length that the status says', { fallback: '' }),
  pgp_key: text('A PGP key in base64, for whose owner the token is', { fallback: '' }),
}
const SHARE = {
  key: text('A key share in hex or base64', { fallback: '' }),
  nonce: text('The name of the attempt', { fallback: '' }),
}

export interface RootParts
  extends Timed,
    Opened<{ readonly tokens: TokenStore }>,
    MadeWith<'seal' | 'logger' | 'unauthed'> {
  readonly barrier: Barrier
}

export function generateRootPaths(core: RootParts, pgpRate: PgpRate): Path[] {
  const generation = new TokenGeneration(core.options.seal, core.barrier, {
    tokenLength: ROOT_TOKEN_LENGTH,
    create() {
      const { token, puts } = core.open.tokens.newRoot(core.now())
      return { token, commit: () => core.barrier.commit({ puts, deletes: [] }) }
    },
  })
  const attempts = told(generation, sealLog(core), pgpRate)
  const isAllowed = () => core.options.unauthed?.generateRoot() ?? false
  return [...bareFamily(generation, attempts, isAllowed), ...enveloped(generation, attempts), decodePath()]
}

/** The steps of an attempt, each with a line in the log. */
interface Attempts {
  start(given: { otp: string; pgp_key: string }, call: EngineCall): Promise<GenerationStatus>
  update(given: { key: string; nonce: string }, call: EngineCall): Promise<GenerationStatus>
  end(given: { nonce: string }, call: EngineCall): undefined
}

function told(generation: TokenGeneration, tell: Tell, pgpRate: PgpRate): Attempts {
  return {
    async start({ otp, pgp_key: pgpKey }, call) {
      if (otp === '') pgpRate.check([pgpKey], call)
      const status = await generation.start({ otp, pgpKey })
      tell('an attempt to make a root token from key shares has begun', call, { nonce: status.nonce })
      return status
    },
    async update({ key, nonce }, call) {
      const status = await generation.update(decodeShare(key), nonce)
      if (status.complete) tell('a root token was made from key shares', call, { nonce })
      return status
    },
    end({ nonce: given }, call) {
      const { nonce, started } = generation.status
      if (started) checkCancel(given, [nonce], call)
      generation.end()
      if (started) tell('an attempt to make a root token from key shares was cancelled', call, { nonce })
    },
  }
}

function bareFamily(generation: TokenGeneration, attempts: Attempts, isAllowed: () => boolean): Path[] {
  const access = withoutTokenWhile(isAllowed, 'disable_unauthed_generate_root_endpoints')
  return [
    path({
      pattern: 'generate-root/attempt',
      summary: 'An attempt to make a root token from key shares',
      ...access,
      bodyOfDelete: true,
      fields: START,
      read: () => ({ bare: bare(generation.status) }),
      update: async (input, call) => ({ bare: bare(await attempts.start(input, call)) }),
      delete: (input, call) => attempts.end(input, call),
    }),
    path({
      pattern: 'generate-root/update',
      summary: 'Take one key share for it',
      ...access,
      fields: SHARE,
      async update(input, call) {
        const status = await attempts.update(input, call)
        // The length is of the answers that a command reads it from.
        return { bare: { ...bare(status), otp_length: 0 } }
      },
    }),
  ]
}

function bare(status: GenerationStatus): Record<string, unknown> {
  return {
    nonce: status.nonce,
    started: status.started,
    progress: status.progress,
    required: status.required,
    complete: status.complete,
    encoded_token: status.encodedToken,
    encoded_root_token: status.encodedToken,
    pgp_fingerprint: status.fingerprint,
    otp: status.otp,
    otp_length: status.otpLength,
  }
}

function enveloped(generation: TokenGeneration, attempts: Attempts): Path[] {
  return [
    path({
      pattern: 'generate-root-token/attempt',
      summary: 'An attempt to make a root token from key shares, for who has a token',
      sudo: true,
      bodyOfDelete: true,
      fields: START,
      read: () => ({ data: attemptData(generation.status) }),
      update: async (input, call) => ({ data: attemptData(await attempts.start(input, call)) }),
      delete: (input, call) => attempts.end(input, call),
    }),
    path({
      pattern: 'generate-root-token/update',
      summary: 'Take one key share for it',
      sudo: true,
      fields: SHARE,
      async update(input, call) {
        const status = await attempts.update(input, call)
        return {
          data: {
            complete: status.complete,
            encoded_token: status.encodedToken,
            nonce: status.nonce,
            pgp_fingerprint: status.fingerprint,
            progress: status.progress,
            required: status.required,
            started: status.started,
          },
        }
      },
    }),
  ]
}

function attemptData({ started, ...status }: GenerationStatus): Record<string, unknown> {
  return {
    complete: status.complete,
    ...(started ? { nonce: status.nonce } : {}),
    otp: status.otp,
    otp_length: status.otpLength,
    ...(started ? { pgp_fingerprint: status.fingerprint } : {}),
    progress: status.progress,
    required: status.required,
    started,
  }
}

function decodePath(): Path {
  return path({
    pattern: 'decode-token',
    summary: 'The token that was hidden with a one-time password',
    unauthenticated: true,
    fields: {
      encoded_token: text('As the attempt gave it', { fallback: '' }),
      otp: text('The one-time password', { fallback: '' }),
    },
    update: ({ encoded_token, otp }) => ({ data: { token: decodeToken(encoded_token, otp) } }),
  })
}
