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
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { Fault, messageOf, Refusal } from '../kit/errors.ts'
import { type Batch, decodeBatch } from './batch.ts'
import { openForReading } from './database.ts'
import { EntryCache } from './entry-cache.ts'
import { entryCrc } from './entry-crc.ts'
import type { FileFault } from './file-guard.ts'
import { factIn } from './facts.ts'
import type { LogLimits } from './log-limits.ts'
import { baseIn, epochIn, type LogRow, type Position, positionIn, totalIn } from './log-row.ts'
import type { Received } from './snapshot-apply.ts'
import { ReadSnapshot } from './read-snapshot.ts'
import { StoreError } from './store-error.ts'
import { WriterQueue } from './writer-queue.ts'

export type { FileFault } from './file-guard.ts'
export { StoreError, type StoreErrorKind } from './store-error.ts'

export interface Entry {
  readonly value: Uint8Array
  /** Of the log row that wrote it; for one of this machine's own, of the row before it. */
  readonly sequence: number
}

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

/** A piece of what was committed. */
export interface History {
  /** A sequence means a commit of this epoch: what it meant before another state took the place of that one is gone. */
  readonly epoch: number
  /** Whoever has seen everything up to here, and not beyond, can be told all of the rest. */
  readonly oldest: number
  /** Sequence of the newest commit. */
  readonly newest: number
  readonly rows: readonly { readonly sequence: number; readonly batch: Batch }[]
}

export interface PageOptions {
  readonly after?: string
  readonly limit?: number
}

export interface StoreOptions {
  readonly log?: LogLimits
}

/** A path part sorts below this one: `/` is 0x2f. */
const BEHIND_SLASH = '0'
const TAIL_BYTES = 16

export class SqliteStore implements Store {
  readonly path: string
  readonly #reader: DatabaseSync
  readonly #queue: WriterQueue
  readonly #get: StatementSync
  readonly #next: StatementSync
  readonly #paths: StatementSync
  readonly #rows: StatementSync
  readonly #batches: StatementSync
  readonly #tails: StatementSync
  readonly #cache = new EntryCache()
  readonly #snapshot: ReadSnapshot
  #epoch: number
  #closed = false

  /** Opens the database, or makes it. Rejects with a Fault for the operator. */
  static async open(path: string, { log }: StoreOptions = {}): Promise<SqliteStore> {
    const queue = await WriterQueue.start({ path, ...(log && { log }) })
    try {
      return new SqliteStore(path, queue)
    } catch (error) {
      // Its thread would keep the process from ending.
      await queue.close(() => undefined)
      throw error
    }
  }

