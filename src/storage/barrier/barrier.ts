/**
 * The barrier: plaintext above, ciphertext below.
 *
 * A *barrier* is sealed or open. An open barrier has the keyring in memory and encrypts each entry with the active key of the ring, bound
 * to the entry's path (`cipher.ts`), before the store gets it. The keyring is an entry too, encrypted with the *root key*. The *seal*
 * (`seal/seal.ts`) stores the root key, encrypted with a key that is split into shares or belongs to the machine, and passes it to
 * `unseal`. The barrier does not know about shares.
 *
 * Promises. Neither plaintext nor keys reach the store, its log, an error or a log line. An entry that was changed, truncated or moved to
 * another path is never returned. The same holds for an entry that was rolled back, removed or added below the barrier
 * (`entry-set.ts`). Sealing overwrites every key in memory. A key encrypts far fewer than 2^32 entries (NIST SP 800-38D): the barrier
 * rotates it before that.
 *
 * Assumes that the store is durable, and that an attacker cannot read the memory of this process.
 *
 * What can go wrong. A wrong root key: refused, the barrier stays sealed. A damaged keyring: likewise, with an error; restore a snapshot.
 * A damaged entry: a Fault with its path. Entries that do not match their head: the barrier stays sealed.
 */
import { Fault, sealed } from '../../platform/errors.ts'
import { WeakCache } from '../../platform/transient-map.ts'
import { type Batch, BatchTooLarge, type Put } from '../sqlite/batch.ts'
import { type StoredEntry, type History, type PageOptions, type Store, StoreError } from '../store/store.ts'
import { decrypt, encrypt } from './cipher.ts'
import { EntryGuard, type EntryIntegrity } from './entry-guard.ts'
import { scheduleGc } from './forced-gc.ts'
import { SUCCESSORS, successorEntry, StandbyKey } from './standby-key.ts'
import { derivedKey, Keyring, KEYRING_PATH, openRing, PurposeCodes, ringEntry, WrongKey } from './keyring.ts'

export { KEYRING_PATH, WrongKey } from './keyring.ts'

/** NIST SP 800-38D allows 2^32 encryptions with random nonces; an early rotation is cheap. */
const ENCRYPTIONS_MAX = 2 ** 31
/** The stored count of encryptions is this far ahead, so that it is never too low after a crash. */
const COUNTED_AHEAD = 2 ** 20
const COUNT_PATH = 'core/encryptions'
/** Standbys look for a successor of their root key more often. */
const SUCCESSOR_MS = 60_000

/** Whether a commit was refused for the state of the store or the cluster: a retry, or another server, may accept it. */
export function isStoreUnavailable(error: unknown): error is StoreError {
  return (
    error instanceof StoreError && ['busy', 'closed', 'displaced', 'fenced', 'replica', 'standby'].includes(error.kind)
  )
}

export function isOutOfSpace(error: unknown): error is StoreError {
  return error instanceof StoreError && error.kind === 'full'
}

/** Whether a commit was refused for its size. The caller can split it. */
export function isTooLarge(error: unknown): error is BatchTooLarge {
  return error instanceof BatchTooLarge
}

/** Changes in the same batch as a change of the keys. */
export interface KeyChangeEntries {
  /** Stored without encryption: readable while the barrier is sealed, or encrypted with another key already. */
  readonly raw?: readonly Put[]
  readonly puts?: readonly Put[]
  readonly deletes?: readonly string[]
}

export interface BarrierOptions {
  /** The wall clock, in milliseconds. */
  readonly now?: () => number
  /** Encryptions with one key before it is rotated. */
  readonly encryptionsMax?: number
  /** Called after keys were dropped. By default it collects the garbage, see `forced-gc.ts`. */
  readonly scheduleGc?: () => void
  /** Other servers of the cluster hold the root key: they receive the next one with a rekey. */
  readonly hasStandbys?: boolean
}

