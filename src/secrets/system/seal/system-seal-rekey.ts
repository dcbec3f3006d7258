/**
 * Rekey: generates new key shares. The older paths (`rekey`) answer without an envelope, the newer ones (`rotate/`) with one; both
 * control the same attempt. All of them accept a token with sudo, the older ones also callers without a token if the
 * configuration allows it.
 */
import type { Barrier } from '../../../storage/barrier/barrier.ts'
import { Rekey, type RekeyResult, type RekeyStatus, type VerificationStatus } from '../../../storage/seal/rekey.ts'
import { decodeShare } from '../../../storage/seal/shares.ts'
import { path, type Path, type PathDeclaration, Rejection, type Reply } from '../../../engines/framework/engine.ts'
import { boolean, type EngineFields, integer, text, textList } from '../../../engines/framework/fields.ts'
import type { EventLog } from '../../dr-endpoints/dr-side.ts'
import type { WithOptions } from '../core-parts.ts'
import { checkCancel, type PgpRateLimit, sealLog, withoutTokenWhile } from './seal-access.ts'
import { base64, hex } from './system-seal.ts'

const REQUEST = {
  secret_shares: integer('Number of new key shares', { fallback: 0 }),
  secret_threshold: integer('Number of shares required to unseal', { fallback: 0 }),
  pgp_keys: textList('PGP keys in base64, one for each share'),
  backup: boolean('Store the PGP messages in the core', { fallback: false }),
  require_verification: boolean('Activate the new shares only after enough of them were verified', { fallback: false }),
  stored_shares: integer('Not used', { fallback: 0 }),
}
const SHARE = {
  key: text('Key share in hex or base64', { fallback: '' }),
  nonce: text('Nonce of the attempt', { fallback: '' }),
}

const COMPLETED = 'rekey completed'

/** Paths with the same prefix and response format. */
interface RekeyFamily {
  readonly prefix: string
  readonly isBare: boolean
  readonly access: Pick<PathDeclaration<EngineFields>, 'sudo' | 'withoutToken'>
  readonly reply: (body: Readonly<Record<string, unknown>>) => Reply
}

const bareFamily = (prefix: string, isAllowed: () => boolean): RekeyFamily => ({
  prefix,
  isBare: true,
  access: withoutTokenWhile(isAllowed, 'disable_unauthed_rekey_endpoints'),
  reply: (body) => ({ bare: body }),
})
const envelopedFamily = (prefix: string): RekeyFamily => ({
  prefix,
  isBare: false,
  access: { sudo: true },
  reply: (body) => ({ data: body }),
})

export interface RekeyParts extends WithOptions<'seal' | 'logger' | 'unauthed'> {
  readonly barrier: Barrier
}

export function rekeyPaths(core: RekeyParts, pgpRate: PgpRateLimit): Path[] {
  const { barrier, options } = core
  const logEvent = sealLog(core)
  const isAllowed = () => options.unauthed?.rekey() ?? false
  const unseal = new Rekey(options.seal, barrier, 'unseal')
  const recovery = new Rekey(options.seal, barrier, 'recovery')
  return [
    ...family(unseal, bareFamily('rekey', isAllowed), logEvent, pgpRate),
    ...family(recovery, bareFamily('rekey-recovery-key', isAllowed), logEvent, pgpRate),
    ...family(unseal, envelopedFamily('rotate/root'), logEvent, pgpRate),
    ...family(recovery, envelopedFamily('rotate/recovery'), logEvent, pgpRate),
    backupPath(unseal, 'rekey/backup'),
    backupPath(recovery, 'rekey/recovery-key-backup'),
    backupPath(unseal, 'rotate/root/backup'),
    backupPath(recovery, 'rotate/recovery/backup'),
  ]
}

