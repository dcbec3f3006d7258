/**
 * Between the barrier and the store: adds every batch to the entry set (`entry-set.ts`) and compares all reads with it. It holds the set
 * while the barrier is open, scans all entries in the background (`entry-scan.ts`), and stores the shards for the next start
 * (`entry-set-shards.ts`).
 *
 * A changed entry is never returned: its reads fail. Once entries are known to be missing, all listings fail, because any of them could be
 * incomplete. Everything else continues to work.
 */
import { messageOf } from '../../platform/errors.ts'
import { type Batch, HEAD_PATH, isLocal } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import { decrypt, type TermKey } from './cipher.ts'
import { EntryScan, type EntryScanResult } from './entry-scan.ts'
import { setFromEntries, loadEntrySet } from './entry-set-load.ts'
import { ShardWriter } from './entry-set-shards.ts'
import { EntrySetMismatch, EntrySet, isBound, RollbackError, WHAT_TO_DO } from './entry-set.ts'
import type { Keyring } from './keyring.ts'

/** Pause between two scans of all entries. */
const SCAN_INTERVAL_MS = 3_600_000

/** Findings since the barrier was opened. */
export interface EntryIntegrity {
  /** Failed reads and findings of the scan. */
  readonly changed: number
  readonly missing: number
  /** True after the first complete scan. */
  readonly isChecked: boolean
  /** For the operator; empty without findings. */
  readonly warnings: readonly string[]
}

export class EntryGuard {
  readonly #store: Store
  readonly #shards: ShardWriter
  #set: EntrySet | undefined
  #scan: EntryScan | undefined
  #nextScan: NodeJS.Timeout | undefined
  #changed = 0
  #missing = 0
  #suspectedMissing = 0
  #isChecked = false
  #refusal = ''
  /** Called with each finding. Must not throw. */
  onFound: (error: RollbackError | EntrySetMismatch) => void = () => undefined

  constructor(store: Store, now: () => number) {
    this.#store = store
    this.#shards = new ShardWriter(store, now)
  }

