/**
 * The root key of a server that *stands by*: it takes over the entries of another one as they are, and may have to serve
 * them at once. People, or the machine's key, have proven the root key; it is kept in memory, and the barrier stays
 * closed. So a secondary for disaster recovery can be promoted without its key holders, and has opened no entry before.
 *
 * No right is granted by an entry before all entries were verified (`verified`): each could be an older state that another
 * program put back. `entries` is for finding out that there is no right.
 *
 * The other server may change its root key (a rekey). Then the one that is held opens nothing any more: `fits` finds that,
 * and forgets it.
 */
import { sleep } from '../../platform/clock.ts'
import { Refusal, sealed } from '../../platform/errors.ts'
import type { History, PageOptions, Store } from '../store/store.ts'
import { decrypt } from './cipher.ts'
import { EntriesChanged, type EntrySet, RolledBack } from './entry-set.ts'
import { ShardWriter } from './entry-set-shards.ts'
import { verifiedSet } from './verify-entries.ts'
import type { Keyring } from './keyring.ts'
import { derivedKey, PurposeCodes } from './purpose-codes.ts'
import { KEYRING_PATH, openRing, WrongKey } from './ring-entry.ts'

const NO_SET_KEY =
  'the keyring of the primary has no key for its set of entries yet: it was written by an older version; unseal the primary with this one'

/** What to do about entries of a secondary that another program changed. */
const ON_SECONDARY =
  'Nothing was done. The secondary takes these entries from its primary while that is reachable: try again in a minute, or after ' +
  'sys/replication/dr/secondary/reindex. Without a primary, move the database away and restore a snapshot. "force" does not override this'
/** Entries that were repaired, or copied, during the first attempt do not fit. */
const ATTEMPTS = 2
const RETRY_MS = 50
/** Each verification reads all entries: callers wait for one another, and more are refused. */
const VERIFICATIONS_MAX = 16

/** Entries that can be read, as `Storage` takes them. */
export type HeldEntries = ReturnType<HeldKey['entries']>

export class HeldKey {
  readonly #store: Store
  #key: Buffer | undefined
  /** The keyring that the key was last seen to open. */
  #opens: Uint8Array | undefined
  #verifications = 0
  #turn: Promise<unknown> = Promise.resolve()
  /** Called with what a verification has found. Must not throw. */
  onFound: (error: RolledBack | EntriesChanged) => void = () => undefined
  readonly #codes = new PurposeCodes()

  constructor(store: Store) {
    this.#store = store
  }

  get isHeld(): boolean {
    return this.#key !== undefined
  }

  /** Keeps a copy of the key. Throws WrongKey for one that does not open the keyring. */
  hold(rootKey: Buffer): void {
    const value = this.#store.get(KEYRING_PATH)?.value
    const ring = value && openRing(value, rootKey)
    if (!ring) throw new WrongKey('the root key does not open the barrier')
    ring.close()
    this.forget()
    this.#key = Buffer.from(rootKey)
    this.#opens = value
  }

  /** Whether it opens the keyring that is there now; one that does not is forgotten. True where none is held. */
  fits(): boolean {
    const value = this.#store.get(KEYRING_PATH)?.value
    if (!this.#key || value === this.#opens) return true
    const ring = value && openRing(value, this.#key)
    if (!ring) {
      this.forget()
      return false
    }
    ring.close()
    this.#opens = value
    return true
  }

  /** For the caller to overwrite. Throws a Refusal (503) where none is held. */
  copy(): Buffer {
    if (!this.#key) throw sealed()
    return Buffer.from(this.#key)
  }

  /** One entry of the barrier, opened. Throws a Refusal (503) where no key is held that opens it. */
  read(path: string): Buffer | undefined {
    return this.#with((ring) => {
      const value = this.#store.get(path)?.value
      return value && decrypt(path, value, (term) => ring.key(term))
    })
  }

  /**
   * A code of `text` that cannot be made without the keys of this barrier, also not by a writer of the database. Throws a
   * Refusal (503) where no key is held that opens it.
   */
  codeOf(purpose: string, text: string): Buffer {
    const keyring = this.#store.get(KEYRING_PATH)?.value
    if (!this.#key || !keyring) throw sealed()
    // A code under a key that is known to all would be none.
    const derive = () => this.#with((ring) => derivedKey(setKeyOf(ring), purpose))
    return this.#codes.codeOf(keyring, derive, purpose, text)
  }

  /**
   * Verifies all entries, then calls `use` with them. `isKept`: the set is written beside the entries, so that the barrier opens
   * without reading them all again. Rejects with EntriesChanged, with a Refusal (503) where no key is held, and with what `use`
   * throws. Costs a read of all entries.
   */
  async verified<T>(use: (entries: HeldEntries) => T, isKept = false): Promise<T> {
    if (this.#verifications >= VERIFICATIONS_MAX) {
      throw new Refusal('unavailable', `too many concurrent verifications of all entries (limit ${VERIFICATIONS_MAX})`)
    }
    this.#verifications++
    const verification = this.#turn.then(() => this.#verify(use, isKept))
    this.#turn = verification.catch(() => undefined)
    try {
      return await verification
    } finally {
      this.#verifications--
    }
  }

  async #verify<T>(use: (entries: HeldEntries) => T, isKept: boolean): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#verifyOnce(use, isKept)
      } catch (error) {
        if (!(error instanceof EntriesChanged || error instanceof RolledBack)) throw error
        if (attempt === ATTEMPTS) {
          this.onFound(error)
          throw new EntriesChanged(ON_SECONDARY)
        }
      }
      await sleep(RETRY_MS)
    }
  }

  async #verifyOnce<T>(use: (entries: HeldEntries) => T, isKept: boolean): Promise<T> {
    const setKey = this.#with((ring) => Buffer.from(setKeyOf(ring)))
    let set: EntrySet
    try {
      set = await verifiedSet(this.#store, setKey)
    } finally {
      setKey.fill(0)
    }
    try {
      if (isKept) this.#keep(set)
      return use(this.entries(set))
    } finally {
      set.close()
    }
  }

  #keep(set: EntrySet): void {
    const shards = new ShardWriter(this.#store, Date.now)
    shards.lost()
    this.#with((ring) => shards.all(set, ring.activeKey))
  }

  /** The entries, each opened as it is read, and compared with `set` where that is given; nothing can be committed through them. */
  entries(set?: EntrySet) {
    const read = (path: string) => {
      const value = this.read(path)
      set?.check(path, this.#store.get(path)?.value)
      return value
    }
    return {
      shown: read,
      pendingShown: read,
      list: (prefix?: string, options?: PageOptions) => this.#store.list(prefix ?? '', options),
      paths: (prefix: string, options?: PageOptions) => this.#store.paths(prefix, options),
      history: (): History => ({ epoch: 0, oldest: 0, newest: 0, rows: [] }),
      commit: (): Promise<number> => Promise.reject(sealed()),
    }
  }

  forget(): void {
    this.#key?.fill(0)
    this.#key = undefined
    this.#opens = undefined
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
