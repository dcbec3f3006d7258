/**
 * Between the barrier and the store: binds every batch into the entry set (`entry-set.ts`) and compares what is read with it.
 * It holds the set while the barrier is open, looks over all entries in the background (`entry-pass.ts`), and keeps what the next
 * start needs (`entry-set-shards.ts`).
 *
 * What is found is never answered: a read of the entry fails, and once entries are known to be missing each listing fails, as
 * any could lack one. Everything else goes on.
 */
import { messageOf } from '../../platform/errors.ts'
import { type Batch, HEAD_PATH, isLocal } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import { decrypt, type TermKey } from './cipher.ts'
import { EntryPass, type Found } from './entry-pass.ts'
import { fromEntries, loadEntrySet } from './entry-set-load.ts'
import { ShardWriter } from './entry-set-shards.ts'
import { EntriesChanged, EntrySet, RolledBack, WHAT_TO_DO } from './entry-set.ts'
import type { Keyring } from './keyring.ts'

/** Between two looks at all entries. */
const PASS_MS = 3_600_000

/** What was found since the barrier was opened. */
export interface Integrity {
  /** Reads that failed, and what the background has found. */
  readonly changed: number
  readonly missing: number
  /** All entries were looked at once. */
  readonly isChecked: boolean
  /** In words for an operator; empty while nothing was found. */
  readonly warnings: readonly string[]
}

export class EntryGuard {
  readonly #store: Store
  readonly #shards: ShardWriter
  #set: EntrySet | undefined
  #pass: EntryPass | undefined
  #nextPass: NodeJS.Timeout | undefined
  #changed = 0
  #missing = 0
  #suspected = 0
  #isChecked = false
  #refusal = ''
  /** Told of each entry that is found. Must not throw. */
  onFound: (error: RolledBack | EntriesChanged) => void = () => undefined

  constructor(store: Store, now: () => number) {
    this.#store = store
    this.#shards = new ShardWriter(store, now)
  }

  get integrity(): Integrity {
    const [changed, missing] = [this.#changed, this.#missing]
    const warnings = [
      ...(this.#refusal === '' ? [] : [this.#refusal]),
      ...(changed === 0
        ? []
        : [`the database was changed by another program: ${changed} reads of entries were refused. ${WHAT_TO_DO}`]),
      ...(missing === 0 ? [] : [`entries are missing from the database: ${missing}; nothing is listed. ${WHAT_TO_DO}`]),
    ]
    return { changed, missing, isChecked: this.#isChecked, warnings }
  }

  /** The first batch of a barrier, with its head. */
  first(batch: Batch, ring: Keyring): Batch {
    const set = fromEntries(this.#store, setKeyOf(ring))
    set.bind(batch)
    const bound = withHead(batch, set)
    set.close()
    return bound
  }

  /**
   * Makes the set, of entries that must fit their head; with `isNew` there is none yet, and the entries are taken as they are.
   * Throws EntriesChanged.
   */
  open(ring: Keyring, isNew: boolean): void {
    let set: EntrySet
    try {
      set = this.#load(ring, isNew)
    } catch (error) {
      this.#refusal = messageOf(error)
      throw error
    }
    this.drop()
    this.#set = set
    this.#refusal = ''
  }

  /** Begins to look at all entries in the background, now and again every hour. */
  look(): void {
    this.#pass?.stop()
    clearTimeout(this.#nextPass)
    this.#beginPass()
  }

  #load(ring: Keyring, isNew: boolean): EntrySet {
    const key = setKeyOf(ring)
    const open = (path: string, value: Uint8Array) => decrypt(path, value, (term) => ring.key(term))
    const head = this.#store.pending(HEAD_PATH)?.value
    if (isNew) {
      if (head) throw new EntriesChanged()
      this.#shards.lost()
      return fromEntries(this.#store, key)
    }
    const { isQuick, set } = loadEntrySet(this.#store, key, head, open)
    if (!isQuick) this.#shards.lost()
    return set
  }

  /** Something queued failed, or other entries have taken the place of all: what the disk says holds. Throws EntriesChanged. */
  fallBack(ring: Keyring, isNew: boolean): void {
    const set = this.#set
    const value = this.#store.get(HEAD_PATH)?.value
    const head = !isNew && value && set?.isOf(setKeyOf(ring)) ? set.openHead(value) : undefined
    if (head && set?.fallBack(head)) return
    const isLooking = this.#pass !== undefined
    this.open(ring, isNew)
    if (isLooking) this.look()
  }

  /** Queues the batch before it returns. */
  commit(batch: Batch, key: TermKey): Promise<number> {
    const set = this.#set
    if (!set) throw new Error('the entry set is closed')
    // The set holds replicated entries only, and its head cannot be in one batch with local ones.
    if (isLocal(batch)) return this.#store.commit(batch)
    const flight = set.bind(batch)
    let done: Promise<number>
    try {
      done = this.#store.commit(withHead(batch, set))
    } catch (error) {
      set.withdraw(flight)
      throw error
    }
    this.#shards.changed(flight.changes.length, set, key)
    return done.then((sequence) => {
      set.settle(flight)
      return sequence
    })
  }

  /** Throws RolledBack unless the database gave what was last written there. */
  check(path: string, value: Uint8Array | undefined): void {
    try {
      this.#set?.check(path, value)
    } catch (error) {
      if (error instanceof RolledBack) this.#note(error)
      throw error
    }
  }

  /** Throws once it is known that a listing may lack something. */
  checkListing(): void {
    if (this.#missing > 0) throw new EntriesChanged()
  }

  #note(error: RolledBack): void {
    this.#changed++
    this.onFound(error)
  }

  /** The barrier is sealed, as it should be: the next start finds what it needs. */
  close(key: TermKey): void {
    if (this.#set) this.#shards.all(this.#set, key)
    this.drop()
  }

  /** Forgets the set. */
  drop(): void {
    this.#pass?.stop()
    this.#pass = undefined
    clearTimeout(this.#nextPass)
    this.#set?.close()
    this.#set = undefined
    this.#changed = this.#missing = this.#suspected = 0
    this.#isChecked = false
  }

  #beginPass(): void {
    if (this.#set) this.#pass = new EntryPass(this.#store, this.#set, (found) => this.#found(found))
  }

  #found({ changed, missing }: Found): void {
    for (const error of changed) this.#note(error)
    // Listings fail from then on: only when a second look says the same.
    if (missing > 0 && this.#suspected === 0) {
      this.#suspected = missing
      return this.#beginPass()
    }
    this.#suspected = 0
    this.#missing = missing
    this.#isChecked = true
    if (missing > 0) this.onFound(new EntriesChanged())
    this.#nextPass = setTimeout(() => this.#beginPass(), PASS_MS)
    this.#nextPass.unref()
  }
}

function setKeyOf({ setKey }: Keyring): Buffer {
  if (!setKey) throw new Error('the ring has no key for the entry set')
  return setKey
}

function withHead({ deletes, puts }: Batch, set: EntrySet): Batch {
  return { puts: [...puts, { path: HEAD_PATH, value: set.sealHead() }], deletes }
}
