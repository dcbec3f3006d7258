/**
 * Generates operation tokens with key shares. These paths need no token, because a secondary has none before. Therefore the number
 * of attempts that an address may start or cancel per minute is limited. A share and a cancellation must have the nonce of the
 * attempt, so that an attempt of key holders cannot be replaced unnoticed, and an error never reveals the nonce. The answers are
 * also flattened into the envelope, where older commands read them.
 */
import { TokenGeneration, type GenerationStatus } from '../../storage/seal/token-generation.ts'
import { decodeShare } from '../../storage/seal/shares.ts'
import { path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { text } from '../../engines/framework/fields.ts'
import { AddressRate } from '../quotas/address-rate.ts'
import type { OperationToken } from './operation-token.ts'
import type { DrCore, EventLog, PgpKeyLimiter } from './dr-side.ts'
import { ON_SECONDARY } from './secondary-paths.ts'

/** Attempts per minute. An operator starts fewer. */
const STARTS_MAX = 30
/** Key shares per minute. Most servers have fewer than ten. */
const SHARES_MAX = 120

export function generationPaths(
  core: DrCore,
  token: OperationToken,
  { logEvent, pgpRate }: { readonly logEvent: EventLog; readonly pgpRate: PgpKeyLimiter },
): Path[] {
  const { standby } = core.barrier
  const held = {
    get isSealed() {
      return !standby.isHeld
    },
  }
  const generation = new TokenGeneration(core.options.seal, held, token)
  const starts = new AddressRate(STARTS_MAX, 'attempts to generate an operation token')
  const shares = new AddressRate(SHARES_MAX, 'key shares')
  return [
    path({
      pattern: 'replication/dr/secondary/generate-operation-token/attempt',
      summary: 'Start, read or cancel the generation of an operation token',
      ...ON_SECONDARY,
      bodyOfDelete: true,
      fields: {
        otp: text('One-time password of the length that the status reports', { fallback: '' }),
        pgp_key: text('PGP public key in base64 to encrypt the token with', { fallback: '' }),
        nonce: text('Nonce of the attempt to cancel', { fallback: '' }),
      },
      read() {
        token.requireSecondary()
        return statusReply(generation.status)
      },
      async update({ otp, pgp_key: pgpKey }, call) {
        token.requireSecondary()
        starts.check(call)
        if (otp !== '' && pgpKey !== '') {
          throw new Rejection(
            400,
            'otp and pgp_key are mutually exclusive: send one of them, or neither to generate a one-time password',
          )
        }
        pgpRate.check([pgpKey], call)
        const status = await generation.start({ otp, pgpKey })
        logEvent('DR operation token generation started', call, { nonce: status.nonce })
        return statusReply(status)
      },
      delete({ nonce: given }, call) {
        token.requireSecondary()
        starts.check(call)
        const { nonce, started } = generation.status
        if (started) checkNonce(given, nonce)
        generation.end()
        if (started) logEvent('DR operation token generation canceled', call, { nonce })
        return undefined
      },
    }),
    path({
      pattern: 'replication/dr/secondary/generate-operation-token/update',
      summary: 'Submit a key share',
      ...ON_SECONDARY,
      fields: {
        key: text('Key share of the primary in hex or base64', { fallback: '' }),
        nonce: text('Nonce of the attempt', { fallback: '' }),
      },
      async update({ key, nonce }, call) {
        token.requireSecondary()
        shares.check(call)
        const status = await generation.update(decodeShare(key), nonce)
        if (status.complete) logEvent('DR operation token generated', call, { nonce })
        return statusReply(status)
      },
    }),
  ]
}

/** Throws a Rejection (400) unless the caller gives the nonce of the attempt. */
function checkNonce(given: string, nonce: string): void {
  if (given === nonce) return
  const reason = given === '' ? 'no nonce supplied' : 'incorrect nonce supplied'
  throw new Rejection(400, `${reason}: send the nonce of the attempt to cancel`)
}

function statusReply(status: GenerationStatus): Reply {
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
