/** Reads the replication log through a connection beside the writer's. */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { Fault } from '../../platform/errors.ts'
import { type Batch, decodeBatch } from '../sqlite/batch.ts'
import {
  type LogBase,
  baseIn,
  type LogRow,
  NEWEST_ROW,
  type CommitPosition,
  positionOf,
  totalIn,
} from '../sqlite/rows.ts'
import type { RowLimits } from './replica.ts'

/** A range of commits. */
export interface History {
  /** The sequences are of this epoch. A restore starts another epoch, in which a sequence is another commit. */
  readonly epoch: number
  /** A reader that has seen everything up to this sequence can get all later commits. */
  readonly oldest: number
  /** Sequence of the newest commit. */
  readonly newest: number
  readonly rows: readonly { readonly sequence: number; readonly batch: Batch }[]
}

export class LogReader {
  readonly #database: DatabaseSync
  readonly #newest: StatementSync
  readonly #rows: StatementSync
  readonly #row: StatementSync
  readonly #batches: StatementSync

  constructor(database: DatabaseSync) {
    this.#database = database
    this.#newest = database.prepare(NEWEST_ROW)
    this.#rows = database.prepare(
      'SELECT sequence, epoch, at, checksum, batch FROM log WHERE sequence > ? ORDER BY sequence LIMIT ?',
    )
    // Each row is read once per secondary, and arrays take a quarter less CPU than objects.
    this.#rows.setReturnArrays(true)
    this.#row = database.prepare('SELECT checksum FROM log WHERE sequence = ?')
    this.#batches = database.prepare('SELECT sequence, batch FROM log WHERE sequence > ? ORDER BY sequence LIMIT ?')
  }

  position(): CommitPosition {
    return positionOf(this.#newest.get() ?? this.base())
  }

  base(): LogBase {
    return baseIn(this.#database)
  }

  /** Approximate size of the retained log. */
  get bytes(): number {
    return totalIn(this.#database) - this.base().total
  }

  /** See `ReplicaStore.rowsAfter`. */
  rowsAfter(sequence: number, limits: RowLimits): LogRow[] {
    const rows: LogRow[] = []
    let bytes = 0
    for (const row of this.#rows.iterate(sequence, limits.rows)) {
      const columns: unknown = row
      if (!Array.isArray(columns)) throw new Fault('the rows of the log are not arrays')
      const [at, epoch, atMs, checksum, batch]: unknown[] = columns
      if (!(batch instanceof Uint8Array) || !(checksum instanceof Uint8Array)) throw new Fault('the log is damaged')
      bytes += batch.length
      if (bytes > limits.bytes && rows.length > 0) break
      rows.push({ sequence: Number(at), epoch: Number(epoch), atMs: Number(atMs), batch, checksum })
    }
    return rows
  }

  /** See `ReplicaStore.holds`. */
  holds({ sequence, checksum }: CommitPosition): boolean {
    const base = this.base()
    const found = sequence === base.sequence ? base.checksum : this.#row.get(sequence)?.['checksum']
    return found instanceof Uint8Array && Buffer.compare(found, checksum) === 0
  }

  batchesAfter(sequence: number, limit: number): History['rows'] {
    return this.#batches.all(sequence, limit).map((row) => {
      const { batch } = row
      if (!(batch instanceof Uint8Array)) throw new Fault('the log is damaged')
      return { sequence: Number(row['sequence']), batch: decodeBatch(batch) }
    })
  }
}