function family(
  rekey: Rekey,
  { access, isBare, prefix, reply }: RekeyFamily,
  logEvent: EventLog,
  pgpRate: PgpRateLimit,
): Path[] {
  return [
    path({
      pattern: `${prefix}/init`,
      summary: 'Start, read or cancel an attempt to generate new key shares',
      ...access,
      bodyOfDelete: true,
      fields: { ...REQUEST, nonce: SHARE.nonce },
      read: () => reply(statusBody(rekey.status, isBare)),
      async update(input, call) {
        const request = {
          shares: input.secret_shares,
          threshold: input.secret_threshold,
          pgpKeys: input.pgp_keys ?? [],
          backup: input.backup,
          requireVerification: input.require_verification,
        }
        pgpRate.check(request.pgpKeys, call)
        const status = await rekey.start(request)
        logEvent('rekey started', call, { nonce: status.nonce })
        return reply(statusBody(status, isBare))
      },
      delete({ nonce: given }, call) {
        const { nonce, started, verificationNonce } = rekey.status
        if (started) checkCancel(given, [nonce, verificationNonce], call)
        rekey.end()
        if (started) logEvent('rekey canceled', call, { nonce })
        return undefined
      },
    }),
    path({
      pattern: `${prefix}/update`,
      summary: 'Submit a current key share',
      ...access,
      fields: SHARE,
      async update({ key, nonce }, call) {
        const outcome = await rekey.update(decodeShare(key), nonce)
        if (!('keys' in outcome)) return reply(statusBody(outcome, isBare))
        const isDone = outcome.verificationNonce === ''
        logEvent(isDone ? COMPLETED : 'new key shares issued, verification pending', call, { nonce })
        return reply(resultBody(outcome))
      },
    }),
    path({
      pattern: `${prefix}/verify`,
      summary: 'Submit a new key share for verification',
      ...access,
      bodyOfDelete: true,
      fields: SHARE,
      read: () => reply(verificationBody(rekey.verification)),
      async update({ key, nonce }, call) {
        const outcome = await rekey.verify(decodeShare(key), nonce)
        if (typeof outcome === 'string') logEvent(COMPLETED, call, { nonce })
        return reply(typeof outcome === 'string' ? { nonce: outcome, complete: true } : verificationBody(outcome))
      },
      delete({ nonce }, call) {
        checkCancel(nonce, [rekey.verification.nonce], call)
        rekey.restartVerification()
        return reply(verificationBody(rekey.verification))
      },
    }),
  ]
}

function statusBody(status: RekeyStatus, isBare: boolean): Record<string, unknown> {
  const { required, shares: n, started, threshold: t, verificationNonce } = status
  // The newer paths omit the members of an attempt that was not started.
  if (!isBare && !started) return { n, required, started, t }
  return {
    nonce: status.nonce,
    started,
    t,
    n,
    progress: status.progress,
    required,
    pgp_fingerprints: listOrNull(status.fingerprints),
    backup: status.backup,
    verification_required: status.requiresVerification,
    ...(verificationNonce === '' ? {} : { verification_nonce: verificationNonce }),
  }
}

function resultBody(result: RekeyResult): Record<string, unknown> {
  const { backup, fingerprints, keys, nonce, verificationNonce } = result
  const shares = { keys: hex(keys), keys_base64: base64(keys) }
  // Strings cannot be overwritten, buffers can.
  for (const share of keys) share.fill(0)
  return {
    nonce,
    complete: true,
    ...shares,
    pgp_fingerprints: listOrNull(fingerprints),
    backup,
    verification_required: verificationNonce !== '',
    ...(verificationNonce === '' ? {} : { verification_nonce: verificationNonce }),
  }
}

function verificationBody({ nonce, progress, shares, started, threshold }: VerificationStatus) {
  return { nonce, started, t: threshold, n: shares, progress }
}

function listOrNull(values: readonly string[]): readonly string[] | null {
  return values.length === 0 ? null : values
}

function backupPath(rekey: Rekey, pattern: string): Path {
  return path({
    pattern,
    summary: 'Read or delete the stored PGP messages with the key shares of the last rekey',
    sudo: true,
    fields: {},
    read() {
      const backup = rekey.readBackup()
      if (!backup) throw new Rejection(400, 'no backed-up keys found')
      const { keys, nonce } = backup
      const entries = Object.entries(keys)
      const asBase64 = entries.map(([name, messages]) => [
        name,
        messages.map((message) => Buffer.from(message, 'hex').toString('base64')),
      ])
      return { data: { nonce, keys, keys_base64: Object.fromEntries(asBase64) }, flattened: true }
    },
    async delete() {
      await rekey.deleteBackup()
      return undefined
    },
  })
}
