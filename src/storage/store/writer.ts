/**
 * The one who writes. It takes all batches that wait, puts them into one transaction, each with its own row of the log,
 * and commits once: one sync of the disk for all of them. It runs in a thread of its own (`store-thread.ts`), so that
 * nobody else ever waits for the disk.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { type Batch, decodeBatch, HEAD_PATH, isLocal, type Put } from '../sqlite/batch.ts'
import { entryCrc } from '../sqlite/entry-crc.ts'
import { writeFact } from '../sqlite/facts.ts'
import { isPast, LOG_LIMITS, type LogLimits, ROW_BYTES } from '../sqlite/log-limits.ts'
import { roleIn } from './replica-facts.ts'
import type { TreeKeeper } from '../merkle/tree-keeper.ts'
import type { StoreRole } from './replica.ts'
import {
  type Base,
  baseIn,
  checksumOf,
  epochIn,
  type LogRow,
  type Position,
  positionIn,
  totalIn,
  writeBase,
} from '../sqlite/log-row.ts'

export interface WriteRequest {
  readonly batch: Uint8Array
  /** The epoch that its author believes in; another one than the store's is refused. */
  readonly epoch: number
  /** In which it was made, see `writer-queue.ts`. */
  readonly generation: number
}

export type WriteResult =
  | { readonly kind: 'written'; readonly sequence: number }
  | { readonly kind: 'fenced'; readonly epoch: number }
  | { readonly kind: 'replica' }
  /** Made in a generation of which a batch before this one failed. */
  | { readonly kind: 'dropped' }

/** Asked around each transaction; what it throws is thrown. */
export interface Watch {
  /** Throws when nothing may be written. */
  beforeCommit(): void
  /** Throws when what was written must not be answered with success. */
  afterCommit(): void
}

const NO_WATCH: Watch = { beforeCommit: () => undefined, afterCommit: () => undefined }

