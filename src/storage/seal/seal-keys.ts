/**
 * The keys of a seal where they lie: which entries there are, which key opens them, and each change of them as one batch.
 * When a change may be made is for `seal.ts`; callers come one after another.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { Refusal } from '../../platform/errors.ts'
import type { Put } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import type { Barrier } from '../barrier/barrier.ts'
import { KEY_BYTES } from '../barrier/keyring.ts'
import * as entries from '../barrier/seal-entries.ts'
import type { SealConfig } from '../barrier/seal-entries.ts'
import { readStaticKey, type SealSettings, type StaticKey, StaticKeyFault } from './seal-static.ts'
import type { Proof, Proven, Split } from './shares.ts'

/** Which of two keys: the one of the configuration, or the one before a rekey whose end was not seen. */
export interface KeyProof extends Proof {
  readonly which: 'current' | 'before'
}

export type Target = 'unseal' | 'recovery'
export type Migration = 'to static' | 'to shamir'

export interface NewKey {
  readonly target: Target
  /** 32 bytes; empty when the unseal key is the machine's own and only the root key changes. */
  readonly key: Buffer
  readonly split: Split
  /** The key before, to stay good until the answer has arrived; undefined when the new shares were verified. */
  readonly before: Buffer | undefined
  /** Shares as PGP messages, to be kept. */
  readonly backup: Buffer | undefined
}

interface Changes {
  readonly puts: readonly Put[]
  readonly deletes: readonly string[]
}

