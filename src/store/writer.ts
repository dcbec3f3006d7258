/**
 * The one who writes. It takes all batches that wait, puts them into one transaction, each with its own row of the log,
 * and commits once: one sync of the disk for all of them. It runs in a thread of its own (`writer-thread.ts`), so that
 * nobody else ever waits for the disk.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { type Batch, decodeBatch, HEAD_PATH, isLocal, type Put } from './batch.ts'
import { entryCrc } from './entry-crc.ts'
import { writeFact } from './facts.ts'
import { isPast, LOG_LIMITS, type LogLimits, ROW_BYTES } from './log-limits.ts'
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
} from './log-row.ts'

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
  /** The newest generation in which something failed. */
  #ended = -1
  /** The newest head of the transaction: those before it need not be written. */
  #head: (Put & { readonly sequence: number }) | undefined

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
    this.#remove = database.prepare('DELETE FROM entries WHERE path = ?')
    this.#append = database.prepare('INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)')
    this.#oldest = database.prepare('SELECT sequence, epoch, at, total, checksum FROM log ORDER BY sequence LIMIT ?')
    this.#trim = database.prepare('DELETE FROM log WHERE sequence <= ?')
    this.#position = positionIn(database)
    this.#base = baseIn(database)
    this.#total = totalIn(database)
    this.#epoch = epochIn(database)
  }

  get position(): Position {
    return this.#position
  }

  get epoch(): number {
    return this.#epoch
  }

  /**
   * Writes all of them or, when it throws, none; those that are fenced or dropped aside. It is tried again as long as
   * `isWorthAnother` says so of what went wrong.
   */
  write(requests: readonly WriteRequest[], isWorthAnother: (error: unknown) => boolean = () => false): WriteResult[] {
    try {
      return this.#inTransaction(() => {
        this.#head = undefined
        const results = requests.map((request) => this.#apply(request))
        this.#writeHead()
        // In the same transaction: the pages that become free are taken by the next rows, and it costs no sync.
        if (this.#total - this.#base.total > this.#limits.bytesMax) this.#trimRows(requests.length + TRIMMED_BESIDE)
        return results
      })
    } catch (error) {
      if (isWorthAnother(error)) return this.write(requests, isWorthAnother)
      for (const { generation } of requests) this.#ended = Math.max(this.#ended, generation)
      throw error
    }
  }

  #apply({ batch, epoch, generation }: WriteRequest): WriteResult {
    if (generation <= this.#ended) return { kind: 'dropped' }
    if (epoch !== this.#epoch) {
      this.#ended = generation
      return { kind: 'fenced', epoch: this.#epoch }
    }
    const changes = decodeBatch(batch)
    if (isLocal(changes)) {
      this.#change(changes, this.#position.sequence)
      return { kind: 'written', sequence: this.#position.sequence }
    }
    const sequence = this.#position.sequence + 1
    this.#change(changes, sequence)
    const row = { sequence, epoch, atMs: this.#now(), batch }
    this.#log({ ...row, checksum: checksumOf(row, this.#position.checksum) })
    return { kind: 'written', sequence }
  }

  #change({ puts, deletes }: Batch, sequence: number): void {
    for (const put of puts) {
      if (put.path === HEAD_PATH) this.#head = { ...put, sequence }
      else this.#write(put, sequence)
    }
    for (const path of deletes) this.#remove.run(path)
  }

  #writeHead(): void {
    if (this.#head) this.#write(this.#head, this.#head.sequence)
  }

  #write({ path, value }: Put, sequence: number): void {
    this.#put.run(path, sequence, entryCrc(path, sequence, value), value)
  }

  #log(row: LogRow): void {
    this.#total += row.batch.length + ROW_BYTES
    this.#append.run(row.sequence, row.epoch, row.atMs, this.#total, row.checksum, row.batch)
    this.#position = { sequence: row.sequence, epoch: row.epoch, checksum: row.checksum }
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
    this.#trim.run(newest.sequence)
    writeBase(this.#database, newest)
    this.#base = newest
    return isMore
  }

  /** The newest of the oldest rows that are past, at most `limit` of them, and whether there may be more. */
  #past(limit: number): { newest: Base | undefined; isMore: boolean } {
    const end = { sequence: this.#position.sequence, total: this.#total, acknowledged: this.#acknowledged }
    const nowMs = this.#now()
    let newest: Base | undefined
    for (const row of this.#oldest.iterate(limit)) {
      const [sequence, epoch, total] = [Number(row['sequence']), Number(row['epoch']), Number(row['total'])]
      const { checksum } = row
      if (!(checksum instanceof Uint8Array)) throw new Error('the log is damaged')
      const isNeeded = !isPast({ sequence, atMs: Number(row['at']), total }, end, this.#limits, nowMs)
      if (isNeeded) return { newest, isMore: false }
      if (newest && total - this.#base.total > TRIMMED_BYTES) break
      newest = { sequence, epoch, checksum, total }
    }
    return { newest, isMore: newest !== undefined }
  }

  #inTransaction<T>(work: () => T): T {
    this.#watch.beforeCommit()
    const before = { position: this.#position, total: this.#total, base: this.#base, epoch: this.#epoch }
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
      // A failed commit may have ended the transaction by itself.
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK')
      throw error
    }
    this.#watch.afterCommit()
    return result
  }
}
