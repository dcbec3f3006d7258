/**
 * The module `storage`: the SQLite databases of this process, snapshots, the barrier and the seal. Only this module opens SQLite. There are
 * two databases: the roster's (`roster-store.ts`), which may lose its last second, and the secrets store, which may not.
 *
 * The secrets store has entries (bytes under a path) and the log of all changes to them, in one SQLite database.
 *
 * Promises. An acknowledged commit is durable and atomic, together with its row of the log. A refused or failed commit has changed
 * nothing. Commits are ordered, and a read that begins after an acknowledgement sees the commit. Reads never wait for writes, and the
 * main thread never waits for the disk: a writer in a worker thread (`batch-transaction.ts`) puts all waiting batches into one transaction with one
 * sync. Each row of the log has a checksum that is chained to the row before (`rows.ts`). A commit of another epoch than the store's is
 * refused, so a demoted primary writes nothing.
 *
 * For replication the store has a role, and applies rows and copies of another store's log (`replica.ts`) with the same guarantees.
 * While replication is enabled, the transactions of the entries also maintain a Merkle tree (`tree-updater.ts`). On a primary with
 * synchronous replication, a commit is acknowledged once it is durable here and the secondaries have it (`acknowledgement`).
 *
 * Assumes that values are ciphertext (the store cannot check it), that the disk honors `fsync`, and that no other process writes to the
 * file: a second process that opens it is refused (`database-files.ts`).
 *
 * What can go wrong. A full disk: the commit is refused (`StoreError` `full`), and with it the commits queued after it, which depend on
 * it (`queue/writer-queue.ts`). Commits that free space or rewrite entries use a reserve (`batch.ts`). All commits work again once there is
 * space. Files that are moved, replaced or truncated while open: all commits are refused (`displaced`, `file-guard.ts`). An error of the
 * disk: `failed`, likewise. A damaged entry is never returned; `check.ts` finds all damage. A killed process: an unacknowledged commit
 * is either complete or absent.
 */
import { statSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { Fault, messageOf, Refusal } from '../../platform/errors.ts'
import { type Batch, isLocal, LOCAL_PREFIX } from '../sqlite/batch.ts'
import { openForReading } from '../sqlite/database.ts'
import { type StoredEntry, EntryCache, EntryReader, type PageOptions, ReadSnapshot } from '../sqlite/entry-reader.ts'
import { type FileFault, WalLength } from '../sqlite/file-guard.ts'
import { epochIn, factIn, type LogLimits, type LogRow, type CommitPosition } from '../sqlite/rows.ts'
import { readSeenFile } from '../sqlite/seen-file.ts'
import { StoreError, type StoreErrorKind } from '../sqlite/store-error.ts'
import type { LoggedGroup } from './commit-log.ts'
import { type History, LogReader } from './log-reader.ts'
import type { MemberCopyOrder, ReplicaOrder } from './replica-writer.ts'
import {
  type ReplicaEntry,
  type EntriesAt,
  isWholeIn,
  type ReplicaState,
  type ReplicaStore,
  roleIn,
  type RowLimits,
  type StoreRole,
} from './replica.ts'
import type { ReceivedSnapshot } from './snapshot-entries.ts'
import type { Store } from './store-interface.ts'
import { StoreTree } from './store-tree.ts'
import { NOTHING_STAGED, stageSnapshot } from './staged-snapshot.ts'
import { StoreMember } from './member/store-member.ts'
import { WriterQueue } from './queue/writer-queue.ts'
import { decodedBatches } from './group-message.ts'

export type { StoredEntry } from '../sqlite/entry-reader.ts'
export type { PageOptions } from '../sqlite/entry-reader.ts'
export type { FileFault } from '../sqlite/file-guard.ts'
export type { History } from './log-reader.ts'
export type { Store } from './store-interface.ts'
export { StoreError, type StoreErrorKind } from '../sqlite/store-error.ts'

export interface StoreOptions {
  readonly log?: LogLimits
}

const RESTORE_AT_ACTIVE =
  'this server is not the active one of its cluster: restore the snapshot at the active one; a cluster without secrets is initialized and ' +
  'unsealed first, and then accepts the snapshot with force'

export class SqliteStore implements Store, ReplicaStore {
  readonly path: string
  readonly tree: StoreTree
  /** The store as a member of an HA cluster. */
  readonly member: StoreMember
  readonly #reader: DatabaseSync
  readonly #queue: WriterQueue
  #newestWrite: ReturnType<WriterQueue['write']> | undefined
  readonly #walLength: WalLength
  readonly #entries: EntryReader
  readonly #log: LogReader
  readonly #cache = new EntryCache()
  readonly #snapshot: ReadSnapshot
  readonly #appended = new Set<(newest: number) => void>()
  readonly #ordered = new Set<() => void>()
  #acknowledgement: ((sequence: number) => Promise<void> | undefined) | undefined
  #epoch: number
  #isWhole: boolean
  #visibleRow: number
  #seenGeneration: string | undefined
  #hasRoleCode: boolean
  /** Undefined until it is read, and after an order that may have changed it. */
  #clusterId: string | undefined
  #closed = false

  /** Opens or creates the database. Rejects with a Fault for the operator. */
  static async open(path: string, { log }: StoreOptions = {}): Promise<SqliteStore> {
    const walLength = new WalLength()
    const queue = await WriterQueue.start({ path, ...(log && { log }), walLength: walLength.shared })
    try {
      return new SqliteStore(path, queue, walLength)
    } catch (error) {
      // Its thread would keep the process running.
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
    const request = queue.requestTree.bind(queue)
    this.tree = new StoreTree({
      path,
      reader: this.#reader,
      read: (read) => this.#read(read),
      request,
      newest: () => queue.newest,
    })
    this.member = new StoreMember({
      reader: this.#reader,
      entries: this.#entries,
      log: this.#log,
      queue,
      read: (read) => this.#read(read),
      changed: (order, state) => this.#changed(order, state),
      applied: (state, groups) => this.#applied(state, groups),
    })
    this.#epoch = epochIn(this.#reader)
    this.#isWhole = isWholeIn(this.#reader)
    const seen = readSeenFile(`${path}.seen`)
    this.#seenGeneration = seen?.generation
    this.#hasRoleCode = seen?.hasRoleCode ?? false
    queue.role = roleIn(this.#reader)
    queue.newest = this.position().sequence
    queue.onAppended = (newest) => {
      for (const listener of this.#appended) listener(newest)
    }
    // A caller that gets a result must read the new state.
    queue.onReport = () => this.#snapshot.end()
    queue.onWritten = (batch, sequence) => {
      this.#cache.applyBatch(batch, sequence)
      this.#visibleRow = sequence
    }
    this.#visibleRow = queue.newest
    queue.onFailure(() => this.#cache.clear())
    queue.sizeOf = (name) => this.pending(name)?.value.length
  }

  get(path: string): StoredEntry | undefined {
    // A queued value, or one from the commit stream, may be durable already, together with the rest of its batch: read the database, not
    // the cache.
    if (this.member.isApplying || this.#queue.queued(path)) return this.#cache.canonical(path, this.#entry(path))
    return this.#cache.get(path, () => this.#entry(path))
  }

  #entry(path: string): StoredEntry | undefined {
    const found = this.#read(() => this.#entries.get(path))
    if (found === 'damaged') {
      this.#refuseWhenTruncated()
      throw new Fault(`the entry ${path} is damaged in ${this.path}`)
    }
    return found
  }

  pending(path: string): Pick<StoredEntry, 'value'> | undefined {
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
    this.#newestWrite = this.#queue.write(batch, this.#epoch)
    return this.#newestWrite.then((outcome) => {
      if ('sequence' in outcome) return this.#acknowledged(batch, outcome.sequence)
      throw new StoreError('failed', 'the writer returned no result')
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

  settled(): Promise<unknown> | undefined {
    // If a queued batch fails, all after it fail, so the newest one stands for all of them.
    return this.#queue.queuedBatches.length > 0 ? this.#newestWrite : undefined
  }

  onFailure(listener: () => void): () => void {
    return this.#queue.onFailure(listener)
  }

  /** The epoch in which this process commits. */
  get epoch(): number {
    return this.#epoch
  }

  /** Raises the epoch. Commits that were queued in the old one are refused. */
  async raiseEpoch(epoch: number): Promise<void> {
    await this.#queue.order({ kind: 'raise epoch', epoch })
    this.#epoch = Math.max(this.#epoch, epoch)
  }

  position(): CommitPosition {
    return this.#log.position()
  }

  /** Sequence of the newest row that reads include. The database may have later ones, which reads may include in part. */
  get visibleRow(): number {
    return this.#visibleRow
  }

  rowsAfter(sequence: number, limits: RowLimits): LogRow[] {
    return this.#read(() => this.#log.rowsAfter(sequence, limits))
  }

  holds(position: CommitPosition): boolean {
    return this.#read(() => this.#log.holds(position))
  }

  history(after: number, limit: number): History {
    // One read transaction: a trim between these reads would hide a gap.
    return this.#read(() => {
      const [oldest, newest] = [this.#log.base().sequence, this.#log.position().sequence]
      return { epoch: this.#epoch, oldest, newest, rows: this.#log.batchesAfter(after, limit) }
    })
  }

  base(): CommitPosition {
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
    // New commits are refused at once; queued ones are still written.
    if (role !== 'own') this.#queue.role = role
    try {
      const now = await this.#replicate({ do: 'set role', role, epoch })
      this.#queue.role = now.role
    } catch (error) {
      this.#queue.role = before
      throw error
    }
  }

  async applyRows(rows: readonly LogRow[]): Promise<CommitPosition> {
    return (await this.#replicate({ do: 'apply', rows })).position
  }

  async beginCopy(from: CommitPosition, clusterId?: string): Promise<void> {
    await this.#replicate({ do: 'begin copy', from, clusterId })
  }

  async copyEntries(puts: readonly ReplicaEntry[], deletes: readonly string[]): Promise<void> {
    await this.#replicate({ do: 'copy', puts, deletes })
  }

  async repairEntries(puts: readonly ReplicaEntry[], deletes: readonly string[], asOf: number): Promise<void> {
    await this.#replicate({ do: 'repair', puts, deletes, asOf })
  }

  async finishCopy(): Promise<void> {
    await this.#replicate({ do: 'finish copy' })
  }

  async wipe(): Promise<void> {
    await this.#replicate({ do: 'wipe' })
  }

  async #replicate(order: ReplicaOrder): Promise<ReplicaState> {
    return this.#queue.replicate({ kind: 'replica', order }, (state) => this.#changed(order, state))
  }

  /** An order was executed. */
  #changed(order: ReplicaOrder | MemberCopyOrder, { epoch, isJoining, isWhole, position }: ReplicaState): void {
    this.#visibleRow = position.sequence
    this.#epoch = epoch
    this.#isWhole = isWhole
    this.#clusterId = undefined
    this.member.isJoining = isJoining
    this.tree.changed()
    if (order.do === 'wipe') {
      this.#seenGeneration = undefined
      this.#hasRoleCode = false
    }
    // Entries have changed without a commit of this process.
    if (order.do !== 'set role' && order.do !== 'finish copy') this.#cache.clear()
    if (order.do === 'restore' && this.tree.isEnabled) void this.tree.enable().catch(() => undefined)
    if (order.do !== 'stage') for (const listener of this.#ordered) listener()
  }

  /** Groups of the commit stream were applied. */
  #applied({ epoch, position }: ReplicaState, groups: readonly LoggedGroup[]): void {
    this.#epoch = epoch
    this.#visibleRow = position.sequence
    this.tree.changed()
    if (this.#cache.isEmpty) return
    for (const batch of decodedBatches(groups)) this.#cache.remove(batch)
  }

  /** Calls the listener when an order has changed entries or the role. Returns a function that removes it. */
  onOrder(listener: () => void): () => void {
    this.#ordered.add(listener)
    return () => this.#ordered.delete(listener)
  }

  entriesAt(paths: readonly string[]): EntriesAt {
    const entries: ReplicaEntry[] = []
    const [missing, damaged]: [string[], string[]] = [[], []]
    const { sequence } = this.#read(() => this.#log.position())
    for (const path of paths) {
      // Local entries are never replicated.
      const found = path.startsWith(LOCAL_PREFIX) ? undefined : this.#read(() => this.#entries.get(path))
      if (found === undefined) missing.push(path)
      else if (found === 'damaged') damaged.push(path)
      else entries.push({ path, ...found })
    }
    return { sequence, entries, missing, damaged }
  }

  /** Commits since the start. `failed` has those that were refused or failed, by reason. */
  get commitCounts(): { readonly done: number; readonly failed: Readonly<Record<StoreErrorKind, number>> } {
    return this.#queue.counts
  }

  /** The current fault of the database files; commits are refused while there is one. */
  get fault(): FileFault | undefined {
    return this.#queue.fault
  }

  /** Called when the disk of the database becomes full, and when it has space again. */
  set onSpace(listener: (isFull: boolean) => void) {
    this.#queue.onSpace = listener
  }

  /** Called when the fault of the database files has changed; undefined when it has ended. */
  set onFault(listener: (fault: FileFault | undefined) => void) {
    this.#queue.onFault = listener
  }

  /** Called after each transaction with its duration, sync included, in milliseconds. */
  set onTransaction(listener: (ms: number) => void) {
    this.#queue.onTransaction = listener
  }

  /** Size of the database and its write-ahead log. Throws the error of stat(2). */
  get fileBytes(): number {
    const walBytes = statSync(`${this.path}-wal`, { throwIfNoEntry: false })?.size ?? 0
    return statSync(this.path).size + walBytes
  }

  /** Approximate size of the retained log. */
  get logBytes(): number {
    return this.#log.bytes
  }

  /** Writes the position of the database to the file `.seen`, as each commit does (`seen-file.ts`). */
  async markSeen(): Promise<void> {
    try {
      await this.#queue.order({ kind: 'seen' })
    } catch {
      // The store is closed, or its disk fails: commits report the error.
    }
  }

  /** The generation in the file `.seen` (`seen-file.ts`). */
  get seenGeneration(): string | undefined {
    return this.#seenGeneration
  }

  /** Resolves once it is durable. Rejects with a StoreError; then no generation is valid in this process. */
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

  async keepLogBehind(acknowledged: number | undefined): Promise<void> {
    await this.#queue.order({ kind: 'acknowledged', sequence: acknowledged })
  }

  /** ID of the cluster of these entries: created with the database, replaced by a restore. */
  get clusterId(): string {
    return (this.#clusterId ??= String(factIn(this.#reader, 'cluster')))
  }

  /** True before the first commit. */
  get isEmpty(): boolean {
    return this.position().sequence === 0 && this.paths('', { limit: 1 }).length === 0
  }

  /** The last step of `restoreSnapshot`: replaces all content by the entries in the file. Calls `onReplaced` once they are visible. */
  async restore(fd: number, received: ReceivedSnapshot, onReplaced?: () => void): Promise<void> {
    if (this.role !== 'own')
      throw new Refusal('invalid_request', 'this store is not a primary: restore the snapshot on the primary')
    const outcome = await this.#queue.orderRestore(await this.#restoreOrder(fd, received), () => {
      this.#epoch = epochIn(this.#reader)
      this.#isWhole = true
      this.#clusterId = undefined
      this.#queue.newest = this.position().sequence
      this.#cache.clear()
      this.tree.changed()
      onReplaced?.()
    })
    if ('refusal' in outcome) {
      if (this.#queue.commitLog) await this.#replicate(NOTHING_STAGED).catch(() => undefined)
      throw new Refusal('invalid_request', outcome.refusal)
    }
    if ('notChained' in outcome) throw new StoreError('failed', outcome.notChained)
    if (this.tree.isEnabled) void this.tree.enable().catch(() => undefined)
  }

  /** In an HA cluster the snapshot is first sent to all members. */
  async #restoreOrder(fd: number, received: ReceivedSnapshot) {
    const { commitLog } = this.#queue
    if (!commitLog) return { kind: 'restore', fd, ...received } as const
    if (commitLog.refusal) throw new Refusal('unavailable', RESTORE_AT_ACTIVE)
    await stageSnapshot(fd, received.meta.bytes, (order) => this.#replicate(order))
    return { kind: 'replica', order: { do: 'restore', received } } as const
  }

  /** Waits for queued orders, then closes. */
  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    await this.tree.close()
    await this.#queue.close(() => {
      this.#snapshot.end()
      this.#reader.close()
    })
  }

  /** Throws a StoreError when the write-ahead log is truncated, even before the writer has detected it. */
  #refuseWhenTruncated(): void {
    const fault = this.#queue.fault?.isTruncated ? this.#queue.fault : this.#walLength.findTruncation(this.path)
    if (fault) throw new StoreError('displaced', fault.text)
  }

  /** Adds the path of the database to errors of SQLite. */
  #read<T>(read: () => T): T {
    try {
      this.#snapshot.begin()
      return read()
    } catch (error) {
      this.#refuseWhenTruncated()
      throw new Fault(`the database ${this.path} cannot be read: ${messageOf(error)}`, { cause: error })
    }
  }
}
