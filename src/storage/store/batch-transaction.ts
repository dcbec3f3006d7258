/**
 * Writes batches to the database: all batches that wait go into one transaction, each with its own row of the log, with one commit and one
 * sync of the disk. It runs in a worker thread (`store-worker.ts`), so no other thread waits for the disk.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { TreeUpdater } from '../merkle/tree-updater.ts'
import { type Batch, decodeBatch, HEAD_PATH, isLocal, type Put, REPLICATION_PREFIX, scopeOf } from '../sqlite/batch.ts'
import {
  type LogBase,
  baseIn,
  checksumOf,
  entryCrc,
  epochIn,
  isTrimmable,
  LOG_LIMITS,
  type LogLimits,
  type LogRow,
  type CommitPosition,
  positionIn,
  ROW_BYTES,
  totalIn,
  writeBase,
  writeFact,
} from '../sqlite/rows.ts'
import { leaveStream, type StreamMark, writeStreamMark } from './stream-mark.ts'
import { NotChained, roleIn, type StoreRole } from './replica.ts'

export interface WriteRequest {
  readonly batch: Uint8Array
  /** Epoch in which it was queued. Any other epoch than the store's is refused. */
  readonly epoch: number
  /** Generation in which it was queued, see `queue/writer-queue.ts`. */
  readonly generation: number
  /** The commit stream has the batch: it is committed, and must be applied. Batches with a row have this one. */
  readonly row?: { readonly sequence: number; readonly atMs: number }
}

export type WriteResult =
  | { readonly kind: 'written'; readonly sequence: number }
  | { readonly kind: 'fenced'; readonly epoch: number }
  | { readonly kind: 'replica' }
  /** An earlier batch of the same generation failed. */
  | { readonly kind: 'dropped' }

/** Called around each transaction. Its errors are passed on. */
export interface CommitGuard {
  /** Throws when writes are not allowed. */
  beforeCommit(): void
  /** Throws when the commit must not be reported as successful. */
  afterCommit(): void
}

const NO_GUARD: CommitGuard = { beforeCommit: () => undefined, afterCommit: () => undefined }

/** Limits of one transaction of `dropLog`. */
const DROPPED_ROWS_MAX = 16_384
const DROPPED_BYTES_MAX = 16 << 20
/** Rows that a commit trims beyond the number that it adds. */
const TRIMMED_EXTRA_ROWS = 8
/** Limits of one `trim`, which delays the next commit. */
const TRIMMED_ROWS_MAX = 256
const TRIMMED_BYTES_MAX = 2 << 20

export class Writer {
  readonly #database: DatabaseSync
  readonly #begin: StatementSync
  readonly #commit: StatementSync
  readonly #put: StatementSync
  readonly #insert: StatementSync
  readonly #remove: StatementSync
  readonly #append: StatementSync
  readonly #oldest: StatementSync
  readonly #trim: StatementSync
  readonly #limits: LogLimits
  readonly #now: () => number
  readonly #guard: CommitGuard
  #position: CommitPosition
  /** Bytes of all rows since the log began. */
  #total: number
  #base: LogBase
  #acknowledged: number | undefined
  #epoch: number
  #role: StoreRole
  /** The newest generation with a failed batch. */
  #failedGeneration = -1
  /** The newest head in the transaction; earlier heads are not written. */
  #head: (Put & { readonly sequence: number }) | undefined
  /** Maintains the Merkle tree; undefined while it is disabled. */
  treeUpdater: TreeUpdater | undefined

