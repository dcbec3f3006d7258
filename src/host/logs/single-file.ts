/** A single file as the source of a stream: read once or followed. */
import { Refusal } from '../../platform/errors.ts'
import type { Allocation } from '../allocations/allocation.ts'
import { openFile, type ReadableFile } from '../files/alloc-files.ts'
import type { BufferLease } from '../files/buffers.ts'
import { OpenFile, readSpan } from '../files/read.ts'
import type { FileCursor } from './follow/file-cursor.ts'
import type { EventStep, FiniteSource, FollowSource, SourceStep } from './follow/stream-source.ts'
import { type FileMark, logHash, markAt } from './locate/resume-cursor.ts'
import { requestedPosition, type StartRequest } from './log-selection.ts'
import { markState } from './resume.ts'

/** An open file, with the path and the mark of its frames. */
export interface LabelledFile {
  readonly file: OpenFile
  readonly path: string
  readonly mark: FileMark
}

/** The bytes of an open file from `start` to its end; returns the offset of the end. */
export async function* fileSteps(
  { file, path, mark }: LabelledFile,
  start: number,
  lease: BufferLease,
  labelBytes: number,
): AsyncGenerator<SourceStep, number> {
  let position = start
  for await (const data of readSpan(file, lease, { start, end: Number.MAX_SAFE_INTEGER, labelBytes })) {
    yield { step: { kind: 'private', data, start: position }, path, mark }
    position += data.length
  }
  return position
}

/** An open file, the start position in it, and an event to report first. */
export interface FileStart {
  readonly content: ReadableFile
  readonly mark: FileMark
  readonly notice: EventStep | undefined
}

/** Reads one file once. */
export class SingleFileReader implements FiniteSource {
  readonly #start: FileStart
  readonly #path: string
  readonly #lease: BufferLease
  readonly #file: OpenFile

  constructor(start: FileStart, path: string, lease: BufferLease) {
    this.#start = start
    this.#file = new OpenFile(start.content.fd)
    this.#path = path
    this.#lease = lease
  }

  marks(): FileMark[] {
    return [this.#start.mark]
  }

  async *steps(labelBytes: () => number): AsyncGenerator<SourceStep> {
    const { mark, notice } = this.#start
    if (notice) yield { step: notice, path: this.#path, mark }
    const reading = { file: this.#file, path: this.#path, mark }
    yield* fileSteps(reading, mark.offset, this.#lease, labelBytes())
  }

  release(): void {
    this.#file.close()
  }
}

/** Follows one file. The stream is over when the file is deleted, or its name belongs to another file, and all was read. */
export class SingleFileFollower implements FollowSource {
  readonly kind = 'file'
  readonly #cursor: FileCursor
  readonly #path: string
  readonly #mark: FileMark
  #notice: EventStep | undefined
  #deletionReported = false

  constructor(cursor: FileCursor, path: string, { mark, notice }: FileStart) {
    this.#cursor = cursor
    this.#path = path
    this.#mark = mark
    this.#notice = notice
  }

  marks(): FileMark[] {
    return [this.#mark]
  }

  get lagBytes(): number {
    return this.#cursor.lagBytes
  }

  async step(labelBytes: number): Promise<SourceStep> {
    const notice = this.#notice
    this.#notice = undefined
    if (notice) return this.#sourceStep(notice)
    for (;;) {
      const result = this.#cursor.step(labelBytes)
      const step = result instanceof Promise ? await result : result
      if (step.kind !== 'end' || !this.#cursor.file.deleted) return this.#sourceStep(step)
      if (!this.#cursor.drained()) continue
      if (this.#deletionReported) return this.#sourceStep({ kind: 'over' })
      this.#deletionReported = true
      return this.#sourceStep({ kind: 'deleted', offset: this.#cursor.position })
    }
  }

  #sourceStep(step: SourceStep['step']): SourceStep {
    return { step, path: this.#path, mark: this.#mark }
  }

  drained(): boolean {
    return this.#cursor.drained()
  }

  sleepUntil(wakeAtMs: number): Promise<void> {
    return this.#cursor.sleepUntil(wakeAtMs)
  }

  wake(): void {
    this.#cursor.wake()
  }

  release(): void {
    this.#cursor.release()
  }
}

/** Opens the file and finds the start position. Rejects with a Refusal if the file or the position does not exist. */
export async function startOfFile(
  allocation: Allocation,
  path: string,
  at: StartRequest,
  signal: AbortSignal,
): Promise<FileStart> {
  const content = openFile(allocation, path)
  try {
    const log = logHash(path)
    if (at.cursor) return resumeFile(content, at, log, () => openFile(allocation, path))
    const position = await positionOf(content, path, at, signal)
    return { content, mark: markAt(log, 0, content, position), notice: undefined }
  } catch (error) {
    new OpenFile(content.fd).close()
    throw error
  }
}

/** First byte of a stream; offsets beyond the end of the file are valid. */
export function streamStart(input: { offset: number; origin: string; path: string }, size: number): number {
  if (input.origin === 'end') return Math.max(size - input.offset, 0)
  if (input.offset >= 0) return input.offset
  throw new Refusal(
    'invalid_request',
    `can't seek to offset ${input.offset}: seek ${input.path}: invalid argument; count from the end with origin=end`,
  )
}

/** The start position of a cursor; the beginning, with an event, if it is another file or was rewritten. */
function resumeFile(content: ReadableFile, at: StartRequest, log: number, open: () => ReadableFile): FileStart {
  const mark = at.cursor?.marks.find((each) => each.log === log)
  if (!mark)
    throw new Refusal('invalid_request', 'the cursor belongs to another file: use the path it was received from')
  const state = markState(open(), mark)
  if (state === 'there') {
    // Context lines after an earlier match are still to be output.
    return { content, mark: { ...markAt(log, 0, content, mark.offset), after: mark.after }, notice: undefined }
  }
  const begin = markAt(log, 0, content, 0)
  if (state === 'rewritten') return { content, mark: begin, notice: { kind: 'truncated' } }
  return { content, mark: begin, notice: { kind: 'deleted', offset: mark.offset } }
}

async function positionOf(content: ReadableFile, path: string, at: StartRequest, signal: AbortSignal): Promise<number> {
  const { size, mtimeNs } = content.stat
  const file = new OpenFile(content.fd)
  const files = [{ index: 0, size: Number(size), modifiedMs: Number(mtimeNs) / 1e6, file }]
  const position = await requestedPosition(files, at, signal)
  return position ? position.offset : streamStart({ ...at, path }, Number(size))
}
