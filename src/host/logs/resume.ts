/**
 * Where a cursor goes on in a log: exactly behind what was received, if that is still there.
 *
 * If its file is gone the stream says so and begins at the oldest byte that is left and was not there before: a file
 * with a higher index, or one that was born after the cursor was made (the log was begun truncatedStart). Older files are never
 * replayed. If the file holds other bytes than those that were received it was truncated, and begins truncatedStart.
 */
import { closeSync } from 'node:fs'
import { Refusal } from '../../platform/errors.ts'
import type { ReadableFile } from '../files/alloc-files.ts'
import { type ResumeCursor, resumeMarkIndex, edgeMatches, fileIdentity, type FileMark } from './locate/resume-cursor.ts'
import type { LogStart } from './follow/log-cursor.ts'
import type { LogFiles, LogPosition } from './locate/log-files.ts'

/** Of what a mark points at: `rewritten` is the same file with other bytes, `gone` another file or none. */
type MarkState = 'there' | 'rewritten' | 'gone'

/**
 * Undefined when there is no file of the log at all. `indexes` are its files, `received` are bytes that came behind the
 * cursor's place.
 */
export function resumeLog(
  logs: LogFiles,
  indexes: readonly number[],
  cursor: ResumeCursor,
  received: number,
): LogStart | undefined {
  const marks = cursor.marks.filter(({ log }) => log === logs.hash)
  const at = resumeMarkIndex(marks)
  const mark = marks[at]
  if (!mark) return undefined
  const state = stateOf(logs, mark)
  // A file of that index is another one by now, if there is one.
  if (state === 'gone') return restart(logs, indexes, cursor, mark)
  if (state === 'rewritten') return truncatedStart(mark.index)
  const walked = walk(logs, indexes, { index: mark.index, offset: mark.offset }, received)
  if ('missing' in walked) return restart(logs, indexes, cursor, mark, walked.missing)
  if ('beyond' in walked) return truncatedStart(walked.beyond)
  // Each file once: only a cursor that nobody was given names one twice.
  const earlier = new Map(marks.slice(0, at).map((old) => [old.index, old]))
  earlier.delete(mark.index)
  const late = [...earlier.values()].filter((old) => stateOf(logs, old) === 'there')
  return { place: walked, after: mark.after, late: late.map(({ index, offset }) => ({ index, offset })) }
}

/** The beginning of a file that was truncated since. */
function truncatedStart(index: number): LogStart {
  return { place: { index, offset: 0 }, said: { event: 'truncated', index, offset: 0 } }
}

/** Whether what a mark points at is still there. */
function stateOf(logs: LogFiles, mark: FileMark): MarkState {
  const content = logs.open(mark.index)
  return content ? markState(content, mark) : 'gone'
}

/** Whether what a mark points at is still in this file. Closes it. */
export function markState(content: ReadableFile, mark: FileMark): MarkState {
  try {
    if (fileIdentity(content.stat) !== mark.identity) return 'gone'
    return mark.offset <= Number(content.stat.size) && edgeMatches(mark, content.fd) ? 'there' : 'rewritten'
  } finally {
    closeSync(content.fd)
  }
}

/**
 * The oldest bytes that were not there when the cursor was made: in a file from index `first` on, or a younger one; the
 * end of the log when there are none.
 */
function restart(
  logs: LogFiles,
  indexes: readonly number[],
  cursor: ResumeCursor,
  mark: FileMark,
  first = mark.index,
): LogStart | undefined {
  const madeAtNs = BigInt(cursor.madeAtMs) * 1_000_000n
  const isFresh = (index: number) => index >= first || logs.bornNs(index) > madeAtNs
  // Names that are no readable files lead nowhere.
  const fresh = indexes.find((index) => isFresh(index) && logs.sizeOf(index) !== undefined)
  const said = { event: 'deleted', index: mark.index, offset: mark.offset } as const
  if (fresh !== undefined) return { place: { index: fresh, offset: 0 }, said }
  const last = indexes.findLast((index) => logs.sizeOf(index) !== undefined)
  return last === undefined ? undefined : { place: { index: last, offset: logs.sizeOf(last) ?? 0 }, said }
}

/** The place so many bytes further on, or which file between has gone, or which ends too early. */
function walk(
  logs: LogFiles,
  indexes: readonly number[],
  from: LogPosition,
  bytes: number,
): LogPosition | { missing: number } | { beyond: number } {
  let { index, offset } = from
  let left = bytes
  for (;;) {
    const size = logs.sizeOf(index)
    if (size === undefined) return { missing: index }
    if (left <= size - offset) return { index, offset: offset + left }
    // Purging takes the lowest: with this one there, a gap behind it was left by the writer.
    const next = indexes.find((other) => other > index)
    if (next === undefined) return { beyond: index }
    left -= size - offset
    index = next
    offset = 0
  }
}

/** Refuses a cursor that names none of the logs that are asked for. */
export function requireLogOf(cursor: ResumeCursor, logs: readonly LogFiles[]): void {
  if (cursor.marks.some(({ log }) => logs.some(({ hash }) => hash === log))) return
  throw new Refusal('invalid_request', 'the cursor belongs to another log: give the task and type it was received from')
}