  constructor(
    database: DatabaseSync,
    limits: LogLimits = LOG_LIMITS,
    now: () => number = Date.now,
    guard: CommitGuard = NO_GUARD,
  ) {
    this.#database = database
    this.#limits = limits
    this.#now = now
    this.#guard = guard
    this.#begin = database.prepare('BEGIN IMMEDIATE')
    this.#commit = database.prepare('COMMIT')
    this.#put = database.prepare(
      `INSERT INTO entries (path, sequence, crc, value) VALUES (?1, ?2, ?3, ?4)
       ON CONFLICT (path) DO UPDATE SET sequence = ?2, crc = ?3, value = ?4`,
    )
    this.#insert = database.prepare('INSERT OR IGNORE INTO entries (path, sequence, crc, value) VALUES (?, ?, ?, ?)')
    this.#remove = database.prepare('DELETE FROM entries WHERE path = ?')
    this.#append = database.prepare('INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)')
    this.#oldest = database.prepare('SELECT sequence, epoch, at, total, checksum FROM log ORDER BY sequence LIMIT ?')
    this.#trim = database.prepare('DELETE FROM log WHERE sequence <= ?')
    this.#position = positionIn(database)
    this.#base = baseIn(database)
    this.#total = totalIn(database)
    this.#epoch = epochIn(database)
    this.#role = roleIn(database)
  }

  get position(): CommitPosition {
    return this.#position
  }

  get epoch(): number {
    return this.#epoch
  }

  get base(): LogBase {
    return this.#base
  }

  get role(): StoreRole {
    return this.#role
  }

  /**
   * Writes all requests except fenced and dropped ones, or none when it throws. Retries while `shouldRetry` returns true for the error.
   * `stream`: the position of the newest request that the commit stream has. Throws NotChained for a request of the stream that does not
   * follow the newest row.
   */
  write(
    requests: readonly WriteRequest[],
    {
      shouldRetry = () => false,
      stream,
    }: { shouldRetry?: (error: unknown) => boolean; stream?: StreamMark | undefined } = {},
  ): WriteResult[] {
    try {
      return this.transact(requests.length, () => {
        const results = requests.map((request) => this.#apply(request))
        if (stream) writeStreamMark(this.#database, { ...stream, row: this.#position.sequence })
        return results
      })
    } catch (error) {
      if (shouldRetry(error)) return this.write(requests, { shouldRetry, stream })
      for (const { generation } of requests) this.#failedGeneration = Math.max(this.#failedGeneration, generation)
      throw error
    }
  }

  /** Runs `work` in a transaction. `rows`: the approximate number of log rows that it adds. */
  transact<T>(rows: number, work: () => T): T {
    return this.#inTransaction(() => {
      this.#head = undefined
      const result = work()
      this.#writeHead()
      this.treeUpdater?.beforeCommit()
      // In the same transaction: the next rows reuse the freed pages, and it takes no further sync.
      if (this.#total - this.#base.total > this.#limits.bytesMax) this.#trimRows(rows + TRIMMED_EXTRA_ROWS)
      return result
    })
  }

  #apply(request: WriteRequest): WriteResult {
    const { batch, epoch, generation, row: committed } = request
    if (committed) return this.#applyCommitted(request, committed)
    if (generation <= this.#failedGeneration) return { kind: 'dropped' }
    const changes = decodeBatch(batch)
    if (isLocal(changes)) {
      const [first = changes.deletes[0] ?? ''] = changes.puts.map(({ path }) => path)
      if (first.startsWith(REPLICATION_PREFIX)) leaveStream(this.#database)
      this.change(changes, this.#position.sequence)
      return { kind: 'written', sequence: this.#position.sequence }
    }
    if (epoch !== this.#epoch || this.#role !== 'own') {
      this.#failedGeneration = generation
      return this.#role === 'replica' ? { kind: 'replica' } : { kind: 'fenced', epoch: this.#epoch }
    }
    return this.#writeRow(changes, { sequence: this.#position.sequence + 1, epoch, atMs: this.#now(), batch })
  }

  #applyCommitted({ batch, epoch }: WriteRequest, { atMs, sequence }: NonNullable<WriteRequest['row']>): WriteResult {
    const { position } = this
    const changes = decodeBatch(batch)
    const scope = scopeOf(changes)
    if (scope === 'local') throw new NotChained('the commit stream has local paths')
    if (scope === 'shared') {
      this.change(changes, position.sequence)
      return { kind: 'written', sequence: position.sequence }
    }
    if (sequence !== position.sequence + 1 || epoch < position.epoch) {
      throw new NotChained(`row ${sequence} of the commit stream does not follow row ${position.sequence}`)
    }
    return this.#writeRow(changes, { sequence, epoch, atMs, batch })
  }

  #writeRow(changes: Batch, row: Omit<LogRow, 'checksum'>): WriteResult {
    this.change(changes, row.sequence)
    this.append({ ...row, checksum: checksumOf(row, this.#position.checksum) })
    return { kind: 'written', sequence: row.sequence }
  }

  /** Applies a batch to the entries. To be called within `transact`. */
  change({ puts, deletes }: Batch, sequence: number): void {
    for (const put of puts) {
      if (put.path === HEAD_PATH) this.#head = { ...put, sequence }
      else this.put(put, sequence)
    }
    for (const path of deletes) {
      if (path === HEAD_PATH) this.#head = undefined
      this.remove(path)
    }
  }

  #writeHead(): void {
    if (this.#head) this.put(this.#head, this.#head.sequence)
  }

  /** To be called within `transact`. */
  put({ path, value }: Put, sequence: number): void {
    const crc = entryCrc(path, sequence, value)
    if (this.treeUpdater && this.#putWithTree(this.treeUpdater, path, { sequence, crc, value })) return
    this.#put.run(path, sequence, crc, value)
  }

  /** Returns true after it inserted a new entry: most are new, so the old leaf need not be read. */
  #putWithTree(
    treeUpdater: TreeUpdater,
    path: string,
    entry: { sequence: number; crc: number; value: Uint8Array },
  ): boolean {
    const { sequence, crc, value } = entry
    const isNew = !treeUpdater.hasLeaf(path) && this.#insert.run(path, sequence, crc, value).changes === 1
    treeUpdater.put(path, entry, isNew)
    return isNew
  }

  remove(path: string): void {
    this.treeUpdater?.remove(path)
    this.#remove.run(path)
  }

  /** Appends a row, which must be chained to the newest one. To be called within `transact`. */
  append(row: LogRow): void {
    this.#total += row.batch.length + ROW_BYTES
    this.#append.run(row.sequence, row.epoch, row.atMs, this.#total, row.checksum, row.batch)
    this.#position = { sequence: row.sequence, epoch: row.epoch, checksum: row.checksum }
    this.#epoch = Math.max(this.#epoch, row.epoch)
  }

  /** Empties the log and sets its base. To be called within `transact`, after `dropLog`. */
  standAt({ sequence, epoch, checksum }: CommitPosition, storeEpoch: number): void {
    this.#trim.run(this.#position.sequence)
    this.#position = { sequence, epoch, checksum }
    this.#total = 0
    this.#base = { sequence, epoch, checksum, total: 0 }
    writeBase(this.#database, this.#base)
    writeFact(this.#database, 'epoch', storeEpoch)
    this.#epoch = storeEpoch
  }

  /** To be called within `transact`. */
  setRole(role: StoreRole, epoch: number): void {
    writeFact(this.#database, 'role', role)
    writeFact(this.#database, 'epoch', epoch)
    this.#role = role
    this.#epoch = epoch
  }

  /** Removes all rows but the newest, in transactions of a bounded size. */
  dropLog(): void {
    for (let isMore = true; isMore; ) isMore = this.#inTransaction(() => this.#dropRows())
  }

  #dropRows(): boolean {
    let last: LogBase | undefined
    for (const row of this.#oldest.iterate(DROPPED_ROWS_MAX)) {
      const base = baseOf(row)
      if (base.sequence >= this.#position.sequence) break
      last = base
      if (base.total - this.#base.total > DROPPED_BYTES_MAX) break
    }
    if (last) this.#trimTo(last)
    return last !== undefined
  }

  /** Accepts only commits of this epoch from now on. The epoch never decreases. */
  raiseEpoch(epoch: number): void {
    if (epoch <= this.#epoch) return
    this.#inTransaction(() => {
      writeFact(this.#database, 'epoch', epoch)
      this.#epoch = epoch
    })
  }

  /** Sequence that the slowest secondary has acknowledged; undefined without secondaries. */
  set acknowledged(sequence: number | undefined) {
    this.#acknowledged = sequence
  }

  /** Removes a bounded number of rows outside the retention limits. True when there may be more. */
  trim(): boolean {
    // Usually there is nothing to trim, which must not take a sync.
    if (!this.#trimmable(1).newest) return false
    return this.#inTransaction(() => this.#trimRows(TRIMMED_ROWS_MAX))
  }

  #trimRows(limit: number): boolean {
    const { newest, isMore } = this.#trimmable(limit)
    if (!newest) return false
    this.#trimTo(newest)
    return isMore
  }

  #trimTo(newest: LogBase): void {
    this.#trim.run(newest.sequence)
    writeBase(this.#database, newest)
    this.#base = newest
  }

  /** The newest of the trimmable rows, at most `limit` of them, and whether there may be more. */
  #trimmable(limit: number): { newest: LogBase | undefined; isMore: boolean } {
    const end = { sequence: this.#position.sequence, total: this.#total, acknowledged: this.#acknowledged }
    const nowMs = this.#now()
    let newest: LogBase | undefined
    for (const row of this.#oldest.iterate(limit)) {
      const base = baseOf(row)
      const isNeeded = !isTrimmable({ ...base, atMs: Number(row['at']) }, end, this.#limits, nowMs)
      if (isNeeded) return { newest, isMore: false }
      if (newest && base.total - this.#base.total > TRIMMED_BYTES_MAX) break
      newest = base
    }
    return { newest, isMore: newest !== undefined }
  }

  #inTransaction<T>(work: () => T): T {
    this.#guard.beforeCommit()
    const before = {
      position: this.#position,
      total: this.#total,
      base: this.#base,
      epoch: this.#epoch,
      role: this.#role,
    }
    this.#begin.run()
    let result: T
    try {
      result = work()
      this.#commit.run()
    } catch (error) {
      this.#position = before.position
      this.#total = before.total
      this.#base = before.base
      this.#epoch = before.epoch
      this.#role = before.role
      // SQLite may have rolled back after a failed commit.
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK')
      this.treeUpdater?.afterRollback()
      throw error
    }
    this.treeUpdater?.afterCommit()
    this.#guard.afterCommit()
    return result
  }
}

/** The base of the log once this row was trimmed. */
function baseOf(row: Record<string, unknown>): LogBase {
  const { checksum } = row
  if (!(checksum instanceof Uint8Array)) throw new Error('the log is damaged')
  return { sequence: Number(row['sequence']), epoch: Number(row['epoch']), checksum, total: Number(row['total']) }
}