type Digests = Readonly<Record<'current' | 'before', Buffer | undefined>>

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

  /** What people hold; undefined before there is anything. */
  get stored(): SealConfig | undefined {
    return entries.readConfig(this.#store)
  }

  /** The same. Throws a Refusal where there is nothing. */
  get config(): SealConfig {
    const config = this.stored
    if (!config) throw new Refusal('invalid_request', 'Vault is not initialized')
    return config
  }

  /** What the settings ask for and is not so yet. */
  get migration(): Migration | undefined {
    const [type, { settings }] = [this.stored?.type, this]
    if (settings.type !== 'static' || type === undefined) return undefined
    if (type === 'shamir') return settings.disabled ? undefined : 'to static'
    return settings.disabled ? 'to shamir' : undefined
  }

  /** Of the unseal key that is in shares. */
  rootProofs(withBefore: boolean): KeyProof[] {
    return this.#candidates(withBefore, (key, which) => {
      const rootKey = this.openRootKey(key, which)
      rootKey?.fill(0)
      return rootKey !== undefined
    })
  }

  /** Of the recovery key. While the barrier is sealed, it is opened by the machine's key for this, and nobody sees it. */
  recoveryProofs(withBefore: boolean): KeyProof[] {
    const digests = this.#digestsNow()
    return this.#candidates(withBefore, (key, which) => {
      const digest = digests[which]
      return digest !== undefined && timingSafeEqual(digest, entries.recoveryDigest(key))
    })
  }

  #candidates(withBefore: boolean, matches: (key: Buffer, which: KeyProof['which']) => boolean): KeyProof[] {
    const { config } = this
    const current = { which: 'current' as const, split: config, matches: (key: Buffer) => matches(key, 'current') }
    if (!config.before || !withBefore) return [current]
    return [current, { which: 'before', split: config.before, matches: (key) => matches(key, 'before') }]
  }

  #digestsNow(): Digests {
    const { isSealed, standby } = this.#barrier
    if (standby.isHeld) return this.#digests((path) => standby.read(path))
    return isSealed ? this.#digestsSealed() : this.#digests((path) => this.#barrier.get(path))
  }

  #digests(read: (path: string) => Buffer | undefined): Digests {
    return { current: read(entries.RECOVERY_PATH), before: read(entries.RECOVERY_BEFORE_PATH) }
  }

  #digestsSealed(): Digests {
    const { rootKey, key } = this.openByMachine()
    try {
      this.#barrier.unseal(rootKey)
      return this.#digests((path) => this.#barrier.get(path))
    } finally {
      this.#barrier.seal()
      for (const secret of [rootKey, key.key]) secret.fill(0)
    }
  }

  /** The root key for the right unseal key. The caller overwrites both. */
  openRootKey(unsealKey: Buffer, which: KeyProof['which']): Buffer | undefined {
    return entries.openRootKey(this.#store, unsealKey, ROOT_PATHS[which])
  }

  /** The root key by the machine's own key. Throws a Fault for the operator. The caller overwrites both. */
  openByMachine(): { rootKey: Buffer; key: StaticKey; isCurrent: boolean } {
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
      `the root key is encrypted with the static key "${config.keyId}"; ${tried} does not open it`,
    )
  }

  /** The current key first; read anew each time, and the caller's to overwrite. Throws a Fault for the operator. */
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
    const wanted =
      id === undefined
        ? ''
        : `, but the root key is encrypted with the static key "${id}": add server.seal "static" with it`
    return `the configuration names no static seal${wanted}`
  }

  /** The first batch of a barrier. `secret` is the key that people get shares of. */
  async initialise(secret: Buffer, { shares, threshold }: Split, puts: readonly Put[]): Promise<void> {
    const { type } = this.settings
    const own = type === 'static' ? this.#currentKey() : undefined
    const rootKey = randomBytes(KEY_BYTES)
    try {
      const config: SealConfig = { format: 1, type, shares, threshold, ...(own ? { keyId: own.id } : {}) }
      const digest = { path: entries.RECOVERY_PATH, value: entries.recoveryDigest(secret) }
      await this.#barrier.initialise(rootKey, {
        raw: [entries.configEntry(config), entries.rootKeyEntry(rootKey, own?.key ?? secret)],
        puts: own ? [...puts, digest] : puts,
      })
    } finally {
      for (const key of [rootKey, own?.key]) key?.fill(0)
    }
  }

  /** The machine has a new key: the root key is encrypted with that one. */
  async reencrypt(rootKey: Buffer): Promise<void> {
    const current = this.#currentKey()
    try {
      const config = entries.configEntry({ ...this.config, keyId: current.id })
      await this.#store.commit({ puts: [config, entries.rootKeyEntry(rootKey, current.key)], deletes: [] })
    } finally {
      current.key.fill(0)
    }
  }

  /** The shares stay as they are: they were of the unseal key, they are now of the recovery key. The barrier is open. */
  async toStatic({ key, proof }: Proven<KeyProof>, rootKey: Buffer): Promise<void> {
    const own = this.#currentKey()
    try {
      const next: SealConfig = { ...splitOf(proof), format: 1, type: 'static', keyId: own.id }
      const digest = { path: entries.RECOVERY_PATH, value: entries.recoveryDigest(key) }
      const raw = [entries.configEntry(next), entries.rootKeyEntry(rootKey, own.key)]
      await this.#barrier.commit({ puts: [digest], deletes: [entries.ROOT_KEY_BEFORE_PATH] }, raw)
    } finally {
      own.key.fill(0)
    }
  }

  /** The other way: what was the recovery key is the unseal key. The barrier may be sealed. */
  async toShamir({ key, proof }: Proven<KeyProof>, rootKey: Buffer): Promise<void> {
    const next: SealConfig = { ...splitOf(proof), format: 1, type: 'shamir' }
    const puts = [entries.configEntry(next), entries.rootKeyEntry(rootKey, key)]
    await this.#store.commit({ puts, deletes: [entries.RECOVERY_PATH, entries.RECOVERY_BEFORE_PATH] })
  }

  /** Another key. True when the shares before it are good for a while yet, and `finish` is to be called. */
  async replace({ target, key, split, before, backup }: NewKey): Promise<boolean> {
    const { before: _, ...config } = this.config
    // Only people's shares can be lost on their way; what the machine holds is there.
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

  async #replaceRecovery(next: SealConfig, key: Buffer, before: Buffer | undefined, beside: Changes): Promise<void> {
    const puts = [{ path: entries.RECOVERY_PATH, value: entries.recoveryDigest(key) }]
    if (before) puts.push({ path: entries.RECOVERY_BEFORE_PATH, value: entries.recoveryDigest(before) })
    const deletes = [...beside.deletes, ...(before ? [] : [entries.RECOVERY_BEFORE_PATH])]
    await this.#barrier.commit({ puts: [...puts, ...beside.puts], deletes }, [entries.configEntry(next)])
  }

  async #replaceRoot(next: SealConfig, key: Buffer, before: Buffer | undefined, beside: Changes): Promise<void> {
    const rootKey = randomBytes(KEY_BYTES)
    const own = next.type === 'static' ? this.#currentKey() : undefined
    const kept = own ? undefined : before
    try {
      const raw = [entries.configEntry(next), entries.rootKeyEntry(rootKey, own?.key ?? key)]
      if (kept) raw.push(entries.rootKeyEntry(rootKey, kept, entries.ROOT_KEY_BEFORE_PATH))
      const deletes = [...beside.deletes, ...(kept ? [] : [entries.ROOT_KEY_BEFORE_PATH])]
      await this.#barrier.rekey(rootKey, { raw, puts: beside.puts, deletes })
    } finally {
      for (const secret of [rootKey, own?.key]) secret?.fill(0)
    }
  }

  /** Of the shares before a rekey and those after it, these are in use: they stay, the others go. */
  async settle({ key, proof }: Proven<KeyProof>): Promise<void> {
    const { before, ...config } = this.config
    if (!before) return
    if (proof.which === 'current') return this.finish()
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

  /** Ends the shares before the last rekey. */
  async finish(): Promise<void> {
    const { before, ...config } = this.config
    if (!before) return
    const deletes = [config.type === 'shamir' ? entries.ROOT_KEY_BEFORE_PATH : entries.RECOVERY_BEFORE_PATH]
    await this.#store.commit({ puts: [entries.configEntry(config)], deletes })
  }
}

function splitOf({ split: { shares, threshold } }: Proof): Split {
  return { shares, threshold }
}