  private constructor(path: string, queue: WriterQueue) {
    this.path = path
    this.#queue = queue
    this.#reader = openForReading(path)
    this.#snapshot = new ReadSnapshot(this.#reader)
    this.#get = this.#reader.prepare('SELECT value, sequence, crc FROM entries WHERE path = ?')
    this.#next = this.#reader.prepare('SELECT path FROM entries WHERE path >= ? AND path < ? ORDER BY path LIMIT 1')
    this.#paths = this.#reader.prepare('SELECT path FROM entries WHERE path >= ? AND path < ? ORDER BY path LIMIT ?')
    this.#rows = this.#reader.prepare('SELECT * FROM log WHERE sequence > ? ORDER BY sequence LIMIT ?')
    this.#batches = this.#reader.prepare('SELECT sequence, batch FROM log WHERE sequence > ? ORDER BY sequence LIMIT ?')
    this.#tails = this.#reader.prepare(
      `SELECT path, substr(value, -${TAIL_BYTES}) AS tail FROM entries WHERE path > ? ORDER BY path LIMIT ?`,
    )
    this.#epoch = epochIn(this.#reader)
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
    const row = this.#read(() => this.#get.get(path))
    if (!row) return undefined
    const { value, crc } = row
    const sequence = Number(row['sequence'])
    if (!(value instanceof Uint8Array) || entryCrc(path, sequence, value) !== crc) {
      throw new Fault(`the entry ${path} is damaged in ${this.path}`)
    }
    return { value, sequence }
  }

  pending(path: string): Pick<Entry, 'value'> | undefined {
    const queued = this.#queue.queued(path)
    if (!queued) return this.get(path)
    return queued.value && { value: queued.value }
  }

  list(prefix: string, { after = '', limit = Number.MAX_SAFE_INTEGER }: PageOptions = {}): string[] {
    checkPrefix(prefix)
    const names: string[] = []
    const end = behind(prefix)
    let from = after === '' ? prefix : behind(prefix + after)
    while (names.length < limit) {
      const found = this.#read(() => this.#next.get(from, end))?.['path']
      if (typeof found !== 'string') break
      const rest = found.slice(prefix.length)
      const slash = rest.indexOf('/')
      const name = slash < 0 ? rest : rest.slice(0, slash + 1)
      names.push(name)
      from = behind(prefix + name)
    }
    return names
  }

  paths(prefix: string, { after = '', limit = Number.MAX_SAFE_INTEGER }: PageOptions = {}): string[] {
    checkPrefix(prefix)
    const from = after === '' ? prefix : `${after}\0`
    return this.#read(() => this.#paths.all(from, behind(prefix), limit)).map(({ path }) => String(path))
  }

  tails(after: string, limit: number): { path: string; tail: Uint8Array }[] {
    return this.#read(() => this.#tails.all(after, limit)).map(({ path, tail }) => {
      return { path: String(path), tail: tail instanceof Uint8Array ? tail : new Uint8Array() }
    })
  }

  commit(batch: Batch): Promise<number> {
    return this.#queue.write(batch, this.#epoch).then((outcome) => {
      if ('sequence' in outcome) return outcome.sequence
      throw new StoreError('failed', 'the writer gave no result')
    })
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
    return positionIn(this.#reader)
  }

  /** Rows of the log behind `sequence`, in order, at most `limit`. */
  rowsAfter(sequence: number, limit: number): LogRow[] {
    return this.#read(() => this.#rows.all(sequence, limit)).map((row) => {
      const { batch, checksum } = row
      if (!(batch instanceof Uint8Array) || !(checksum instanceof Uint8Array)) throw new Fault('the log is damaged')
      const numbers = { sequence: Number(row['sequence']), epoch: Number(row['epoch']), atMs: Number(row['at']) }
      return { ...numbers, batch, checksum }
    })
  }

  history(after: number, limit: number): History {
    const [oldest, newest] = [this.base().sequence, this.position().sequence]
    const found = this.#read(() => this.#batches.all(after, limit))
    const rows = found.map(({ batch, sequence }) => {
      if (!(batch instanceof Uint8Array)) throw new Fault('the log is damaged')
      return { sequence: Number(sequence), batch: decodeBatch(batch) }
    })
    return { epoch: this.#epoch, oldest, newest, rows }
  }

  /** What the oldest row of the log that is left follows upon: whoever stands there can be served from it. */
  base(): Position {
    return baseIn(this.#reader)
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
    return totalIn(this.#reader) - baseIn(this.#reader).total
  }

  /** Has the file `.seen` say how far the database has come, as each commit does (`seen-mark.ts`). */
  async markSeen(): Promise<void> {
    try {
      await this.#queue.order({ kind: 'seen' })
    } catch {
      // The store is closed, or its disk fails: whoever commits is told.
    }
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
    const outcome = await this.#queue.orderAlone({ kind: 'restore', fd, ...received }, () => {
      this.#epoch = epochIn(this.#reader)
      onReplaced?.()
    })
    if ('refusal' in outcome) throw new Refusal('invalid_request', outcome.refusal)
  }

  /** Waits for what is under way, then closes. */
  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    await this.#queue.close(() => {
      this.#snapshot.end()
      this.#reader.close()
    })
  }

  /** SQLite does not say of which file it speaks. */
  #read<T>(read: () => T): T {
    try {
      this.#snapshot.begin()
      return read()
    } catch (error) {
      throw new Fault(`the database ${this.path} cannot be read: ${messageOf(error)}`, { cause: error })
    }
  }
}

function checkPrefix(prefix: string): void {
  if (prefix !== '' && !prefix.endsWith('/')) throw new Fault('a prefix that is listed ends with a slash')
}

/** The first text that sorts behind everything that a name below a prefix can be: a folder's whole content with it. */
function behind(path: string): string {
  if (path === '') return '\u{10ffff}'
  return path.endsWith('/') ? `${path.slice(0, -1)}${BEHIND_SLASH}` : `${path}\0`
}
