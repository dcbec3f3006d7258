/**
 * The root key of a *standby* server, such as a DR secondary, which replicates the entries of another server and may have to serve them at
 * once. The key shares or the machine's key have proven the root key; it is held in memory while the barrier stays sealed. So a
 * secondary can be promoted without its key holders, and decrypts no entry before.
 *
 * No entry grants a right before all entries were verified (`verified`): each could be rolled back. `entries` may be used only to deny a
 * right.
 *
 * After a rekey of the other server the held key is obsolete: `fits` replaces it by its successor, or drops it
 * if there is none.
 */
import { sleep } from '../../platform/clock.ts'
import { Refusal, sealed } from '../../platform/errors.ts'
import { Mutex } from '../../platform/mutex.ts'
import type { History, PageOptions, Store } from '../store/store.ts'
import { decrypt, encrypt } from './cipher.ts'
import { ShardWriter } from './entry-set-shards.ts'
import { EntrySetMismatch, type EntrySet, RollbackError } from './entry-set.ts'
import { derivedKey, type Keyring, KEYRING_PATH, openRing, PurposeCodes, WrongKey } from './keyring.ts'
import { verifiedSet } from './entry-set-load.ts'
import { createHmac } from 'node:crypto'
import type { Put } from '../sqlite/batch.ts'

const NO_SET_KEY =
  'the keyring of the primary has no key for its entry set: it was written by an older version; unseal the primary with this version'

/** Instructions for changed entries on a secondary. */
const ON_SECONDARY =
  'Nothing was done. The secondary repairs these entries from its primary while that is reachable: retry in a minute, or after ' +
  'sys/replication/dr/secondary/reindex. Without a primary, move the database away and restore a snapshot. "force" does not override this'
/** A repair or a copy during the first attempt makes it fail. */
const ATTEMPTS = 2
const RETRY_MS = 50
/** Each verification reads all entries: they run one after another, and calls above this limit are refused. */
const VERIFICATIONS_MAX = 16

/** Read access to the entries, for `Storage`. */
export type StandbyEntries = ReturnType<StandbyKey['entries']>

export class StandbyKey {
  readonly #store: Store
  #key: Buffer | undefined
  /** The keyring entry that the key opened last. */
  #openedKeyring: Uint8Array | undefined
  #verifications = 0
  readonly #mutex = new Mutex()
  /** Called with the finding of a failed verification. Must not throw. */
  onFound: (error: RollbackError | EntrySetMismatch) => void = () => undefined
  readonly #codes = new PurposeCodes()

  constructor(store: Store) {
    this.#store = store
  }

  get isHeld(): boolean {
    return this.#key !== undefined
  }

  /** Holds a copy of the key. Throws WrongKey for a key that does not open the keyring. */
  hold(rootKey: Buffer): void {
    const value = this.#store.get(KEYRING_PATH)?.value
    const ring = value && openRing(value, rootKey)
    if (!ring) throw new WrongKey('the root key does not open the barrier')
    ring.close()
    this.forget()
    this.#key = Buffer.from(rootKey)
    this.#openedKeyring = value
  }

  /** Whether the key, or its successor, opens the current keyring; otherwise it is dropped. True without a key. */
  fits(): boolean {
    const value = this.#store.get(KEYRING_PATH)?.value
    if (!this.#key || value === this.#openedKeyring) return true
    const ring = value && openRing(value, this.#key)
    if (!ring) return this.#succeed(value)
    ring.close()
    this.#openedKeyring = value
    return true
  }

  #succeed(keyring: Uint8Array | undefined): boolean {
    // Several rekeys may have followed each other.
    for (let key = this.#key && successorOf(this.#store, this.#key); key; ) {
      const ring = keyring && openRing(keyring, key)
      if (ring) {
        ring.close()
        this.hold(key)
        key.fill(0)
        return true
      }
      const next = successorOf(this.#store, key)
      key.fill(0)
      key = next
    }
    this.forget()
    return false
  }

  /** The caller overwrites the copy. Throws a Refusal (503) without a key. */
  copy(): Buffer {
    if (!this.#key) throw sealed()
    return Buffer.from(this.#key)
  }

  /** Decrypts one entry. Throws a Refusal (503) without a valid key. */
  read(path: string): Buffer | undefined {
    return this.#with((ring) => {
      const value = this.#store.get(path)?.value
      return value && decrypt(path, value, (term) => ring.key(term))
    })
  }

  /** A MAC of `text` that requires the keys of this barrier: write access to the database is not enough. Throws a Refusal (503) without a valid key. */
  codeOf(purpose: string, text: string): Buffer {
    const keyring = this.#store.get(KEYRING_PATH)?.value
    if (!this.#key || !keyring) throw sealed()
    // Never with a missing set key: the MAC would have no secret key.
    const derive = () => this.#with((ring) => derivedKey(setKeyOf(ring), purpose))
    return this.#codes.codeOf(keyring, derive, purpose, text)
  }

  /**
   * Verifies all entries, which reads each of them, then calls `use` with them. `isStored`: stores the shards of the set, so that the barrier opens
   * without reading all entries again. Rejects with EntrySetMismatch, with a Refusal (503) without a valid key, and with errors of `use`.
   */
  async verified<T>(use: (entries: StandbyEntries) => T, isStored = false): Promise<T> {
    if (this.#verifications >= VERIFICATIONS_MAX) {
      throw new Refusal('unavailable', `too many concurrent verifications of all entries (limit ${VERIFICATIONS_MAX})`)
    }
    this.#verifications++
    try {
      return await this.#mutex.runExclusive(() => this.#verify(use, isStored))
    } finally {
      this.#verifications--
    }
  }

  async #verify<T>(use: (entries: StandbyEntries) => T, isStored: boolean): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#verifyOnce(use, isStored)
      } catch (error) {
        if (!(error instanceof EntrySetMismatch || error instanceof RollbackError)) throw error
        if (attempt === ATTEMPTS) {
          this.onFound(error)
          throw new EntrySetMismatch(ON_SECONDARY)
        }
      }
      await sleep(RETRY_MS)
    }
  }

