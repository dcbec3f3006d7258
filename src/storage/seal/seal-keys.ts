/**
 * The stored keys of a seal: their entries, the keys that decrypt them, and each change of them as one batch. `seal.ts` decides when a
 * change is allowed and serializes the calls.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { Refusal } from '../../platform/errors.ts'
import type { Barrier } from '../barrier/barrier.ts'
import { KEY_BYTES } from '../barrier/keyring.ts'
import * as entries from '../barrier/seal-entries.ts'
import type { SealConfig } from '../barrier/seal-entries.ts'
import type { Put } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import { readStaticKey, type SealSettings, type StaticKey, StaticKeyFault } from './static-key.ts'
import type { KeyVerifier, VerifiedKey, ShareSplit } from './shares.ts'

/** `current`: the configured key. `before`: the previous key during a rekey that is not confirmed. */
export interface SealKeyVerifier extends KeyVerifier {
  readonly which: 'current' | 'before'
}

export type RekeyTarget = 'unseal' | 'recovery'
export type SealMigration = 'to static' | 'to shamir'

export interface NewKey {
  readonly target: RekeyTarget
  /** 32 bytes; empty for a static seal, where only the root key changes. */
  readonly key: Buffer
  readonly split: ShareSplit
  /** The previous key, which stays valid until the response has arrived; undefined after a verification. */
  readonly before: Buffer | undefined
  /** Shares as PGP messages to be stored. */
  readonly backup: Buffer | undefined
}

interface EntryChangeSet {
  readonly puts: readonly Put[]
  readonly deletes: readonly string[]
}

type RecoveryDigests = Readonly<Record<'current' | 'before', Buffer | undefined>>

const ROOT_PATHS = { current: entries.ROOT_KEY_PATH, before: entries.ROOT_KEY_BEFORE_PATH }

export class SealKeys {
  readonly #store: Store
  readonly #barrier: Barrier
  readonly #environment: NodeJS.ProcessEnv
  readonly settings: SealSettings

  constructor(store: Store, barrier: Barrier, settings: SealSettings, environment: NodeJS.ProcessEnv) {
    this.#store = store
    this.#barrier = barrier
    this.settings = settings
    this.#environment = environment
  }