  get integrity(): EntryIntegrity {
    const [changed, missing] = [this.#changed, this.#missing]
    const warnings = [
      ...(this.#refusal === '' ? [] : [this.#refusal]),
      ...(changed === 0
        ? []
        : [`the database was changed by another program: ${changed} reads of entries were refused. ${WHAT_TO_DO}`]),
      ...(missing === 0
        ? []
        : [`${missing} entries are missing from the database; listings are refused. ${WHAT_TO_DO}`]),
    ]
    return { changed, missing, isChecked: this.#isChecked, warnings }
  }

  /** Adds the head to the first batch of a barrier. */
  first(batch: Batch, ring: Keyring): Batch {
    const set = setFromEntries(this.#store, setKeyOf(ring))
    set.bind(batch)
    const bound = withHead(batch, set)
    set.close()
    return bound
  }

  /**
   * Loads the set. Throws EntrySetMismatch when the entries do not match their head. With `isNew` there is no head yet, and the current
   * entries are trusted.
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

  /** Starts a scan of all entries in the background, and again every hour. */
  startScan(): void {
    this.#scan?.stop()
    clearTimeout(this.#nextScan)
    this.#runScan()
  }

  #load(ring: Keyring, isNew: boolean): EntrySet {
    const key = setKeyOf(ring)
    const open = (path: string, value: Uint8Array) => decrypt(path, value, (term) => ring.key(term))
    const head = this.#store.pending(HEAD_PATH)?.value
    if (isNew) {
      if (head) throw new EntrySetMismatch()
      this.#shards.invalidate()
      return setFromEntries(this.#store, key)
    }
    const { isQuick, set } = loadEntrySet(this.#store, key, head, open)
    if (!isQuick) this.#shards.invalidate()
    return set
  }

  /** Returns to the durable entries after a failed commit or a restore. Throws EntrySetMismatch. */
  fallBack(ring: Keyring, isNew: boolean): void {
    const set = this.#set
    const value = this.#store.get(HEAD_PATH)?.value
    const head = !isNew && value && set?.isOf(setKeyOf(ring)) ? set.openHead(value) : undefined
    if (head && set?.fallBack(head)) return
    const isScanning = this.#scan !== undefined
    this.open(ring, isNew)
    if (isScanning) this.startScan()
  }

  /** Queues the batch with its head synchronously. */
  commit(batch: Batch, key: TermKey): Promise<number> {
    const set = this.#set
    if (!set) throw new Error('the entry set is closed')
    // The set has replicated entries only, and a batch cannot mix its head with local entries.
    if (isLocal(batch)) return this.#store.commit(batch)
    const pending = set.bind(batch)
    let done: Promise<number>
    try {
      done = this.#store.commit(withHead(batch, set))
    } catch (error) {
      set.withdraw(pending)
      throw error
    }
    this.#shards.countChanges(pending.changes.length, set, key)
    return done.then((sequence) => {
      set.confirm(pending)
      return sequence
    })
  }

  /**
   * Before batches of another server are applied to the store: reads meanwhile may return the state before or after them. The result must
   * be called once they are applied; it returns false if the entries do not match their head then.
   */
  follow(batches: readonly Batch[]): () => boolean {
    const set = this.#set
    if (!set) return () => true
    // Entries that the seal writes while the barrier is sealed have no head, and are not in the set.
    const isForeign = batches.some((batch) => !hasHead(batch) && changesSet(batch))
    const bound = batches.filter(hasHead).map((batch) => set.bind(batch))
    const head = batches.flatMap(({ puts }) => puts).findLast(({ path }) => path === HEAD_PATH)?.value
    return () => {
      if (this.#set !== set) return true
      const last = bound.at(-1)
      if (last) set.confirm(last)
      const opened = head && set.openHead(head)
      return !isForeign && (!head || (opened !== undefined && set.fits(opened)))
    }
  }

  /** Throws RollbackError unless `value` is the last written state of the path. */
  check(path: string, value: Uint8Array | undefined): void {
    try {
      this.#set?.check(path, value)
    } catch (error) {
      if (error instanceof RollbackError) this.#report(error)
      throw error
    }
  }

  /** Throws EntrySetMismatch once entries are known to be missing. */
  checkListing(): void {
    if (this.#missing > 0) throw new EntrySetMismatch()
  }

  #report(error: RollbackError): void {
    this.#changed++
    this.onFound(error)
  }

  /** Stores the shards for the next start and drops the set. For an orderly seal. */
  close(key: TermKey): void {
    if (this.#set) this.#shards.writeAll(this.#set, key)
    this.drop()
  }

  /** Drops the set without storing it. */
  drop(): void {
    this.#scan?.stop()
    this.#scan = undefined
    clearTimeout(this.#nextScan)
    this.#set?.close()
    this.#set = undefined
    this.#changed = this.#missing = this.#suspectedMissing = 0
    this.#isChecked = false
  }

  #runScan(): void {
    if (this.#set) this.#scan = new EntryScan(this.#store, this.#set, (result) => this.#finishScan(result))
  }

  #finishScan({ changed, missing }: EntryScanResult): void {
    for (const error of changed) this.#report(error)
    // Listings will fail: requires the same result of a second scan.
    if (missing > 0 && this.#suspectedMissing === 0) {
      this.#suspectedMissing = missing
      return this.#runScan()
    }
    this.#suspectedMissing = 0
    this.#missing = missing
    this.#isChecked = true
    if (missing > 0) this.onFound(new EntrySetMismatch())
    this.#nextScan = setTimeout(() => this.#runScan(), SCAN_INTERVAL_MS)
    this.#nextScan.unref()
  }
}

function hasHead({ puts }: Batch): boolean {
  return puts.some(({ path }) => path === HEAD_PATH)
}

function changesSet({ deletes, puts }: Batch): boolean {
  return puts.some(({ path }) => isBound(path)) || deletes.some(isBound)
}

function setKeyOf({ setKey }: Keyring): Buffer {
  if (!setKey) throw new Error('the keyring has no key for the entry set')
  return setKey
}

function withHead({ deletes, puts }: Batch, set: EntrySet): Batch {
  return { puts: [...puts, { path: HEAD_PATH, value: set.sealHead() }], deletes }
}
