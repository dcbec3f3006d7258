/** The fact `stream`: the last group of the commit stream that a database has (`commit-log.ts`). */
import type { DatabaseSync } from 'node:sqlite'
import { Fault } from '../../platform/errors.ts'
import { factIn, writeFact } from '../sqlite/rows.ts'
import type { AppliedMark } from './commit-log.ts'

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
 * The role or the state of replication is changed without the log: the database is no state of the stream any more. Runs in the caller's
 * transaction.
 */
export function leaveStream(database: DatabaseSync): void {
  const mark = streamMarkIn(database)
  if (mark && mark.row !== LEFT) writeStreamMark(database, { ...mark, row: LEFT })
}

/** The `row` of a database that has left the stream. */
export const LEFT = -1

function isStreamMark(value: unknown): value is AppliedMark {
  if (typeof value !== 'object' || value === null) return false
  const { stream, position, row } = value as Record<string, unknown>
  return typeof stream === 'string' && Number.isSafeInteger(position) && Number.isSafeInteger(row)
}
