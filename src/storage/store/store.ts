/**
 * The store room: SQLite databases of this process, and the only code that opens them. There are two, which know nothing of
 * each other: the roster's (`roster-store.ts`), which may lose its last second, and this one, which may not.
 *
 * The store of secrets: entries of bytes under paths, and the log of every change to them, in one SQLite database.
 *
 * Promises. A commit that was answered is on the disk, whole, together with its row of the log; one that was refused or
 * failed has changed nothing. Commits are ordered; a read that begins after a commit was answered sees it. Reads never
 * wait for writes, and nobody in this thread waits for the disk: a writer in a thread of its own (`writer.ts`) takes
 * whatever has arrived into one transaction with one sync. Each row of the log carries a checksum chained to the row
 * before (`log-row.ts`). A commit of another epoch than the store's is refused: a primary that was deposed writes nothing.
 *
 * For replication the store has a role, which says who writes to it, and takes rows of another's log and copies
 * (`replica.ts`): what is said above holds for those, too. The tree of hashes that tells what differs is kept where it is wanted
 * (`tree-keeper.ts`), in the transactions of the entries. Where a primary waits for secondaries, a commit is answered once it is
 * durable here and they have it (`acknowledgement`).
 *
 * Assumes that values are ciphertext (it cannot tell), that the disk does what `fsync` says, and that nobody else
 * writes to the file: a second process that tries to open it is refused (`database-lock.ts`).
 *
 * What can go wrong. A full disk: the commit is refused (`StoreError` `full`), and with it those that were queued behind
 * it, as they were decided upon what it would have written (`writer-queue.ts`); what frees space or writes entries anew
 * goes on upon a reserve (`reserve.ts`), and all commits work again when there is space. Files that are moved, replaced or
 * cut while they are open: all commits are refused (`displaced`, see `file-guard.ts`). A disk that fails: `failed`, the same. A database that is damaged is found by `check.ts` and named,
 * never served as if it were whole. A killed process: what was not answered may or may not be there, never in part.
 */
import { statSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { Fault, messageOf, Refusal } from '../../platform/errors.ts'
import { type Batch, isLocal, LOCAL_PREFIX } from '../sqlite/batch.ts'
import { openForReading } from '../sqlite/database.ts'
import { type Entry, EntryCache } from '../sqlite/entry-cache.ts'
import { EntryReader, type PageOptions } from '../sqlite/entry-reader.ts'
import { type FileFault, WalLength } from '../sqlite/file-guard.ts'
import { factIn } from '../sqlite/facts.ts'
import type { LogLimits } from '../sqlite/log-limits.ts'
import { type History, LogReader } from './log-reader.ts'
import { epochIn, type LogRow, type Position } from '../sqlite/log-row.ts'
import type { Received } from './snapshot-apply.ts'
import { ReadSnapshot } from '../sqlite/read-snapshot.ts'
import { isWholeIn, type ReplicaState, roleIn } from './replica-facts.ts'
import type { ReplicaOrder } from './replica-writer.ts'
import type { CopiedEntry, EntriesAt, ReplicaStore, RowLimits, StoreRole } from './replica.ts'
import { readSeen } from '../sqlite/seen-mark.ts'
import { StoreError } from '../sqlite/store-error.ts'
import { StoreTree } from './store-tree.ts'
import { WriterQueue } from './writer-queue.ts'

export type { Entry } from '../sqlite/entry-cache.ts'
export type { PageOptions } from '../sqlite/entry-reader.ts'
export type { FileFault } from '../sqlite/file-guard.ts'
export type { History } from './log-reader.ts'
export { StoreError, type StoreErrorKind } from '../sqlite/store-error.ts'

/** What everything above needs of a store. */
export interface Store {
  /** The durable entry: what may be told to a caller. */
  get(path: string): Entry | undefined
  /**
   * The value once everything that is queued has become durable: what a decision about a write is made upon. Should
   * something queued fail, the batches behind it fail too, so nothing is ever built upon what did not come to be.
   */
  pending(path: string): Pick<Entry, 'value'> | undefined
  /**
   * Names directly below `prefix` (which ends in `/`, or is empty for the root), in byte order, folders with a trailing
   * `/`; those behind `after`, at most `limit`.
   */
  list(prefix: string, options?: PageOptions): string[]
  /** Whole paths anywhere below `prefix`, in byte order; those behind the path `after`, at most `limit`. */
  paths(prefix: string, options?: PageOptions): string[]
  /**
   * Of the entries behind the path `after`, in byte order of their paths, at most `limit`: the last bytes of each value,
   * 16 where it has so many. Nothing of it is remembered.
   */
  tails?(after: string, limit: number): { readonly path: string; readonly tail: Uint8Array }[]
  /**
   * Queues the batch before it returns, behind all others; resolves with its sequence once it is durable. Rejects with a
   * StoreError; then nothing has changed, and nothing that was queued behind it will. Throws at once what can not be
   * queued (MalformedBatch, BatchTooLarge, StoreError `busy` and `closed`): then nothing else is touched by it.
   */
  commit(batch: Batch): Promise<number>
  /** Batches that are queued, in order; the first ones may be durable, when their authors were not told yet. */
  queued?(): readonly Batch[]
  /** What was committed behind a sequence, in order, from at most `limit` rows of the log; absent where there is no log. */
  history?(after: number, limit: number): History
  /**
   * Calls back whenever commits have failed and what was pending is gone: before any of them is told, so that memory
   * which ran ahead of the disk can be dropped in time. Must not throw. Returns what ends it.
   */
  onFailure(listener: () => void): () => void
}

export interface StoreOptions {
  readonly log?: LogLimits
}

export class SqliteStore implements Store, ReplicaStore {
  readonly path: string
  readonly tree: StoreTree
  readonly #reader: DatabaseSync
  readonly #queue: WriterQueue
  readonly #walLength: WalLength
  readonly #entries: EntryReader
  readonly #log: LogReader
  readonly #cache = new EntryCache()
  readonly #snapshot: ReadSnapshot
  readonly #appended = new Set<(newest: number) => void>()
  #acknowledgement: ((sequence: number) => Promise<void> | undefined) | undefined
  #epoch: number
  #isWhole: boolean
  #seenGeneration: string | undefined
  #hasRoleCode: boolean
  #closed = false

  /** Opens the database, or makes it. Rejects with a Fault for the operator. */
  static async open(path: string, { log }: StoreOptions = {}): Promise<SqliteStore> {
    const walLength = new WalLength()
    const queue = await WriterQueue.start({ path, ...(log && { log }), walLength: walLength.shared })
    try {
      return new SqliteStore(path, queue, walLength)
    } catch (error) {
      // Its thread would keep the process from ending.
      await queue.close(() => undefined)
      throw error
    }
  }

  private constructor(path: string, queue: WriterQueue, walLength: WalLength) {
    this.path = path
    this.#walLength = walLength
    this.#queue = queue
    this.#reader = openForReading(path)
    this.#snapshot = new ReadSnapshot(this.#reader)
    this.#entries = new EntryReader(this.#reader)
    this.#log = new LogReader(this.#reader)
    const ask = queue.askTree.bind(queue)
    this.tree = new StoreTree({
      path,
      reader: this.#reader,
      read: (read) => this.#read(read),
      ask,
      newest: () => queue.newest,
    })
    this.#epoch = epochIn(this.#reader)
    this.#isWhole = isWholeIn(this.#reader)
    const seen = readSeen(`${path}.seen`)
    this.#seenGeneration = seen?.generation
    this.#hasRoleCode = seen?.hasRoleCode ?? false
    queue.role = roleIn(this.#reader)
    queue.newest = this.position().sequence
    queue.onAppended = (newest) => {
      for (const listener of this.#appended) listener(newest)
    }
    // Whoever is told reads what was told.
    queue.onReport = () => this.#snapshot.end()
    queue.onWritten = (batch, sequence) => this.#cache.written(batch, sequence)
    queue.onFailure(() => this.#cache.forget())
    queue.sizeOf = (name) => this.pending(name)?.value.length
  }

  get(path: string): Entry | undefined {
    // What is queued for it may be in the database already, and nobody was told: then others that go with it are, too.
    if (this.#queue.queued(path)) return this.#cache.known(path, this.#entry(path))
    return this.#cache.get(path, () => this.#entry(path))
  }

  #entry(path: string): Entry | undefined {
    const found = this.#read(() => this.#entries.get(path))
    if (found === 'damaged') {
      this.#refuseWhenCut()
      throw new Fault(`the entry ${path} is damaged in ${this.path}`)
    }
    return found
  }

  pending(path: string): Pick<Entry, 'value'> | undefined {
    const queued = this.#queue.queued(path)
    if (!queued) return this.get(path)
    return queued.value && { value: queued.value }
  }

  list(prefix: string, options: PageOptions = {}): string[] {
    return this.#read(() => this.#entries.list(prefix, options))
  }

  paths(prefix: string, options: PageOptions = {}): string[] {
    return this.#read(() => this.#entries.paths(prefix, options))
  }

  tails(after: string, limit: number): { path: string; tail: Uint8Array }[] {
    return this.#read(() => this.#entries.tails(after, limit))
  }

  commit(batch: Batch): Promise<number> {
    return this.#queue.write(batch, this.#epoch).then((outcome) => {
      if ('sequence' in outcome) return this.#acknowledged(batch, outcome.sequence)
      throw new StoreError('failed', 'the writer gave no result')
    })
  }

  #acknowledged(batch: Batch, sequence: number): number | Promise<number> {
    const waited = this.#acknowledgement && !isLocal(batch) ? this.#acknowledgement(sequence) : undefined
    return waited ? waited.then(() => sequence) : sequence
  }

  set acknowledgement(wait: ((sequence: number) => Promise<void> | undefined) | undefined) {
    this.#acknowledgement = wait
  }

  queued(): readonly Batch[] {
    return this.#queue.queuedBatches
  }

  onFailure(listener: () => void): () => void {
    return this.#queue.onFailure(listener)
  }

  /** The epoch in which this process commits. */
  get epoch(): number {
    return this.#epoch
  }

  /** Goes over to a higher epoch; commits that were under way in the old one are refused. */
  async raiseEpoch(epoch: number): Promise<void> {
    await this.#queue.order({ kind: 'raise epoch', epoch })
    this.#epoch = Math.max(this.#epoch, epoch)
  }

  position(): Position {
    return this.#log.position()
  }

  rowsAfter(sequence: number, limits: RowLimits): LogRow[] {
    return this.#read(() => this.#log.rowsAfter(sequence, limits))
  }

  holds(position: Position): boolean {
    return this.#read(() => this.#log.holds(position))
  }

  history(after: number, limit: number): History {
    // One read transaction: a trim between two of these reads would look like a history without gaps.
    return this.#read(() => {
      const [oldest, newest] = [this.#log.base().sequence, this.#log.position().sequence]
      return { epoch: this.#epoch, oldest, newest, rows: this.#log.batchesAfter(after, limit) }
    })
  }

  /** What the oldest row of the log that is left follows upon: whoever stands there can be served from it. */
  base(): Position {
    return this.#log.base()
  }

  onAppended(listener: (newest: number) => void): () => void {
    this.#appended.add(listener)
    return () => this.#appended.delete(listener)
  }

  get role(): StoreRole {
    return this.#queue.role
  }

  get isWhole(): boolean {
    return this.#isWhole
  }

  async setRole(role: StoreRole, epoch?: number): Promise<void> {
    const before = this.#queue.role
    // From this moment on, and what was queued before is written: nothing is refused that was taken already.
    if (role !== 'own') this.#queue.role = role
    try {
      const now = await this.#replicate({ do: 'set role', role, epoch })
      this.#queue.role = now.role
    } catch (error) {
      this.#queue.role = before
      throw error
    }
  }

  async applyRows(rows: readonly LogRow[]): Promise<Position> {
    return (await this.#replicate({ do: 'apply', rows })).position
  }

  async beginCopy(from: Position, clusterId?: string): Promise<void> {
    await this.#replicate({ do: 'begin copy', from, clusterId })
  }

  async copyEntries(puts: readonly CopiedEntry[], deletes: readonly string[]): Promise<void> {
    await this.#replicate({ do: 'copy', puts, deletes })
  }

  async repairEntries(puts: readonly CopiedEntry[], deletes: readonly string[], asOf: number): Promise<void> {
    await this.#replicate({ do: 'repair', puts, deletes, asOf })
  }

  async finishCopy(): Promise<void> {
    await this.#replicate({ do: 'finish copy' })
  }

  async wipe(): Promise<void> {
    await this.#replicate({ do: 'wipe' })
  }

  async #replicate(order: ReplicaOrder): Promise<ReplicaState> {
    return this.#queue.replicate(order, ({ epoch, isWhole }) => {
      this.#epoch = epoch
      this.#isWhole = isWhole
      this.tree.changed()
      if (order.do === 'wipe') {
        this.#seenGeneration = undefined
        this.#hasRoleCode = false
      }
      // Entries have changed that no commit of this process has named.
      if (order.do !== 'set role' && order.do !== 'finish copy') this.#cache.forget()
    })
  }

  entriesAt(paths: readonly string[]): EntriesAt {
    const entries: CopiedEntry[] = []
    const [missing, damaged]: [string[], string[]] = [[], []]
    const { sequence } = this.#read(() => this.#log.position())
    for (const path of paths) {
      // What belongs to this machine is copied to no other.
      const found = path.startsWith(LOCAL_PREFIX) ? undefined : this.#read(() => this.#entries.get(path))
      if (found === undefined) missing.push(path)
      else if (found === 'damaged') damaged.push(path)
      else entries.push({ path, ...found })
    }
    return { sequence, entries, missing, damaged }
  }

  /** Commits since the start: those that became durable, and those that failed for whatever reason. */
  get commitCounts(): { readonly done: number; readonly failed: number } {
    return this.#queue.counts
  }

  /** What is wrong with the files of the database, as it was seen last; commits are refused meanwhile. */
  get fault(): FileFault | undefined {
    return this.#queue.fault
  }

  /** Calls back when something else is wrong with the files than before, or nothing any more. */
  /** Called when the disk of the database becomes full, and when it has space again. */
  set onSpace(call: (isFull: boolean) => void) {
    this.#queue.onSpace = call
  }

  set onFault(tell: (fault: FileFault | undefined) => void) {
    this.#queue.onFault = tell
  }

  /** Calls back after each transaction that was attempted, with what it took in milliseconds, its sync included. */
  set onTransaction(tell: (ms: number) => void) {
    this.#queue.onTransaction = tell
  }

  /** Bytes of the database's files: the database and its write-ahead log. Throws what stat(2) says. */
  get fileBytes(): number {
    const walBytes = statSync(`${this.path}-wal`, { throwIfNoEntry: false })?.size ?? 0
    return statSync(this.path).size + walBytes
  }

  /** Of the log that is left, about. */
  get logBytes(): number {
    return this.#log.bytes
  }

  /** Has the file `.seen` say how far the database has come, as each commit does (`seen-mark.ts`). */
  async markSeen(): Promise<void> {
    try {
      await this.#queue.order({ kind: 'seen' })
    } catch {
      // The store is closed, or its disk fails: whoever commits is told.
    }
  }

  /** The generation that the file `.seen` held at the start, or was given since (`seen-mark.ts`). */
  get seenGeneration(): string | undefined {
    return this.#seenGeneration
  }

  /** Resolves once it is on the disk. Rejects with a StoreError; then none counts in this process. */
  async setSeenGeneration(generation: string | undefined): Promise<void> {
    this.#seenGeneration = undefined
    await this.#queue.order({ kind: 'generation', generation })
    this.#seenGeneration = generation
  }

  get hasRoleCode(): boolean {
    return this.#hasRoleCode
  }

  async setRoleCode(): Promise<void> {
    await this.#queue.order({ kind: 'role code' })
    this.#hasRoleCode = true
  }

  /** How far the slowest secondary has come: what it lacks stays in the log, up to the cap. Undefined without secondaries. */
  async keepLogBehind(acknowledged: number | undefined): Promise<void> {
    await this.#queue.order({ kind: 'acknowledged', sequence: acknowledged })
  }

  /** Of the cluster that the entries belong to: made with the database, taken over by a restore. */
  get clusterId(): string {
    return String(factIn(this.#reader, 'cluster'))
  }

  /** True before the first commit. */
  get isEmpty(): boolean {
    return this.position().sequence === 0 && this.paths('', { limit: 1 }).length === 0
  }

  /**
   * What `restoreSnapshot` ends with: the entries in the file take the place of all there is. `onReplaced` is called with
   * the first moment in which they are there.
   */
  async restore(fd: number, received: Received, onReplaced?: () => void): Promise<void> {
    if (this.role !== 'own')
      throw new Refusal('invalid_request', 'this store is no primary: restore the snapshot there')
    const outcome = await this.#queue.orderAlone({ kind: 'restore', fd, ...received }, () => {
      this.#epoch = epochIn(this.#reader)
      this.#isWhole = true
      this.#queue.newest = this.position().sequence
      this.tree.changed()
      onReplaced?.()
    })
    if ('refusal' in outcome) throw new Refusal('invalid_request', outcome.refusal)
    if (this.tree.isEnabled) void this.tree.enable().catch(() => undefined)
  }

  /** Waits for what is under way, then closes. */
  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    await this.tree.close()
    await this.#queue.close(() => {
      this.#snapshot.end()
      this.#reader.close()
    })
  }

  /** Throws a StoreError for what cannot be read where the write-ahead log was cut, also before the writer has seen that. */
  #refuseWhenCut(): void {
    const fault = this.#queue.fault?.isCut ? this.#queue.fault : this.#walLength.lookForCut(this.path)
    if (fault) throw new StoreError('displaced', fault.text)
  }

  /** SQLite does not say of which file it speaks. */
  #read<T>(read: () => T): T {
    try {
      this.#snapshot.begin()
      return read()
    } catch (error) {
      this.#refuseWhenCut()
      throw new Fault(`the database ${this.path} cannot be read: ${messageOf(error)}`, { cause: error })
    }
  }
}
