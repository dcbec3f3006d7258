/**
 * Operation tokens from key shares. No caller can have a token of a secondary before one exists, so these paths need none:
 * an address may start and cancel a limited number of attempts per minute. A share and a cancellation must name the attempt by
 * its nonce, so that a key holder's attempt cannot be replaced unseen; a wrong nonce is not answered with the right one.
 * The answers are beside the envelope too, where older commands read them.
 */
import { TokenGeneration, type GenerationStatus } from '../../storage/seal/token-generation.ts'
import { decodeShare } from '../../storage/seal/shares.ts'
import { path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { text } from '../../engines/framework/fields.ts'
import { AddressRate } from '../quotas/address-rate.ts'
import type { OperationToken } from './operation-token.ts'
import type { Doorway, ReplicationParts } from './dr-parts.ts'
import { ON_SECONDARY } from './secondary-paths.ts'

/** An operator who mistypes begins anew less often. */
const STARTS_MAX = 30
/** Of shares; most servers have fewer than ten in all. */
const SHARES_MAX = 120

export function generationPaths(core: ReplicationParts, token: OperationToken, { pgpRate, tell }: Doorway): Path[] {
  const { standby } = core.barrier
  const held = {
    get isSealed() {
      return !standby.isHeld
    },
  }
  const generation = new TokenGeneration(core.options.seal, held, token)
  const starts = new AddressRate(STARTS_MAX, 'attempts to make an operation token')
  const shares = new AddressRate(SHARES_MAX, 'key shares')
  return [
    path({
      pattern: 'replication/dr/secondary/generate-operation-token/attempt',
      summary: 'An attempt to make an operation token from key shares of the primary',
      ...ON_SECONDARY,
      bodyOfDelete: true,
      fields: {
        otp: text('A one-time password of the length that the status says', { fallback: '' }),
        pgp_key: text('A PGP key in base64, for whose owner the token is', { fallback: '' }),
        nonce: text('To cancel: the nonce of the attempt', { fallback: '' }),
      },
      read() {
        token.side()
        return shown(generation.status)
      },
      async update({ otp, pgp_key: pgpKey }, call) {
        token.side()
        starts.check(call)
        if (otp !== '' && pgpKey !== '') {
          throw new Rejection(400, 'otp and pgp_key exclude each other: give one of them, or none for a fresh password')
        }
        pgpRate.check([pgpKey], call)
        const status = await generation.start({ otp, pgpKey })
        tell('an attempt to make a DR operation token from key shares has begun', call, { nonce: status.nonce })
        return shown(status)
      },
      delete({ nonce: given }, call) {
        token.side()
        starts.check(call)
        const { nonce, started } = generation.status
        if (started) checkNonce(given, nonce)
        generation.end()
        if (started) tell('an attempt to make a DR operation token from key shares was cancelled', call, { nonce })
        return undefined
      },
    }),
    path({
      pattern: 'replication/dr/secondary/generate-operation-token/update',
      summary: 'Take one key share for it',
      ...ON_SECONDARY,
      fields: {
        key: text('A key share of the primary in hex or base64', { fallback: '' }),
        nonce: text('The name of the attempt', { fallback: '' }),
      },
      async update({ key, nonce }, call) {
        token.side()
        shares.check(call)
        const status = await generation.update(decodeShare(key), nonce)
        if (status.complete) tell('a DR operation token was made from key shares', call, { nonce })
        return shown(status)
      },
    }),
  ]
}

/** Throws a Rejection (400) unless the caller names the attempt that is to end. */
function checkNonce(given: string, nonce: string): void {
  if (given === nonce) return
  const why = given === '' ? 'no nonce supplied' : 'incorrect nonce supplied'
  throw new Rejection(400, `${why}: give the nonce of the attempt to cancel`)
}

function shown(status: GenerationStatus): Reply {
  const data = {
    nonce: status.nonce,
    started: status.started,
    progress: status.progress,
    required: status.required,
    complete: status.complete,
    encoded_token: status.encodedToken,
    encoded_root_token: '',
    pgp_fingerprint: status.fingerprint,
    otp: status.otp,
    otp_length: status.otpLength,
  }
  return { data, flattened: true }
}