/** Of the log, that one transaction removes when all of it goes. */
const EMPTIED_ROWS = 16_384
const EMPTIED_BYTES = 16 << 20
/** Rows that one commit removes from the log beyond as many as it adds. */
const TRIMMED_BESIDE = 8
/** Rows and bytes that one step of trimming removes: what holds up the next commit. */
const TRIMMED_AT_ONCE = 256
const TRIMMED_BYTES = 2 << 20

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
  readonly #watch: Watch
  #position: Position
  /** Bytes of all rows of the log ever. */
  #total: number
  #base: Base
  #acknowledged: number | undefined
  #epoch: number
  #role: StoreRole
  /** The newest generation in which something failed. */
  #ended = -1
  /** The newest head of the transaction: those before it need not be written. */
  #head: (Put & { readonly sequence: number }) | undefined
  /** Of the tree of hashes, where one is kept. */
  keeper: TreeKeeper | undefined

  constructor(
    database: DatabaseSync,
    limits: LogLimits = LOG_LIMITS,
    now: () => number = Date.now,
    watch: Watch = NO_WATCH,
  ) {
    this.#database = database
    this.#limits = limits
    this.#now = now
    this.#watch = watch
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

  get position(): Position {
    return this.#position
  }

  get epoch(): number {
    return this.#epoch
  }

  get base(): Base {
    return this.#base
  }

  get role(): StoreRole {
    return this.#role
  }

  /**
   * Writes all of them or, when it throws, none; those that are fenced or dropped aside. It is tried again as long as
   * `isWorthAnother` says so of what went wrong.
   */
  write(requests: readonly WriteRequest[], isWorthAnother: (error: unknown) => boolean = () => false): WriteResult[] {
    try {
      return this.transact(requests.length, () => requests.map((request) => this.#apply(request)))
    } catch (error) {
      if (isWorthAnother(error)) return this.write(requests, isWorthAnother)
      for (const { generation } of requests) this.#ended = Math.max(this.#ended, generation)
      throw error
    }
  }

  /** One transaction of changes: all of what `work` does, or nothing. `rows`: about how many it adds to the log. */
  transact<T>(rows: number, work: () => T): T {
    return this.#inTransaction(() => {
      this.#head = undefined
      const result = work()
      this.#writeHead()
      this.keeper?.beforeCommit()
      // In the same transaction: the pages that become free are taken by the next rows, and it costs no sync.
      if (this.#total - this.#base.total > this.#limits.bytesMax) this.#trimRows(rows + TRIMMED_BESIDE)
      return result
    })
  }

  #apply({ batch, epoch, generation }: WriteRequest): WriteResult {
    if (generation <= this.#ended) return { kind: 'dropped' }
    const changes = decodeBatch(batch)
    if (isLocal(changes)) {
      this.change(changes, this.#position.sequence)
      return { kind: 'written', sequence: this.#position.sequence }
    }
    if (epoch !== this.#epoch || this.#role !== 'own') {
      this.#ended = generation
      return this.#role === 'replica' ? { kind: 'replica' } : { kind: 'fenced', epoch: this.#epoch }
    }
    const sequence = this.#position.sequence + 1
    this.change(changes, sequence)
    const row = { sequence, epoch, atMs: this.#now(), batch }
    this.append({ ...row, checksum: checksumOf(row, this.#position.checksum) })
    return { kind: 'written', sequence }
  }

  /** What a batch does to the entries; within `transact`. */
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

  /** One entry; within `transact`. */
  put({ path, value }: Put, sequence: number): void {
    const crc = entryCrc(path, sequence, value)
    if (this.keeper && this.#putKept(this.keeper, path, { sequence, crc, value })) return
    this.#put.run(path, sequence, crc, value)
  }

  /** True where there was none: most entries that are written are new, and need no look at what they replace. */
  #putKept(keeper: TreeKeeper, path: string, entry: { sequence: number; crc: number; value: Uint8Array }): boolean {
    const { sequence, crc, value } = entry
    const isNew = !keeper.knows(path) && this.#insert.run(path, sequence, crc, value).changes === 1
    keeper.put(path, entry, isNew)
    return isNew
  }

  remove(path: string): void {
    this.keeper?.remove(path)
    this.#remove.run(path)
  }

  /** A row of the log, which must be chained to the one before; within `transact`. */
  append(row: LogRow): void {
    this.#total += row.batch.length + ROW_BYTES
    this.#append.run(row.sequence, row.epoch, row.atMs, this.#total, row.checksum, row.batch)
    this.#position = { sequence: row.sequence, epoch: row.epoch, checksum: row.checksum }
    this.#epoch = Math.max(this.#epoch, row.epoch)
  }

  /** Empties the log, which goes on behind this position, in that epoch; within `transact`, `dropLog` before it. */
  standAt({ sequence, epoch, checksum }: Position, storeEpoch: number): void {
    this.#trim.run(this.#position.sequence)
    this.#position = { sequence, epoch, checksum }
    this.#total = 0
    this.#base = { sequence, epoch, checksum, total: 0 }
    writeBase(this.#database, this.#base)
    writeFact(this.#database, 'epoch', storeEpoch)
    this.#epoch = storeEpoch
  }

  /** Within `transact`. */
  setRole(role: StoreRole, epoch: number): void {
    writeFact(this.#database, 'role', role)
    writeFact(this.#database, 'epoch', epoch)
    this.#role = role
    this.#epoch = epoch
  }

  /** Removes all rows but the newest, in transactions that are not too large: the log of a primary may be long. */
  dropLog(): void {
    for (let isMore = true; isMore; ) isMore = this.#inTransaction(() => this.#dropRows())
  }

  #dropRows(): boolean {
    let last: Base | undefined
    for (const row of this.#oldest.iterate(EMPTIED_ROWS)) {
      const base = baseOf(row)
      if (base.sequence >= this.#position.sequence) break
      last = base
      if (base.total - this.#base.total > EMPTIED_BYTES) break
    }
    if (last) this.#trimTo(last)
    return last !== undefined
  }

  /** From now on only commits of this epoch count; it never falls. */
  raiseEpoch(epoch: number): void {
    if (epoch <= this.#epoch) return
    this.#inTransaction(() => {
      writeFact(this.#database, 'epoch', epoch)
      this.#epoch = epoch
    })
  }

  /** What the slowest secondary has acknowledged; undefined when there is none. */
  set acknowledged(sequence: number | undefined) {
    this.#acknowledged = sequence
  }

  /** Removes rows of the log that nobody needs any more, a bounded number. True when there may be more. */
  trim(): boolean {
    // Most often there is nothing to do, which must not cost a sync.
    if (!this.#past(1).newest) return false
    return this.#inTransaction(() => this.#trimRows(TRIMMED_AT_ONCE))
  }

  #trimRows(limit: number): boolean {
    const { newest, isMore } = this.#past(limit)
    if (!newest) return false
    this.#trimTo(newest)
    return isMore
  }

  #trimTo(newest: Base): void {
    this.#trim.run(newest.sequence)
    writeBase(this.#database, newest)
    this.#base = newest
  }

  /** The newest of the oldest rows that are past, at most `limit` of them, and whether there may be more. */
  #past(limit: number): { newest: Base | undefined; isMore: boolean } {
    const end = { sequence: this.#position.sequence, total: this.#total, acknowledged: this.#acknowledged }
    const nowMs = this.#now()
    let newest: Base | undefined
    for (const row of this.#oldest.iterate(limit)) {
      const base = baseOf(row)
      const isNeeded = !isPast({ ...base, atMs: Number(row['at']) }, end, this.#limits, nowMs)
      if (isNeeded) return { newest, isMore: false }
      if (newest && base.total - this.#base.total > TRIMMED_BYTES) break
      newest = base
    }
    return { newest, isMore: newest !== undefined }
  }

  #inTransaction<T>(work: () => T): T {
    this.#watch.beforeCommit()
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
      // A failed commit may have ended the transaction by itself.
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK')
      this.keeper?.afterRollback()
      throw error
    }
    this.keeper?.afterCommit()
    this.#watch.afterCommit()
    return result
  }
}

/** What follows upon a row that was removed. */
function baseOf(row: Record<string, unknown>): Base {
  const { checksum } = row
  if (!(checksum instanceof Uint8Array)) throw new Error('the log is damaged')
  return { sequence: Number(row['sequence']), epoch: Number(row['epoch']), checksum, total: Number(row['total']) }
}
