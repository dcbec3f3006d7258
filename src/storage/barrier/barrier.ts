/**
 * The barrier room: plaintext above, ciphertext below.
 *
 * A *barrier* is sealed or open. Open, it holds the keyring; each entry is encrypted with the ring's active key under its
 * own path (`cipher.ts`) before the store sees it. The ring is an entry too, encrypted with the *root key*. That is here only
 * while the barrier is open: the *seal* (`seal.ts`) keeps it, encrypted with a key that is divided among people or is the
 * machine's, and brings it to unseal. So the room has two halves, and this one knows nothing of shares.
 *
 * Promises. No plaintext and no key goes below: not into the store, its log, an error or a log line. An entry that was
 * changed, cut, or moved to another path is refused, never returned; so is one whose older state was put back, or that was
 * removed or put in again below (`entry-set.ts`). Sealing overwrites every key in memory. A key
 * encrypts far fewer than 2^32 entries (NIST SP 800-38D): before that the barrier rotates by itself.
 *
 * Assumes that the store keeps what it says it keeps, and that whoever can read this process's memory may have it all.
 *
 * What can go wrong. A wrong root key: refused, the barrier stays sealed. A damaged keyring: the same, and it is said; a
 * snapshot is the way back. A damaged entry: a fault that names its path. Entries that do not fit their head, and nothing tells
 * which: the barrier stays sealed.
 */
import { Fault, sealed } from '../../platform/errors.ts'
import { KnownOf } from '../../platform/passing.ts'
import { type Batch, BatchTooLarge, type Put } from '../sqlite/batch.ts'
import { type Entry, type History, type PageOptions, type Store, StoreError } from '../store/store.ts'
import { decrypt, encrypt } from './cipher.ts'
import { EntryGuard, type Integrity } from './entry-guard.ts'
import { freeMemory } from './freed-memory.ts'
import { HeldKey } from './held-key.ts'
import { Keyring } from './keyring.ts'
import { derivedKey, PurposeCodes } from './purpose-codes.ts'
import { KEYRING_PATH, openRing, ringEntry, WrongKey } from './ring-entry.ts'

export { KEYRING_PATH, WrongKey } from './ring-entry.ts'

/** NIST allows 2^32 with random nonces; rotating early costs nothing. */
const ENCRYPTIONS_MAX = 2 ** 31
/** Where the count of encryptions stands is written down this far ahead, so that a crash never counts too few. */
const COUNTED_AHEAD = 2 ** 20
const COUNT_PATH = 'core/encryptions'

/**
 * Whether a commit came at a bad time, or to the wrong cluster, and was refused for that alone: later, from the next process,
 * or there it may pass.
 */
export function isUntimely(error: unknown): error is StoreError {
  return error instanceof StoreError && ['busy', 'closed', 'displaced', 'fenced', 'replica'].includes(error.kind)
}

/** Whether a commit was refused because the disk is full. */
export function isOutOfSpace(error: unknown): error is StoreError {
  return error instanceof StoreError && error.kind === 'full'
}

/** Whether a commit was refused for its size: divided it passes. Nothing of it is written. */
export function isTooLarge(error: unknown): error is BatchTooLarge {
  return error instanceof BatchTooLarge
}

/** What is to be written in the same batch as a change of the keys. */
export interface Beside {
  /** Stored as they are: what must be readable while it is sealed, or is encrypted with another key. */
  readonly raw?: readonly Put[]
  /** Encrypted as any entry. */
  readonly puts?: readonly Put[]
  readonly deletes?: readonly string[]
}

export interface BarrierOptions {
  /** The wall clock, in milliseconds. */
  readonly now?: () => number
  /** Encryptions with one key, after which it is rotated. */
  readonly encryptionsMax?: number
  /** Called when keys were dropped; by default it collects the garbage, see `freed-memory.ts`. */
  readonly freeMemory?: () => void
}