  async #verifyOnce<T>(use: (entries: StandbyEntries) => T, isStored: boolean): Promise<T> {
    const setKey = this.#with((ring) => Buffer.from(setKeyOf(ring)))
    let set: EntrySet
    try {
      set = await verifiedSet(this.#store, setKey)
    } finally {
      setKey.fill(0)
    }
    try {
      if (isStored) this.#storeShards(set)
      return use(this.entries(set))
    } finally {
      set.close()
    }
  }

  #storeShards(set: EntrySet): void {
    const shards = new ShardWriter(this.#store, Date.now)
    shards.invalidate()
    this.#with((ring) => shards.writeAll(set, ring.activeKey))
  }

  /** Read-only access to the entries, which are compared with `set` if it is given. */
  entries(set?: EntrySet) {
    const read = (path: string) => {
      const value = this.read(path)
      set?.check(path, this.#store.get(path)?.value)
      return value
    }
    return {
      getShared: read,
      pendingShared: read,
      list: (prefix?: string, options?: PageOptions) => this.#store.list(prefix ?? '', options),
      paths: (prefix: string, options?: PageOptions) => this.#store.paths(prefix, options),
      history: (): History => ({ epoch: 0, oldest: 0, newest: 0, rows: [] }),
      commit: (): Promise<number> => Promise.reject(sealed()),
    }
  }

  forget(): void {
    this.#key?.fill(0)
    this.#key = undefined
    this.#openedKeyring = undefined
    this.#codes.clear()
  }

  #with<T>(use: (ring: Keyring) => T): T {
    const value = this.#store.get(KEYRING_PATH)?.value
    const ring = value && this.#key && openRing(value, this.#key)
    if (!ring) throw sealed()
    try {
      return use(ring)
    } finally {
      ring.close()
    }
  }
}

function setKeyOf({ setKey }: Keyring): Buffer {
  if (!setKey) throw new Refusal('unavailable', NO_SET_KEY)
  return setKey
}

/**
 * The successor of a root key, for standby servers of the same cluster. A rekey replaces the root key, and a standby holds the replaced
 * one: without its successor it could not take over before key holders unseal it again. So the batch of the rekey has the new root key,
 * encrypted with the replaced one, under a name that is derived from the replaced one. A standby reads it when the keyring has changed.
 * The active server removes it after a minute.
 *
 * The log keeps the batch as long as it keeps others: until then a replaced root key with the log opens the new one.
 */
export const SUCCESSORS = 'core/root-key-successor/'
/** A root key has no term. */
const NO_TERM = 0

export function successorEntry(replaced: Buffer, rootKey: Buffer): Put {
  const path = pathOf(replaced)
  return { path, value: encrypt(path, rootKey, { term: NO_TERM, key: replaced }) }
}

/** Undefined if none is stored. Throws a Fault for a damaged entry. The caller overwrites it. */
function successorOf(store: Pick<Store, 'get'>, replaced: Buffer): Buffer | undefined {
  const path = pathOf(replaced)
  const entry = store.get(path)
  return entry && decrypt(path, entry.value, () => replaced)
}

function pathOf(rootKey: Buffer): string {
  return SUCCESSORS + createHmac('sha256', rootKey).update('successor').digest('hex')
}