export class Barrier {
  readonly #store: Store
  readonly #now: () => number
  readonly #encryptionsMax: number
  readonly #scheduleGc: () => void
  readonly #hasStandbys: boolean
  /** When the successor of a replaced root key was seen first, by path. */
  readonly #successors = new Map<string, number>()
  #ring: Keyring | undefined
  /** The last element is the root key, which rotations need. Before it are replaced root keys whose replacement is not durable yet. */
  #rootKeys: Buffer[] = []
  #encryptions = 0
  #countedTo = 0
  /** Plaintexts by ciphertext, while the store has the ciphertext in memory. */
  #plaintexts = new WeakCache<Uint8Array, Buffer>()
  readonly #codes = new PurposeCodes()
  readonly #guard: EntryGuard
  /** The root key of a standby server; nothing is read or written with it before `openFromStandby`. */
  readonly standby: StandbyKey
  #wasInitialised = false
  /** The ring has a key that the stored ring lacks: it is written with the next batch. */
  #isRingUnsaved = false

  constructor(store: Store, options: BarrierOptions = {}) {
    const { now = Date.now, encryptionsMax = ENCRYPTIONS_MAX } = options
    this.#store = store
    this.standby = new StandbyKey(store)
    this.#now = now
    this.#encryptionsMax = encryptionsMax
    this.#scheduleGc = options.scheduleGc ?? scheduleGc
    this.#hasStandbys = options.hasStandbys ?? false
    this.#guard = new EntryGuard(store, now)
    store.onFailure(() => this.#fallBack())
  }

  /** True once a keyring is stored. */
  get isInitialised(): boolean {
    try {
      this.#wasInitialised = this.#store.get(KEYRING_PATH) !== undefined
      return this.#wasInitialised
    } catch (error) {
      // The database was truncated while it was open: probes and metrics must still work.
      if (this.#wasInitialised) return true
      throw error
    }
  }

  get isSealed(): boolean {
    return this.#ring === undefined
  }

  /** Results of the checks against rollbacks since the barrier was opened. */
  get integrity(): EntryIntegrity {
    return this.#guard.integrity
  }

  /** Starts the background scan of all entries: it finds changes that no read would find. */
  startScan(): void {
    this.#open()
    this.#guard.startScan()
  }

  /** Called for each detected change by another program. Must not throw. */
  set onFound(listener: EntryGuard['onFound']) {
    this.#guard.onFound = listener
    this.standby.onFound = listener
  }

  /** See `EntryGuard.follow`. */
  follow(batches: readonly Batch[]): () => boolean {
    return this.#guard.follow(batches)
  }

  /** The active key: its term, installation time and number of encryptions. */
  get status(): { readonly term: number; readonly installedAtMs: number; readonly encryptions: number } {
    const { term, installedAtMs } = this.#open().active
    return { term, installedAtMs, encryptions: this.#encryptions }
  }

  /** Creates a keyring under a root key of `KEY_BYTES` bytes. The barrier stays sealed. Throws when a keyring exists. */
  async initialise(rootKey: Buffer, beside: KeyChangeEntries = {}): Promise<void> {
    if (this.#store.pending(KEYRING_PATH)) throw new Fault('the barrier is already initialized')
    const ring = Keyring.fresh(this.#now())
    try {
      await this.#store.commit(this.#guard.first(keyChangeBatch(ring, rootKey, beside), ring))
    } finally {
      ring.close()
    }
  }

  /** Opens the barrier. Throws WrongKey for the wrong root key. */
  unseal(rootKey: Buffer): void {
    const entry = this.#store.pending(KEYRING_PATH)
    if (!entry) throw new Fault('the barrier is not initialized')
    const found = openRing(entry.value, rootKey)
    if (!found) throw new WrongKey('the root key does not open the barrier')
    this.seal()
    const ring = this.#withSetKey(found)
    try {
      this.#guard.open(ring, this.#isRingUnsaved)
      this.#guard.check(KEYRING_PATH, entry.value)
      this.#ring = ring
      this.#rootKeys = [Buffer.from(rootKey)]
      this.#encryptions = this.#countedTo = countIn(this.pending(COUNT_PATH))
      this.#saveRing()
    } catch (error) {
      ring.close()
      this.#close()
      throw error
    }
  }

  /** Opens the barrier with the held key. Throws a Refusal (503) without one. On failure the key stays held. */
  openFromStandby(): void {
    this.standby.fits()
    const key = this.standby.copy()
    try {
      this.unseal(key)
    } catch (error) {
      this.standby.hold(key)
      throw error
    } finally {
      key.fill(0)
    }
  }

  /** Seals the barrier and holds its root key: nothing is read or written before `openFromStandby`. */
  enterStandby(): void {
    const key = Buffer.from(this.#root())
    try {
      this.seal()
      this.standby.hold(key)
    } finally {
      key.fill(0)
    }
  }

  /** Adds a set key to a ring of a version without entry set. The current entries are then trusted. */
  #withSetKey(ring: Keyring): Keyring {
    this.#isRingUnsaved = ring.setKey === undefined
    return ring.setKey ? ring : ring.withSetKey()
  }

  /** Queues the ring before the next batch: if this fails, so does that batch. */
  #saveRing(): void {
    if (!this.#isRingUnsaved) return
    const ring = this.#open()
    try {
      this.#queue({ puts: [ringEntry(ring, this.#root())], deletes: [] }, ring).catch(() => undefined)
      this.#isRingUnsaved = false
    } catch {
      // Nothing can be queued now; the next batch retries.
    }
  }

  /** Seals the barrier and overwrites its keys, including a held root key. */
  seal(): void {
    this.standby.forget()
    if (this.#ring && !this.#isRingUnsaved) this.#guard.close(this.#ring.activeKey)
    this.#close()
  }

  #close(): void {
    const wasOpen = this.#ring !== undefined
    this.#guard.drop()
    this.#ring?.close()
    for (const key of this.#rootKeys) key.fill(0)
    this.#codes.clear()
    this.#ring = undefined
    this.#rootKeys = []
    this.#plaintexts = new WeakCache()
    if (wasOpen) this.#scheduleGc()
  }

  /** The durable entry. Only durable state may be returned to clients. */
  get(path: string): Buffer | undefined {
    return this.#plaintext(path, this.#open(), this.#store.get(path))
  }

  /** The entry after all queued batches, as the basis of a commit; see `Store.pending`. */
  pending(path: string): Buffer | undefined {
    return this.#plaintext(path, this.#open(), this.#store.pending(path))
  }

  /** Throws a Fault for a damaged entry and a RollbackError for one that is not the last written state. */
  #plaintext(path: string, ring: Keyring, entry: Pick<StoredEntry, 'value'> | undefined): Buffer | undefined {
    const plaintext = entry && decrypt(path, entry.value, (term) => ring.key(term))
    try {
      this.#guard.check(path, entry?.value)
    } catch (error) {
      plaintext?.fill(0)
      throw error
    }
    return plaintext
  }

  /** As `get`, with the same buffer until the entry changes. Callers must not modify it. */
  getShared(path: string): Buffer | undefined {
    return this.#shared(path, this.#store.get(path))
  }

  /** As `pending`, with the same buffer until the entry changes. Callers must not modify it. */
  pendingShared(path: string): Buffer | undefined {
    return this.#shared(path, this.#store.pending(path))
  }

  #shared(path: string, entry: Pick<StoredEntry, 'value'> | undefined): Buffer | undefined {
    const ring = this.#open()
    const known = entry && this.#plaintexts.get(entry.value)
    if (known) return known
    const plaintext = this.#plaintext(path, ring, entry)
    if (entry && plaintext) this.#plaintexts.keep(entry.value, plaintext)
    return plaintext
  }

  #share(ciphertext: Uint8Array | undefined, value: Uint8Array): void {
    const isBuffer = Buffer.isBuffer(value)
    const plaintext = isBuffer ? value : Buffer.from(value.buffer, value.byteOffset, value.length)
    if (ciphertext) this.#plaintexts.note(ciphertext, plaintext)
  }

  /** As `Store.list`. Paths are not encrypted. */
  list(prefix = '', options: PageOptions = {}): string[] {
    this.#open()
    this.#guard.checkListing()
    return this.#store.list(prefix, options)
  }

  /** As `Store.paths`. */
  paths(prefix: string, options: PageOptions = {}): string[] {
    this.#open()
    this.#guard.checkListing()
    return this.#store.paths(prefix, options)
  }

  /** As `Store.history`, restricted to paths below a prefix, which is removed from them. Decrypts the puts that `isWanted` selects. */
  history(prefix: string, after: number, limit: number, isWanted: (path: string) => boolean): History {
    const ring = this.#open()
    const { rows, ...range } = this.#store.history?.(after, limit) ?? { epoch: 0, oldest: 0, newest: 0, rows: [] }
    const below = (path: string) => (path.startsWith(prefix) ? path.slice(prefix.length) : undefined)
    const decrypted = rows.map(({ batch, sequence }) => {
      const puts = batch.puts.flatMap(({ path, value }) => {
        const rest = below(path)
        if (rest === undefined || !isWanted(rest)) return []
        return [{ path: rest, value: decrypt(path, value, (term) => ring.key(term)) }]
      })
      return { sequence, batch: { puts, deletes: batch.deletes.flatMap((path) => below(path) ?? []) } }
    })
    return { ...range, rows: decrypted }
  }

  /** Encrypts a value that is stored outside the entries, as an entry of this name. */
  protect(name: string, value: Uint8Array): Buffer {
    return encrypt(name, value, this.#open().activeKey)
  }

  /** Decrypts a result of `protect`. Throws a Fault for anything else. */
  reveal(name: string, value: Uint8Array): Buffer {
    const ring = this.#open()
    return decrypt(name, value, (term) => ring.key(term))
  }

  /** As `StandbyKey.codeOf`, with the keys of the open barrier. Throws a Refusal (503) while it is sealed. */
  codeOf(purpose: string, text: string): Buffer {
    const { setKey } = this.#open()
    if (!setKey) throw new Fault('the keyring has no key for the entry set')
    return this.#codes.codeOf(setKey, () => derivedKey(setKey, purpose), purpose, text)
  }

  /** As `Store.settled`. */
  settled(): Promise<unknown> | undefined {
    return this.#store.settled?.()
  }

  /** As `Store.onFailure`. The barrier has returned to the durable state before the listener is called. */
  onFailure(listener: () => void): () => void {
    return this.#store.onFailure(listener)
  }

  /**
   * Encrypts and queues the batch synchronously. Resolves to its sequence once it is durable. `raw` is stored without encryption. With
   * `isShared` the caller must not modify the values: the next read returns the same buffers.
   */
  async commit(batch: Batch, raw: readonly Put[] = [], isShared = false): Promise<number> {
    this.#saveRing()
    if (this.#encryptions + batch.puts.length > this.#encryptionsMax) {
      // The rotation is queued before the batch: if it fails, the batch fails too and reports the error.
      this.rotate().catch(() => undefined)
    }
    const ring = this.#open()
    const puts = batch.puts.map(({ path, value }) => ({ path, value: encrypt(path, value, ring.activeKey) }))
    this.#count(puts.length, ring)
    if (isShared) batch.puts.forEach(({ value }, at) => this.#share(puts[at]?.value, value))
    return this.#queue({ puts: raw.length > 0 ? [...puts, ...raw] : puts, deletes: batch.deletes }, ring)
  }

  /** Queues ciphertext synchronously. */
  #queue(batch: Batch, ring: Keyring): Promise<number> {
    return this.#guard.commit(batch, ring.activeKey)
  }

  /** Counts encryptions and queues the stored count when it is due. Throws when it cannot be queued. */
  #count(encryptions: number, ring: Keyring): void {
    // One more for the head of the entry set.
    const count = this.#encryptions + encryptions + 1
    if (count > this.#countedTo) {
      const ahead = count + COUNTED_AHEAD
      const value = encrypt(COUNT_PATH, Buffer.from(String(ahead)), ring.activeKey)
      this.#queue({ puts: [{ path: COUNT_PATH, value }], deletes: [] }, ring).catch(() => undefined)
      this.#countedTo = ahead
    }
    this.#encryptions = count
  }

  /**
   * Rotates the active key: later commits use the new key, and older entries stay readable. Resolves to its term once it is durable.
   * Changes of keys are ordered by the queue, so none overwrites another.
   */
  async rotate(): Promise<number> {
    const next = this.#open().rotated(this.#now())
    const count = { path: COUNT_PATH, value: encrypt(COUNT_PATH, Buffer.from('0'), next.activeKey) }
    const done = this.#queue(keyChangeBatch(next, this.#root(), { raw: [count] }), next)
    const { term } = next.active
    this.#ring = next
    this.#isRingUnsaved = false
    this.#encryptions = this.#countedTo = 0
    await done
    return term
  }

  /** Replaces the root key. */
  async rekey(rootKey: Buffer, beside: KeyChangeEntries = {}): Promise<void> {
    const ring = this.#open()
    const { raw = [] } = beside
    const forStandbys = this.#hasStandbys ? [successorEntry(this.#root(), rootKey)] : []
    const done = this.#queue(keyChangeBatch(ring, rootKey, { ...beside, raw: [...raw, ...forStandbys] }), ring)
    this.#isRingUnsaved = false
    const copy = Buffer.from(rootKey)
    this.#rootKeys.push(copy)
    await done
    const before = this.#rootKeys.indexOf(copy)
    for (const key of this.#rootKeys.splice(0, Math.max(0, before))) key.fill(0)
  }

  /** Removes successors of root keys that standbys have had the time to read. To be called at intervals. */
  async removeSuccessors(): Promise<void> {
    const nowMs = this.#now()
    const paths = this.paths(SUCCESSORS)
    for (const path of paths) if (!this.#successors.has(path)) this.#successors.set(path, nowMs)
    const deletes = paths.filter((path) => nowMs - (this.#successors.get(path) ?? nowMs) >= SUCCESSOR_MS)
    if (deletes.length === 0) return
    await this.commit({ puts: [], deletes })
    for (const path of deletes) this.#successors.delete(path)
  }

  /**
   * Returns to the durable keyring and root key after a failed commit, which may have changed them. Nothing durable is encrypted with a
   * failed ring, as all batches that were queued after it failed too.
   */
  #fallBack(): void {
    if (!this.#ring) return
    const { term } = this.#ring.active
    try {
      const { value } = this.#store.get(KEYRING_PATH) ?? {}
      const rootKey = value && this.#rootKeys.find((key) => openRing(value, key) !== undefined)
      const found = rootKey && openRing(value, rootKey)
      if (!found) throw new Fault('the keyring in the store is not the one of this barrier')
      const ring = this.#withSetKey(found)
      this.#guard.fallBack(ring, this.#isRingUnsaved)
      this.#guard.check(KEYRING_PATH, value)
      for (const key of this.#rootKeys) if (key !== rootKey) key.fill(0)
      this.#ring.close()
      this.#ring = ring
      this.#rootKeys = [rootKey]
      this.#countedTo = countIn(this.get(COUNT_PATH))
      if (ring.active.term !== term) this.#encryptions = this.#countedTo
    } catch {
      // The state of the keys is unknown: seal.
      this.#close()
    }
  }

  #root(): Buffer {
    const key = this.#rootKeys.at(-1)
    if (!key) throw sealed()
    return key
  }

  #open(): Keyring {
    if (!this.#ring) throw sealed()
    return this.#ring
  }
}

function countIn(plaintext: Buffer | undefined): number {
  return Number(plaintext?.toString() ?? 0)
}

/** The batch that stores a ring under a root key with further changes. */
function keyChangeBatch(
  ring: Keyring,
  rootKey: Buffer,
  { raw = [], puts = [], deletes = [] }: KeyChangeEntries,
): Batch {
  const encrypted = puts.map(({ path, value }) => ({ path, value: encrypt(path, value, ring.activeKey) }))
  return { puts: [ringEntry(ring, rootKey), ...raw, ...encrypted], deletes }
}
