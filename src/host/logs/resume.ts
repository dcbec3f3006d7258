/**
 * Resumes a log at a cursor: exactly after the received bytes, if they still exist.
 *
 * If the file of the cursor was removed, the stream reports that and starts at the oldest bytes that are new: in a file with a
 * higher index, or in one created after the cursor (the log was restarted). Older files are never replayed. If the file has
 * other bytes than the received ones, it was truncated and is read from its beginning.
 */
import { closeSync } from 'node:fs'
import { Refusal } from '../../platform/errors.ts'
import type { ReadableFile } from '../files/alloc-files.ts'
import { type ResumeCursor, resumeMarkIndex, edgeMatches, fileIdentity, type FileMark } from './locate/resume-cursor.ts'
import type { LogStart } from './follow/log-cursor.ts'
import type { LogFiles, LogPosition } from './locate/log-files.ts'

/** `rewritten`: the same file with other bytes; `gone`: another file or none. */
type MarkState = 'there' | 'rewritten' | 'gone'

/**
 * `indexes` are the files of the log, `received` the number of bytes received after the cursor. Undefined if the log has no
 * files.
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
  // A file of this index, if any, is another one.
  if (state === 'gone') return restart(logs, indexes, cursor, mark)
  if (state === 'rewritten') return truncatedStart(mark.index)
  const walked = walk(logs, indexes, { index: mark.index, offset: mark.offset }, received)
  if ('missing' in walked) return restart(logs, indexes, cursor, mark, walked.missing)
  if ('beyond' in walked) return truncatedStart(walked.beyond)
  // Each file once: only a forged cursor has two marks of one file.
  const earlier = new Map(marks.slice(0, at).map((old) => [old.index, old]))
  earlier.delete(mark.index)
  const late = [...earlier.values()].filter((old) => stateOf(logs, old) === 'there')
  return { position: walked, after: mark.after, late: late.map(({ index, offset }) => ({ index, offset })) }
}

/** The start of a truncated file. */
function truncatedStart(index: number): LogStart {
  return { position: { index, offset: 0 }, notice: { event: 'truncated', index, offset: 0 } }
}

function stateOf(logs: LogFiles, mark: FileMark): MarkState {
  const content = logs.open(mark.index)
  return content ? markState(content, mark) : 'gone'
}

/** Compares a file with a mark. Closes the file. */
export function markState(content: ReadableFile, mark: FileMark): MarkState {
  try {
    if (fileIdentity(content.stat) !== mark.identity) return 'gone'
    return mark.offset <= Number(content.stat.size) && edgeMatches(mark, content.fd) ? 'there' : 'rewritten'
  } finally {
    closeSync(content.fd)
  }
}

/**
 * The oldest bytes that are newer than the cursor: in a file with an index from `first`, or created later; the end of the log if
 * there are none.
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
  // Names that are not readable files are skipped.
  const fresh = indexes.find((index) => isFresh(index) && logs.sizeOf(index) !== undefined)
  const notice = { event: 'deleted', index: mark.index, offset: mark.offset } as const
  if (fresh !== undefined) return { position: { index: fresh, offset: 0 }, notice }
  const last = indexes.findLast((index) => logs.sizeOf(index) !== undefined)
  return last === undefined ? undefined : { position: { index: last, offset: logs.sizeOf(last) ?? 0 }, notice }
}

/** The position `bytes` after `from`, or the file in between that is missing, or the file that ends too early. */
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
    // Only the lowest indexes are removed, so a gap after an existing file was left by the writer.
    const next = indexes.find((other) => other > index)
    if (next === undefined) return { beyond: index }
    left -= size - offset
    index = next
    offset = 0
  }
}

/** Throws a Refusal for a cursor without a mark of the selected logs. */
export function requireLogOf(cursor: ResumeCursor, logs: readonly LogFiles[]): void {
  if (cursor.marks.some(({ log }) => logs.some(({ hash }) => hash === log))) return
  throw new Refusal('invalid_request', 'the cursor belongs to another log: use the task and type it was received from')
}
