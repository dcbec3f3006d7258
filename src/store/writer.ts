/**
 * The one who writes. It takes all batches that wait, puts them into one transaction, each with its own row of the log,
 * and commits once: one sync of the disk for all of them. It runs in a thread of its own (`writer-thread.ts`), so that
 * nobody else ever waits for the disk.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { type Batch, decodeBatch, isLocal } from './batch.ts'
import { BEGINNING, checksumOf, type LogRow, type Position } from './log-row.ts'

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

export class Writer {
  readonly #database: DatabaseSync
  readonly #put: StatementSync
  readonly #remove: StatementSync
  readonly #append: StatementSync
  readonly #setFact: StatementSync
  readonly #now: () => number
  #position: Position
  #epoch: number
  /** The newest generation in which something failed. */
  #ended = -1

  constructor(database: DatabaseSync, now: () => number = Date.now) {
    this.#database = database
    this.#now = now
    this.#put = database.prepare(
      'INSERT INTO entries VALUES (?, ?, ?) ON CONFLICT (path) DO UPDATE SET value = excluded.value, sequence = excluded.sequence',
    )
    this.#remove = database.prepare('DELETE FROM entries WHERE path = ?')
    this.#append = database.prepare('INSERT INTO log VALUES (?, ?, ?, ?, ?)')
    this.#setFact = database.prepare(
      'INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value',
    )
    this.#position = positionIn(database)
    this.#epoch = Math.max(this.#position.epoch, Number(factIn(database, 'epoch') ?? 0))
  }

  get position(): Position {
    return this.#position
  }

  get epoch(): number {
    return this.#epoch
  }

  /** Writes all of them or, when it throws, none; those that are fenced or dropped aside. */
  write(requests: readonly WriteRequest[]): WriteResult[] {
    try {
      return this.#inTransaction(() => requests.map((request) => this.#apply(request)))
    } catch (error) {
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
    for (const { path, value } of puts) this.#put.run(path, value, sequence)
    for (const path of deletes) this.#remove.run(path)
  }

  #log(row: LogRow): void {
    this.#append.run(row.sequence, row.epoch, row.atMs, row.batch, row.checksum)
    this.#position = { sequence: row.sequence, epoch: row.epoch, checksum: row.checksum }
  }

  /** From now on only commits of this epoch count; it never falls. */
  raiseEpoch(epoch: number): void {
    if (epoch <= this.#epoch) return
    this.#inTransaction(() => this.#setFact.run('epoch', epoch))
    this.#epoch = epoch
  }

  /** Removes rows of the log below `sequence`, `limit` at most; the last one always stays. Returns how many. */
  trimLog(sequence: number, limit: number): number {
    const below = Math.min(sequence, this.#position.sequence)
    return this.#inTransaction(() =>
      Number(
        this.#database
          .prepare(
            'DELETE FROM log WHERE sequence IN (SELECT sequence FROM log WHERE sequence < ? ORDER BY sequence LIMIT ?)',
          )
          .run(below, limit).changes,
      ),
    )
  }

  #inTransaction<T>(work: () => T): T {
    const position = this.#position
    this.#database.exec('BEGIN IMMEDIATE')
    try {
      const result = work()
      this.#database.exec('COMMIT')
      return result
    } catch (error) {
      this.#position = position
      // A failed commit may have ended the transaction by itself.
      if (this.#database.isTransaction) this.#database.exec('ROLLBACK')
      throw error
    }
  }
}

/** Where the log of a database ends. */
export function positionIn(database: DatabaseSync): Position {
  const row = database.prepare('SELECT sequence, epoch, checksum FROM log ORDER BY sequence DESC LIMIT 1').get()
  if (!row) return BEGINNING
  const { sequence, epoch, checksum } = row
  if (!(checksum instanceof Uint8Array)) throw new Error('the log is damaged')
  return { sequence: Number(sequence), epoch: Number(epoch), checksum }
}

export function factIn(database: DatabaseSync, name: string): unknown {
  return database.prepare('SELECT value FROM facts WHERE name = ?').get(name)?.['value']
}