  /** Undefined before initialization. */
  get stored(): SealConfig | undefined {
    return entries.readConfig(this.#store)
  }

  /** Throws a Refusal before initialization. */
  get config(): SealConfig {
    const config = this.stored
    if (!config) throw new Refusal('invalid_request', 'Vault is not initialized')
    return config
  }

  /** The pending migration between the stored type of seal and the configured one. */
  get migration(): SealMigration | undefined {
    const [type, { settings }] = [this.stored?.type, this]
    if (settings.type !== 'static' || type === undefined) return undefined
    if (type === 'shamir') return settings.disabled ? undefined : 'to static'
    return settings.disabled ? 'to shamir' : undefined
  }

  /** Verifiers of the unseal key. */
  unsealKeyVerifiers(withBefore: boolean): SealKeyVerifier[] {
    return this.#verifiers(withBefore, (key, which) => {
      const rootKey = this.openRootKey(key, which)
      rootKey?.fill(0)
      return rootKey !== undefined
    })
  }

  /** Verifiers of the recovery key. A sealed barrier is briefly opened with the machine's key to read the digests. */
  recoveryKeyVerifiers(withBefore: boolean): SealKeyVerifier[] {
    const digests = this.#readDigests()
    return this.#verifiers(withBefore, (key, which) => {
      const digest = digests[which]
      return digest !== undefined && timingSafeEqual(digest, entries.recoveryDigest(key))
    })
  }

  #verifiers(
    withBefore: boolean,
    matches: (key: Buffer, which: SealKeyVerifier['which']) => boolean,
  ): SealKeyVerifier[] {
    const { config } = this
    const current = { which: 'current' as const, split: config, matches: (key: Buffer) => matches(key, 'current') }
    if (!config.before || !withBefore) return [current]
    return [current, { which: 'before', split: config.before, matches: (key) => matches(key, 'before') }]
  }

  #readDigests(): RecoveryDigests {
    const { isSealed, standby } = this.#barrier
    if (standby.isHeld) return this.#digests((path) => standby.read(path))
    return isSealed ? this.#digestsSealed() : this.#digests((path) => this.#barrier.get(path))
  }

  #digests(read: (path: string) => Buffer | undefined): RecoveryDigests {
    return { current: read(entries.RECOVERY_PATH), before: read(entries.RECOVERY_BEFORE_PATH) }
  }

  #digestsSealed(): RecoveryDigests {
    const { rootKey, key } = this.openWithStaticKey()
    try {
      this.#barrier.unseal(rootKey)
      return this.#digests((path) => this.#barrier.get(path))
    } finally {
      this.#barrier.seal()
      for (const secret of [rootKey, key.key]) secret.fill(0)
    }
  }

  /** The root key, or undefined for a wrong unseal key. The caller overwrites both. */
  openRootKey(unsealKey: Buffer, which: SealKeyVerifier['which']): Buffer | undefined {
    return entries.openRootKey(this.#store, unsealKey, ROOT_PATHS[which])
  }

  /** The root key, decrypted with the machine's key. Throws a Fault for the operator. The caller overwrites both. */
  openWithStaticKey(): { rootKey: Buffer; key: StaticKey; isCurrent: boolean } {
    const { config } = this
    const keys = this.staticKeys()
    for (const [at, key] of keys.entries()) {
      const rootKey = entries.openRootKey(this.#store, key.key)
      if (!rootKey) continue
      for (const other of keys) if (other !== key) other.key.fill(0)
      return { rootKey, key, isCurrent: at === 0 && key.id === config.keyId }
    }
    const tried = keys.map(({ id }) => `"${id}"`).join(' and ')
    throw new StaticKeyFault(
      `the root key is encrypted with the static key "${config.keyId}"; ${tried} cannot decrypt it`,
    )
  }

  /** Reads the keys on each call, the current one first. The caller overwrites them. Throws a Fault for the operator. */
  staticKeys(): StaticKey[] {
    if (this.settings.type !== 'static') throw new StaticKeyFault(this.#noStaticSeal)
    const { current, previous } = this.settings
    return [current, ...(previous ? [previous] : [])].map((source) => readStaticKey(source, this.#environment))
  }

  #currentKey(): StaticKey {
    const [current, previous] = this.staticKeys()
    previous?.key.fill(0)
    if (!current) throw new StaticKeyFault(this.#noStaticSeal)
    return current
  }

  get #noStaticSeal(): string {
    const id = this.stored?.keyId
    const hint =
      id === undefined
        ? ''
        : `, but the root key is encrypted with the static key "${id}": add server.seal "static" with it`
    return `the configuration has no static seal${hint}`
  }

  /** Writes the first batch of a barrier. `secret`: the key that is split into shares. */
  async initialise(secret: Buffer, { shares, threshold }: ShareSplit, puts: readonly Put[]): Promise<void> {
    const { type } = this.settings
    const staticKey = type === 'static' ? this.#currentKey() : undefined
    const rootKey = randomBytes(KEY_BYTES)
    try {
      const config: SealConfig = { format: 1, type, shares, threshold, ...(staticKey ? { keyId: staticKey.id } : {}) }
      const digest = { path: entries.RECOVERY_PATH, value: entries.recoveryDigest(secret) }
      await this.#barrier.initialise(rootKey, {
        raw: [entries.configEntry(config), entries.rootKeyEntry(rootKey, staticKey?.key ?? secret)],
        puts: staticKey ? [...puts, digest] : puts,
      })
    } finally {
      for (const key of [rootKey, staticKey?.key]) key?.fill(0)
    }
  }

  /** Encrypts the root key with a new key of the machine. */
  async reencrypt(rootKey: Buffer): Promise<void> {
    const current = this.#currentKey()
    try {
      const config = entries.configEntry({ ...this.config, keyId: current.id })
      await this.#store.commit({ puts: [config, entries.rootKeyEntry(rootKey, current.key)], deletes: [] })
    } finally {
      current.key.fill(0)
    }
  }

  /** Migrates to the static seal. The shares stay valid: the unseal key becomes the recovery key. The barrier must be open. */
  async toStatic({ key, verifier }: VerifiedKey<SealKeyVerifier>, rootKey: Buffer): Promise<void> {
    const staticKey = this.#currentKey()
    try {
      const next: SealConfig = { ...splitOf(verifier), format: 1, type: 'static', keyId: staticKey.id }
      const digest = { path: entries.RECOVERY_PATH, value: entries.recoveryDigest(key) }
      const raw = [entries.configEntry(next), entries.rootKeyEntry(rootKey, staticKey.key)]
      await this.#barrier.commit({ puts: [digest], deletes: [entries.ROOT_KEY_BEFORE_PATH] }, raw)
    } finally {
      staticKey.key.fill(0)
    }
  }

  /** Migrates to the shamir seal: the recovery key becomes the unseal key. The barrier may be sealed. */
  async toShamir({ key, verifier }: VerifiedKey<SealKeyVerifier>, rootKey: Buffer): Promise<void> {
    const next: SealConfig = { ...splitOf(verifier), format: 1, type: 'shamir' }
    const puts = [entries.configEntry(next), entries.rootKeyEntry(rootKey, key)]
    await this.#store.commit({ puts, deletes: [entries.RECOVERY_PATH, entries.RECOVERY_BEFORE_PATH] })
  }

  /** Replaces a key. True when the previous shares stay valid until `finish` is called. */
  async replace({ target, key, split, before, backup }: NewKey): Promise<boolean> {
    const { before: _, ...config } = this.config
    // Only shares can be lost with the response.
    const isShared = target === 'recovery' || config.type === 'shamir'
    const kept = isShared && before ? { before: { shares: config.shares, threshold: config.threshold } } : {}
    const next: SealConfig = isShared
      ? { ...config, shares: split.shares, threshold: split.threshold, ...kept }
      : config
    const beside = {
      puts: backup ? [{ path: entries.BACKUP_PATHS[target], value: backup }] : [],
      deletes: isShared && !backup ? [entries.BACKUP_PATHS[target]] : [],
    }
    if (target === 'recovery') await this.#replaceRecovery(next, key, before, beside)
    else await this.#replaceRoot(next, key, before, beside)
    return next.before !== undefined
  }

  async #replaceRecovery(
    next: SealConfig,
    key: Buffer,
    before: Buffer | undefined,
    beside: EntryChangeSet,
  ): Promise<void> {
    const puts = [{ path: entries.RECOVERY_PATH, value: entries.recoveryDigest(key) }]
    if (before) puts.push({ path: entries.RECOVERY_BEFORE_PATH, value: entries.recoveryDigest(before) })
    const deletes = [...beside.deletes, ...(before ? [] : [entries.RECOVERY_BEFORE_PATH])]
    await this.#barrier.commit({ puts: [...puts, ...beside.puts], deletes }, [entries.configEntry(next)])
  }

  async #replaceRoot(next: SealConfig, key: Buffer, before: Buffer | undefined, beside: EntryChangeSet): Promise<void> {
    const rootKey = randomBytes(KEY_BYTES)
    const staticKey = next.type === 'static' ? this.#currentKey() : undefined
    const kept = staticKey ? undefined : before
    try {
      const raw = [entries.configEntry(next), entries.rootKeyEntry(rootKey, staticKey?.key ?? key)]
      if (kept) raw.push(entries.rootKeyEntry(rootKey, kept, entries.ROOT_KEY_BEFORE_PATH))
      const deletes = [...beside.deletes, ...(kept ? [] : [entries.ROOT_KEY_BEFORE_PATH])]
      await this.#barrier.rekey(rootKey, { raw, puts: beside.puts, deletes })
    } finally {
      for (const secret of [rootKey, staticKey?.key]) secret?.fill(0)
    }
  }

  /** After an unconfirmed rekey: keeps the shares that were used, previous or new, and removes the others. */
  async confirm({ key, verifier }: VerifiedKey<SealKeyVerifier>): Promise<void> {
    const { before, ...config } = this.config
    if (!before) return
    if (verifier.which === 'current') return this.finish()
    const next = entries.configEntry({ ...config, ...before })
    if (config.type === 'static') {
      const digest = { path: entries.RECOVERY_PATH, value: entries.recoveryDigest(key) }
      const deletes = [entries.RECOVERY_BEFORE_PATH, entries.BACKUP_PATHS.recovery]
      await this.#barrier.commit({ puts: [digest], deletes }, [next])
      return
    }
    const rootKey = this.openRootKey(key, 'before')
    if (!rootKey) return
    const entry = entries.rootKeyEntry(rootKey, key)
    rootKey.fill(0)
    await this.#store.commit({
      puts: [next, entry],
      deletes: [entries.ROOT_KEY_BEFORE_PATH, entries.BACKUP_PATHS.unseal],
    })
  }

  /** Removes the shares from before the last rekey. */
  async finish(): Promise<void> {
    const { before, ...config } = this.config
    if (!before) return
    const deletes = [config.type === 'shamir' ? entries.ROOT_KEY_BEFORE_PATH : entries.RECOVERY_BEFORE_PATH]
    await this.#store.commit({ puts: [entries.configEntry(config)], deletes })
  }
}

function splitOf({ split: { shares, threshold } }: KeyVerifier): ShareSplit {
  return { shares, threshold }
}
