/** The fact `stream`: the last group of the commit stream that a database has (`commit-log.ts`). */
import type { DatabaseSync } from 'node:sqlite'
import { Fault } from '../../platform/errors.ts'
import { factIn, writeFact } from '../sqlite/rows.ts'

/** A position in a commit log. `stream` identifies the log, so that a position in a deleted log is not used in its successor. */
export interface StreamMark {
  readonly stream: string
  /** Sequence of the last message of the group. */
  readonly position: number
}

/** The mark of a database. */
export interface AppliedMark extends StreamMark {
  /** Sequence of the newest row when the group had been applied. Later rows were committed without the log. */
  readonly row: number
}

/** Undefined for a database that has never had one. Throws a Fault for a damaged fact. */
export function streamMarkIn(database: DatabaseSync): AppliedMark | undefined {
  const mark = factIn(database, 'stream')
  if (mark === undefined) return undefined
  if (!isStreamMark(mark)) throw new Fault('the position in the commit stream is damaged')
  return mark
}

/** Runs in the caller's transaction. */
export function writeStreamMark(database: DatabaseSync, { stream, position, row }: AppliedMark): void {
  writeFact(database, 'stream', { stream, position, row })
}

/**
 * Marks that the role or the state of replication was changed without the log, so the database does not match the stream. Runs in the
 * caller's transaction.
 */
export function leaveStream(database: DatabaseSync): void {
  const mark = streamMarkIn(database)
  if (mark && mark.row !== NOT_IN_STREAM) writeStreamMark(database, { ...mark, row: NOT_IN_STREAM })
}

/** The `row` of a database that has left the stream. */
export const NOT_IN_STREAM = -1

function isStreamMark(value: unknown): value is AppliedMark {
  if (typeof value !== 'object' || value === null) return false
  const { stream, position, row } = value as Record<string, unknown>
  return typeof stream === 'string' && Number.isSafeInteger(position) && Number.isSafeInteger(row)
}
