/**
 * The store of secrets: entries of bytes under paths, and the log of every change to them, in one SQLite database.
 *
 * Promises. A commit that was answered is on the disk, whole, together with its row of the log; one that was refused or
 * failed has changed nothing. Commits are ordered; a read that begins after a commit was answered sees it. Reads never
 * wait for writes, and nobody in this thread waits for the disk: a writer in a thread of its own (`writer.ts`) takes
 * whatever has arrived into one transaction with one sync. Each row of the log carries a checksum chained to the row
 * before (`log-row.ts`). A commit of another epoch than the store's is refused: a primary that was deposed writes nothing.
 *
 * Assumes that values are ciphertext (it cannot tell), that the disk does what `fsync` says, and that no other process
 * has the database open: the daemon holds a lock on its directory.
 *
 * What can go wrong. A full disk: the commit is refused (`StoreError` `full`), everything goes on, and commits work again
 * when there is space. A disk that fails: `failed`, the same. A database that is damaged is found by `check.ts` and named,
 * never served as if it were whole. A killed process: what was not answered may or may not be there, never in part.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { Worker } from 'node:worker_threads'
import { Fault, messageOf } from '../kit/errors.ts'
import { type Batch, encodeBatch } from './batch.ts'
import { openForReading } from './database.ts'
import type { LogRow, Position } from './log-row.ts'
import { factIn, positionIn } from './writer.ts'
import type { Order, Outcome, Report } from './writer-thread.ts'

export interface Entry {
  readonly value: Uint8Array
  /** Of the log row that wrote it; for one of this machine's own, of the row before it. */
  readonly sequence: number
}

export type StoreErrorKind = 'full' | 'failed' | 'fenced' | 'closed'

/** A commit that did not happen. */
export class StoreError extends Fault {
  readonly kind: StoreErrorKind

  constructor(kind: StoreErrorKind, message: string) {
    super(message)
    this.kind = kind
  }
}

/** What everything above needs of a store. */
export interface Store {
  get(path: string): Entry | undefined
  /**
   * Names directly below `prefix` (which ends in `/`, or is empty for the root), in byte order, folders with a trailing
   * `/`; those behind `after`, at most `limit`.
   */
  list(prefix: string, options?: { after?: string; limit?: number }): string[]
  /** Resolves with the sequence of the batch once it is durable. Rejects with a StoreError; then nothing has changed. */
  commit(batch: Batch): Promise<number>
}

const FULL = 13
/** A path part sorts below this one: `/` is 0x2f. */
const BEHIND_SLASH = '0'

interface Waiting {
  readonly resolve: (outcome: Outcome) => void
  readonly reject: (error: Error) => void
}

type OrderBody = Order extends infer O ? (O extends { readonly id: number } ? Omit<O, 'id'> : never) : never

export class SqliteStore implements Store {
  readonly path: string
  readonly #reader: DatabaseSync
  readonly #worker: Worker
  readonly #get: StatementSync
  readonly #next: StatementSync
  readonly #rows: StatementSync
  readonly #waiting = new Map<number, Waiting>()
  #count = 0
  #epoch: number
  #closed = false
  #broken: Error | undefined

  /** Opens the database, or makes it. Rejects with a Fault for the operator. */
  static async open(path: string): Promise<SqliteStore> {
    const worker = new Worker(new URL('./writer-thread.ts', import.meta.url), { workerData: { path } })
    await new Promise<void>((resolve, reject) => {
      worker.once('message', () => resolve())
      worker.once('error', (error) => reject(new Fault(messageOf(error), { cause: error })))
    })
    return new SqliteStore(path, worker)
  }