export class Barrier {
  readonly #store: Store
  readonly #now: () => number
  readonly #encryptionsMax: number
  readonly #freeMemory: () => void
  #ring: Keyring | undefined
  /**
   * The newest is the root key, kept while it is open for the rotations that the barrier does by itself; in front of it
   * stand those that it took the place of, until that is durable.
   */
  #rootKeys: Buffer[] = []
  #encryptions = 0
  #countedTo = 0
  /** Plaintexts by their ciphertexts, for as long as the store still has those in memory. */
  #opened = new KnownOf<Uint8Array, Buffer>()
  readonly #codes = new PurposeCodes()
  readonly #guard: EntryGuard
  /** The root key of a server that stands by; nothing is read or written with it before `openHeld`. */
  readonly standby: HeldKey
  #wasInitialised = false
  /** The ring has a key that the ring in the store lacks: it is written with the next batch. */
  #isRingUnsaved = false

  /** `encryptionsMax` of one key, for tests; `now` in milliseconds. */
  constructor(store: Store, options: BarrierOptions = {}) {
    const { now = Date.now, encryptionsMax = ENCRYPTIONS_MAX } = options
    this.#store = store
    this.standby = new HeldKey(store)
    this.#now = now
    this.#encryptionsMax = encryptionsMax
    this.#freeMemory = options.freeMemory ?? freeMemory
    this.#guard = new EntryGuard(store, now)
    store.onFailure(() => this.#fallBack())
  }

  /** True once there is a keyring, opened or not. */
  get isInitialised(): boolean {
    try {
      this.#wasInitialised = this.#store.get(KEYRING_PATH) !== undefined
      return this.#wasInitialised
    } catch (error) {
      // A database that was cut under the process: probes and figures must go on telling that.
      if (this.#wasInitialised) return true
      throw error
    }
  }

  get isSealed(): boolean {
    return this.#ring === undefined
  }

  /** Whether the database gave what was last written, as far as is known. */
  get integrity(): Integrity {
    return this.#guard.integrity
  }

  /** Begins to look at all entries in the background, for as long as it is open: what no read asks for is found, too. */
  lookAtAll(): void {
    this.#open()
    this.#guard.look()
  }

  /** Calls back for each entry that another program has changed, as it is found. `listener` must not throw. */
  set onFound(listener: EntryGuard['onFound']) {
    this.#guard.onFound = listener
    this.standby.onFound = listener
  }

  /** Term of the active key and when it was installed. */
  get status(): { readonly term: number; readonly installedAtMs: number; readonly encryptions: number } {
    const { term, installedAtMs } = this.#open().active
    return { term, installedAtMs, encryptions: this.#encryptions }
  }

  /** Makes a keyring under a root key of `KEY_BYTES` bytes; the barrier is sealed afterwards. Throws where there is one. */
  async initialise(rootKey: Buffer, beside: Beside = {}): Promise<void> {
    if (this.#store.pending(KEYRING_PATH)) throw new Fault('the barrier is initialised already')
    const ring = Keyring.fresh(this.#now())
    try {
      await this.#store.commit(this.#guard.first(together(ring, rootKey, beside), ring))
    } finally {
      ring.close()
    }
  }

  /** Opens it. Throws WrongKey for a key that is not this barrier's. */
  unseal(rootKey: Buffer): void {
    const entry = this.#store.pending(KEYRING_PATH)
    if (!entry) throw new Fault('the barrier is not initialised')
    const found = openRing(entry.value, rootKey)
    if (!found) throw new WrongKey('the root key does not open the barrier')
    this.seal()
    const ring = this.#completed(found)
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

  /** Opens it with the key that is held. Throws a Refusal (503) where none is; it stays held where it does not open. */
  openHeld(): void {
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

  /** Closes it and holds its root key: nothing is read or written any more before `openHeld`. */
  standDown(): void {
    const key = Buffer.from(this.#root())
    try {
      this.seal()
      this.standby.hold(key)
    } finally {
      key.fill(0)
    }
  }

  /** A ring of before there was an entry set gets the key of one: the entries are taken as they are. */
  #completed(ring: Keyring): Keyring {
    this.#isRingUnsaved = ring.setKey === undefined
    return ring.setKey ? ring : ring.withSetKey()
  }

  /** It is ahead of what is queued next: should it fail, so does that. */
  #saveRing(): void {
    if (!this.#isRingUnsaved) return
    const ring = this.#open()
    try {
      this.#queue({ puts: [ringEntry(ring, this.#root())], deletes: [] }, ring).catch(() => undefined)
      this.#isRingUnsaved = false
    } catch {
      // Nothing can be queued now: with the next batch.
    }
  }

  /** Closes it and overwrites its keys, also the one that is held. */
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
    this.#opened = new KnownOf()
    if (wasOpen) this.#freeMemory()
  }

  /** What is durable: what may be told to a caller. */
  get(path: string): Buffer | undefined {
    return this.#plaintext(path, this.#open(), this.#store.get(path))
  }

  /** What will be there once all that is queued is durable: for whoever is about to commit, see `Store.pending`. */
  pending(path: string): Buffer | undefined {
    return this.#plaintext(path, this.#open(), this.#store.pending(path))
  }

  /** Throws a Fault for an entry that was damaged, or is not what was last written there. */
  #plaintext(path: string, ring: Keyring, entry: Pick<Entry, 'value'> | undefined): Buffer | undefined {
    const plaintext = entry && decrypt(path, entry.value, (term) => ring.key(term))
    try {
      this.#guard.check(path, entry?.value)
    } catch (error) {
      plaintext?.fill(0)
      throw error
    }
    return plaintext
  }

  /** As `get`, and the same buffer until the entry changes: for whoever leaves it as it is. */
  shown(path: string): Buffer | undefined {
    return this.#shared(path, this.#store.get(path))
  }

  /** As `pending`, and the same buffer until the entry changes. */
  pendingShown(path: string): Buffer | undefined {
    return this.#shared(path, this.#store.pending(path))
  }

  #shared(path: string, entry: Pick<Entry, 'value'> | undefined): Buffer | undefined {
    const ring = this.#open()
    const known = entry && this.#opened.get(entry.value)
    if (known) return known
    const plaintext = this.#plaintext(path, ring, entry)
    if (entry && plaintext) this.#opened.keep(entry.value, plaintext)
    return plaintext
  }

  #share(ciphertext: Uint8Array | undefined, value: Uint8Array): void {
    const isBuffer = Buffer.isBuffer(value)
    const plaintext = isBuffer ? value : Buffer.from(value.buffer, value.byteOffset, value.length)
    if (ciphertext) this.#opened.note(ciphertext, plaintext)
  }

  /** As `Store.list`; names are not secret below the barrier. */
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

  /** As `Store.history`: of each row what lies below a prefix, without it; of the puts those that are wanted, opened. */
  history(prefix: string, after: number, limit: number, isWanted: (path: string) => boolean): History {
    const ring = this.#open()
    const { rows, ...range } = this.#store.history?.(after, limit) ?? { epoch: 0, oldest: 0, newest: 0, rows: [] }
    const below = (path: string) => (path.startsWith(prefix) ? path.slice(prefix.length) : undefined)
    const opened = rows.map(({ batch, sequence }) => {
      const puts = batch.puts.flatMap(({ path, value }) => {
        const rest = below(path)
        if (rest === undefined || !isWanted(rest)) return []
        return [{ path: rest, value: decrypt(path, value, (term) => ring.key(term)) }]
      })
      return { sequence, batch: { puts, deletes: batch.deletes.flatMap((path) => below(path) ?? []) } }
    })
    return { ...range, rows: opened }
  }

  /** A value that lies outside the barrier's entries, encrypted as an entry of this name would be. */
  protect(name: string, value: Uint8Array): Buffer {
    return encrypt(name, value, this.#open().activeKey)
  }

  /** What `protect` has encrypted. Throws a Fault for anything else. */
  reveal(name: string, value: Uint8Array): Buffer {
    const ring = this.#open()
    return decrypt(name, value, (term) => ring.key(term))
  }

  /** As `HeldKey.codeOf`, with the keys of the open barrier. Throws a Refusal (503) while it is sealed. */
  codeOf(purpose: string, text: string): Buffer {
    const { setKey } = this.#open()
    if (!setKey) throw new Fault('the keyring has no key for its set of entries')
    return this.#codes.codeOf(setKey, () => derivedKey(setKey, purpose), purpose, text)
  }

  /** As `Store.onFailure`. The barrier itself stands on what is durable again by then. */
  onFailure(listener: () => void): () => void {
    return this.#store.onFailure(listener)
  }

  /**
   * Encrypts and queues the batch before it returns; resolves with the sequence once it is durable. `raw` goes with it as
   * it is. Where nobody changes the values afterwards (`isShared`), whoever reads them next gets them as they are.
   */
  async commit(batch: Batch, raw: readonly Put[] = [], isShared = false): Promise<number> {
    this.#saveRing()
    if (this.#encryptions + batch.puts.length > this.#encryptionsMax) {
      // It is ahead of the batch in the same queue: should it fail, so does the batch, which tells the caller.
      this.rotate().catch(() => undefined)
    }
    const ring = this.#open()
    const puts = batch.puts.map(({ path, value }) => ({ path, value: encrypt(path, value, ring.activeKey) }))
    this.#count(puts.length, ring)
    if (isShared) batch.puts.forEach(({ value }, at) => this.#share(puts[at]?.value, value))
    return this.#queue({ puts: raw.length > 0 ? [...puts, ...raw] : puts, deletes: batch.deletes }, ring)
  }

  /** Queues ciphertext before it returns. */
  #queue(batch: Batch, ring: Keyring): Promise<number> {
    return this.#guard.commit(batch, ring.activeKey)
  }

  /** Counts, and writes down how far, ahead of what is counted, when that is due. Throws when it cannot be queued. */
  #count(encryptions: number, ring: Keyring): void {
    // The head of the entries is one more.
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
   * Goes over to a fresh key, for everything that is committed from now on; older entries stay readable. Resolves with its
   * term once it is durable. Changes of the keys follow one another in the queue, so none undoes another.
   */
  async rotate(): Promise<number> {
    const next = this.#open().rotated(this.#now())
    const count = { path: COUNT_PATH, value: encrypt(COUNT_PATH, Buffer.from('0'), next.activeKey) }
    const done = this.#queue(together(next, this.#root(), { raw: [count] }), next)
    const { term } = next.active
    this.#ring = next
    this.#isRingUnsaved = false
    this.#encryptions = this.#countedTo = 0
    await done
    return term
  }

  /** From now on another root key opens it. */
  async rekey(rootKey: Buffer, beside: Beside = {}): Promise<void> {
    const ring = this.#open()
    const done = this.#queue(together(ring, rootKey, beside), ring)
    this.#isRingUnsaved = false
    const own = Buffer.from(rootKey)
    this.#rootKeys.push(own)
    await done
    const before = this.#rootKeys.indexOf(own)
    for (const key of this.#rootKeys.splice(0, Math.max(0, before))) key.fill(0)
  }

  /**
   * Something queued failed, perhaps the ring or the root key that is in use here since: what the disk says holds. Nothing
   * durable was encrypted with a ring that failed, as all that was queued behind it failed with it.
   */
  #fallBack(): void {
    if (!this.#ring) return
    const { term } = this.#ring.active
    try {
      const { value } = this.#store.get(KEYRING_PATH) ?? {}
      const rootKey = value && this.#rootKeys.find((key) => openRing(value, key) !== undefined)
      const found = rootKey && openRing(value, rootKey)
      if (!found) throw new Fault('the keyring on the disk is another one')
      const ring = this.#completed(found)
      this.#guard.fallBack(ring, this.#isRingUnsaved)
      this.#guard.check(KEYRING_PATH, value)
      for (const key of this.#rootKeys) if (key !== rootKey) key.fill(0)
      this.#ring.close()
      this.#ring = ring
      this.#rootKeys = [rootKey]
      this.#countedTo = countIn(this.get(COUNT_PATH))
      if (ring.active.term !== term) this.#encryptions = this.#countedTo
    } catch {
      // Neither known to be right nor known to be wrong: nothing is encrypted with it.
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

/** One batch: the ring under a root key, and what goes with it. */
function together(ring: Keyring, rootKey: Buffer, { raw = [], puts = [], deletes = [] }: Beside): Batch {
  const encrypted = puts.map(({ path, value }) => ({ path, value: encrypt(path, value, ring.activeKey) }))
  return { puts: [ringEntry(ring, rootKey), ...raw, ...encrypted], deletes }
}
