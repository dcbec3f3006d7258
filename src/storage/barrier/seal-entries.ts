/**
 * Entries of the seal, beside the keyring:
 *
 *     core/seal-config          readable while sealed: the type of seal and the numbers of shares
 *     core/root-key             the root key, encrypted with the unseal key
 *     core/root-key-before      the root key, encrypted with the previous unseal key, during a rekey that is not confirmed
 *     core/recovery-key         a digest of the recovery key, encrypted by the barrier; and `-before` as above
 *     core/unseal-keys-backup, core/recovery-keys-backup   shares as PGP messages, encrypted by the barrier
 */
import { createHash } from 'node:crypto'
import * as v from 'valibot'
import { Fault } from '../../platform/errors.ts'
import type { Put } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import { decrypt, encrypt } from './cipher.ts'
import { KEY_BYTES } from './keyring.ts'

export const CONFIG_PATH = 'core/seal-config'
export const ROOT_KEY_PATH = 'core/root-key'
export const ROOT_KEY_BEFORE_PATH = 'core/root-key-before'
export const RECOVERY_PATH = 'core/recovery-key'
export const RECOVERY_BEFORE_PATH = 'core/recovery-key-before'

export const BACKUP_PATHS = { unseal: 'core/unseal-keys-backup', recovery: 'core/recovery-keys-backup' }

/** Entries that change while the barrier is sealed, so the entry set (`entry-set.ts`) does not cover them. */
export const SEAL_PATHS: ReadonlySet<string> = new Set([
  CONFIG_PATH,
  ROOT_KEY_PATH,
  ROOT_KEY_BEFORE_PATH,
  RECOVERY_PATH,
  RECOVERY_BEFORE_PATH,
  ...Object.values(BACKUP_PATHS),
])

/** The unseal key has no term. */
const NO_TERM = 0

const split = { shares: v.pipe(v.number(), v.integer()), threshold: v.pipe(v.number(), v.integer()) }
const configSchema = v.object({
  format: v.literal(1),
  /** `shamir`: shares of the unseal key unseal it. `static`: the machine's key unseals it, and the shares are of a recovery key. */
  type: v.picklist(['shamir', 'static']),
  ...split,
  /** ID of the static key that encrypts the root key. */
  keyId: v.optional(v.string()),
  /** Numbers of the previous shares, until the new shares are confirmed. */
  before: v.optional(v.object(split)),
})

export type SealConfig = v.InferOutput<typeof configSchema>

/** Undefined before initialization. Throws a Fault for a damaged entry. */
export function readConfig(store: Pick<Store, 'get'>): SealConfig | undefined {
  const entry = store.get(CONFIG_PATH)
  if (!entry) return undefined
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), configSchema), Buffer.from(entry.value).toString())
  if (!parsed.success) throw new Fault(`the entry ${CONFIG_PATH} is damaged`)
  return parsed.output
}

export function configEntry(config: SealConfig): Put {
  return { path: CONFIG_PATH, value: Buffer.from(JSON.stringify(config)) }
}

/** The root key, encrypted with an unseal key. */
export function rootKeyEntry(rootKey: Buffer, unsealKey: Buffer, path = ROOT_KEY_PATH): Put {
  return { path, value: encrypt(path, rootKey, { term: NO_TERM, key: unsealKey }) }
}

/** The root key, or undefined for a wrong unseal key. The caller overwrites it. */
export function openRootKey(store: Store, unsealKey: Buffer, path = ROOT_KEY_PATH): Buffer | undefined {
  const entry = store.get(path)
  if (!entry || unsealKey.length !== KEY_BYTES) return undefined
  try {
    return decrypt(path, entry.value, () => unsealKey)
  } catch {
    return undefined
  }
}

/** Digest to recognize a recovery key. The key is random, so the digest reveals nothing. */
export function recoveryDigest(recoveryKey: Buffer): Buffer {
  return createHash('sha256').update('recovery key\0').update(recoveryKey).digest()
}
