/** Where a stream of a single file begins, whichever parameter says so. */
import { Refusal } from '../../platform/errors.ts'
import { type ReadableFile, openFile } from '../files/alloc-files.ts'
import type { Allocation } from '../allocations/allocation.ts'
import { logHash, markAt } from './locate/cursor-code.ts'
import { markState } from './resume.ts'
import { type Beginning, soughtPlace } from './log-selection.ts'
import type { FileStart } from './one-file.ts'
import { OpenFile } from '../files/read.ts'

/** Opens the file and finds where to begin. Throws a Refusal when there is no such file or place. */
export async function startOfFile(
  allocation: Allocation,
  path: string,
  at: Beginning,
  signal: AbortSignal,
): Promise<FileStart> {
  const content = openFile(allocation, path)
  try {
    const log = logHash(path)
    if (at.cursor) return resumed(content, at, log, () => openFile(allocation, path))
    const position = await positionOf(content, path, at, signal)
    return { content, mark: markAt(log, 0, content, position), said: undefined }
  } catch (error) {
    new OpenFile(content.fd).close()
    throw error
  }
}

/** First byte of a stream; beyond the end of the file is legal. */
export function streamStart(input: { offset: number; origin: string; path: string }, size: number): number {
  if (input.origin === 'end') return Math.max(size - input.offset, 0)
  if (input.offset >= 0) return input.offset
  throw new Refusal(
    'invalid_request',
    `can't seek to offset ${input.offset}: seek ${input.path}: invalid argument; count from the end with origin=end`,
  )
}

/** Where a cursor goes on in the file; from its beginning, and said so, when it is another file or was rewritten. */
function resumed(content: ReadableFile, at: Beginning, log: number, open: () => ReadableFile): FileStart {
  const mark = at.cursor?.marks.find((each) => each.log === log)
  if (!mark)
    throw new Refusal('invalid_request', 'the cursor belongs to another file: give the path it was received from')
  const state = markState(open(), mark)
  if (state === 'there') {
    // Lines of context that are owed behind a match before the place still are.
    return { content, mark: { ...markAt(log, 0, content, mark.offset), after: mark.after }, said: undefined }
  }
  const begin = markAt(log, 0, content, 0)
  if (state === 'rewritten') return { content, mark: begin, said: { kind: 'truncated' } }
  return { content, mark: begin, said: { kind: 'deleted', offset: mark.offset } }
}

async function positionOf(content: ReadableFile, path: string, at: Beginning, signal: AbortSignal): Promise<number> {
  const { size, mtimeNs } = content.stat
  const file = new OpenFile(content.fd)
  const files = [{ index: 0, size: Number(size), modifiedMs: Number(mtimeNs) / 1e6, file }]
  const place = await soughtPlace(files, at, signal)
  return place ? place.offset : streamStart({ ...at, path }, Number(size))
}
