/**
 * Generates root tokens with key shares. Old stock commands use paths that answer without an envelope (`generate-root`), newer ones
 * use paths with one (`generate-root-token`); both control the same attempt. Both accept a token with sudo, the older ones also
 * callers without a token if the configuration allows it.
 */
import type { Barrier } from '../../../storage/barrier/barrier.ts'
import { decodeToken, TokenGeneration, type GenerationStatus } from '../../../storage/seal/token-generation.ts'
import { decodeShare } from '../../../storage/seal/shares.ts'
import { type EngineCall, path, type Path } from '../../../engines/framework/engine.ts'
import { text } from '../../../engines/framework/fields.ts'
import type { EventLog } from '../../dr-endpoints/dr-side.ts'
import type { WithOptions, OpenStores, WithClock } from '../core-parts.ts'
import { checkCancel, type PgpRateLimit, sealLog, withoutTokenWhile } from './seal-access.ts'
import { ROOT_TOKEN_LENGTH, type TokenStore } from '../../tokens/token-store.ts'

const START = {
  nonce: text('Nonce of the attempt to cancel', { fallback: '' }),
  otp: text('One-time password of the length that the status reports', { fallback: '' }),
  pgp_key: text('PGP public key in base64 to encrypt the token with', { fallback: '' }),
}
const SHARE = {
  key: text('Key share in hex or base64', { fallback: '' }),
  nonce: text('Nonce of the attempt', { fallback: '' }),
}

export interface RootParts
  extends WithClock,
    OpenStores<{ readonly tokens: TokenStore }>,
    WithOptions<'seal' | 'logger' | 'unauthed'> {
  readonly barrier: Barrier
}

export function generateRootPaths(core: RootParts, pgpRate: PgpRateLimit): Path[] {
  const generation = new TokenGeneration(core.options.seal, core.barrier, {
    tokenLength: ROOT_TOKEN_LENGTH,
    create() {
      const { token, puts } = core.open.tokens.newRoot(core.now())
      return { token, commit: () => core.barrier.commit({ puts, deletes: [] }) }
    },
  })
  const attempts = loggedAttempts(generation, sealLog(core), pgpRate)
  const isAllowed = () => core.options.unauthed?.generateRoot() ?? false
  return [...bareFamily(generation, attempts, isAllowed), ...envelopedFamily(generation, attempts), decodePath()]
}

/** The steps of an attempt. Each is logged. */
interface RootAttempts {
  start(given: { otp: string; pgp_key: string }, call: EngineCall): Promise<GenerationStatus>
  update(given: { key: string; nonce: string }, call: EngineCall): Promise<GenerationStatus>
  end(given: { nonce: string }, call: EngineCall): undefined
}

function loggedAttempts(generation: TokenGeneration, logEvent: EventLog, pgpRate: PgpRateLimit): RootAttempts {
  return {
    async start({ otp, pgp_key: pgpKey }, call) {
      if (otp === '') pgpRate.check([pgpKey], call)
      const status = await generation.start({ otp, pgpKey })
      logEvent('root token generation started', call, { nonce: status.nonce })
      return status
    },
    async update({ key, nonce }, call) {
      const status = await generation.update(decodeShare(key), nonce)
      if (status.complete) logEvent('root token generated', call, { nonce })
      return status
    },
    end({ nonce: given }, call) {
      const { nonce, started } = generation.status
      if (started) checkCancel(given, [nonce], call)
      generation.end()
      if (started) logEvent('root token generation canceled', call, { nonce })
    },
  }
}

function bareFamily(generation: TokenGeneration, attempts: RootAttempts, isAllowed: () => boolean): Path[] {
  const access = withoutTokenWhile(isAllowed, 'disable_unauthed_generate_root_endpoints')
  return [
    path({
      pattern: 'generate-root/attempt',
      summary: 'Start, read or cancel the generation of a root token',
      ...access,
      bodyOfDelete: true,
      fields: START,
      read: () => ({ bare: bare(generation.status) }),
      update: async (input, call) => ({ bare: bare(await attempts.start(input, call)) }),
      delete: (input, call) => attempts.end(input, call),
    }),
    path({
      pattern: 'generate-root/update',
      summary: 'Submit a key share',
      ...access,
      fields: SHARE,
      async update(input, call) {
        const status = await attempts.update(input, call)
        // Commands read the length from the attempt path only.
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

function envelopedFamily(generation: TokenGeneration, attempts: RootAttempts): Path[] {
  return [
    path({
      pattern: 'generate-root-token/attempt',
      summary: 'Start, read or cancel the generation of a root token, with a token',
      sudo: true,
      bodyOfDelete: true,
      fields: START,
      read: () => ({ data: attemptData(generation.status) }),
      update: async (input, call) => ({ data: attemptData(await attempts.start(input, call)) }),
      delete: (input, call) => attempts.end(input, call),
    }),
    path({
      pattern: 'generate-root-token/update',
      summary: 'Submit a key share',
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
    summary: 'Decode a token that was encoded with a one-time password',
    unauthenticated: true,
    fields: {
      encoded_token: text('Encoded token from the attempt', { fallback: '' }),
      otp: text('One-time password', { fallback: '' }),
    },
    update: ({ encoded_token, otp }) => ({ data: { token: decodeToken(encoded_token, otp) } }),
  })
}