  private constructor(path: string, worker: Worker) {
    this.path = path
    this.#worker = worker
    this.#reader = openForReading(path)
    this.#get = this.#reader.prepare('SELECT value, sequence FROM entries WHERE path = ?')
    this.#next = this.#reader.prepare('SELECT path FROM entries WHERE path >= ? AND path < ? ORDER BY path LIMIT 1')
    this.#rows = this.#reader.prepare('SELECT * FROM log WHERE sequence > ? ORDER BY sequence LIMIT ?')
    this.#epoch = Math.max(this.position().epoch, Number(factIn(this.#reader, 'epoch') ?? 0))
    worker.on('message', (report: Report) => this.#take(report))
    worker.on('error', (error) => this.#fail(new StoreError('failed', `the writer ended: ${messageOf(error)}`)))
    worker.on('exit', () => this.#fail(new StoreError('closed', 'the store is closed')))
  }

  get(path: string): Entry | undefined {
    const row = this.#get.get(path)
    if (!row) return undefined
    const { value, sequence } = row
    if (!(value instanceof Uint8Array)) throw new Fault(`the entry ${path} is damaged`)
    return { value, sequence: Number(sequence) }
  }

  list(
    prefix: string,
    { after = '', limit = Number.MAX_SAFE_INTEGER }: { after?: string; limit?: number } = {},
  ): string[] {
    if (prefix !== '' && !prefix.endsWith('/')) throw new Fault('a prefix that is listed ends with a slash')
    const names: string[] = []
    const end = behind(prefix)
    let from = after === '' ? prefix : behind(prefix + after)
    while (names.length < limit) {
      const found = this.#next.get(from, end)?.['path']
      if (typeof found !== 'string') break
      const rest = found.slice(prefix.length)
      const slash = rest.indexOf('/')
      const name = slash < 0 ? rest : rest.slice(0, slash + 1)
      names.push(name)
      from = behind(prefix + name)
    }
    return names
  }

  async commit(batch: Batch): Promise<number> {
    const bytes = encodeBatch(batch)
    const outcome = await this.#order({ kind: 'write', batch: bytes, epoch: this.#epoch }, [bytes.buffer])
    if (!('result' in outcome)) throw new StoreError('failed', 'the writer gave no result')
    const { result } = outcome
    if (result.kind === 'written') return result.sequence
    throw new StoreError('fenced', `this store has been in epoch ${result.epoch} since: somebody else is the primary`)
  }

  /** The epoch in which this process commits. */
  get epoch(): number {
    return this.#epoch
  }

  /** Goes over to a higher epoch; commits that were under way in the old one are refused. */
  async raiseEpoch(epoch: number): Promise<void> {
    await this.#order({ kind: 'raise epoch', epoch })
    this.#epoch = Math.max(this.#epoch, epoch)
  }

  position(): Position {
    return positionIn(this.#reader)
  }

  /** Rows of the log behind `sequence`, in order, at most `limit`. */
  rowsAfter(sequence: number, limit: number): LogRow[] {
    return this.#rows.all(sequence, limit).map((row) => {
      const { batch, checksum } = row
      if (!(batch instanceof Uint8Array) || !(checksum instanceof Uint8Array)) throw new Fault('the log is damaged')
      const numbers = { sequence: Number(row['sequence']), epoch: Number(row['epoch']), atMs: Number(row['at']) }
      return { ...numbers, batch, checksum }
    })
  }

  /** Removes rows of the log below `sequence`, `limit` at most; resolves with how many. The last row always stays. */
  async trimLog(sequence: number, limit: number): Promise<number> {
    const outcome = await this.#order({ kind: 'trim', sequence, limit })
    return 'count' in outcome ? outcome.count : 0
  }

  /** Waits for what is under way, then closes. */
  async close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    await this.#send({ kind: 'close' }).catch(() => undefined)
    this.#reader.close()
    await this.#worker.terminate()
  }

  #order(order: OrderBody, transfer: ArrayBuffer[] = []): Promise<Outcome> {
    if (this.#closed) return Promise.reject(new StoreError('closed', 'the store is closed'))
    return this.#send(order, transfer)
  }

  #send(order: OrderBody, transfer: ArrayBuffer[] = []): Promise<Outcome> {
    if (this.#broken) return Promise.reject(this.#broken)
    return new Promise((resolve, reject) => {
      const id = ++this.#count
      this.#waiting.set(id, { resolve, reject })
      this.#worker.postMessage({ ...order, id }, transfer)
    })
  }

  #take(report: Report): void {
    if (report.kind !== 'done') return
    for (const outcome of report.results) {
      const waiting = this.#waiting.get(outcome.id)
      this.#waiting.delete(outcome.id)
      if (!('failure' in outcome)) waiting?.resolve(outcome)
      else {
        const { message, code } = outcome.failure
        waiting?.reject(new StoreError(code === FULL ? 'full' : 'failed', message))
      }
    }
  }

  #fail(error: StoreError): void {
    this.#broken ??= error
    for (const waiting of this.#waiting.values()) waiting.reject(error)
    this.#waiting.clear()
  }
}

/** The first text that sorts behind everything that a name below a prefix can be: a folder's whole content with it. */
function behind(path: string): string {
  if (path === '') return '\u{10ffff}'
  return path.endsWith('/') ? `${path.slice(0, -1)}${BEHIND_SLASH}` : `${path}\0`
}
