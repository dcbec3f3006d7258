/** A single file as what a stream is made of: read once, or followed. */
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

/** A file that is read, and what its bytes are labelled with. */
export interface LabelledFile {
  readonly file: OpenFile
  readonly path: string
  readonly mark: FileMark
}

/** The bytes of an open file from `start` to its end; returns where that was. */
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

/** An open file, where to begin in it, and what is to be said first. */
export interface FileStart {
  readonly content: ReadableFile
  readonly mark: FileMark
  readonly said: EventStep | undefined
}

/** One file that is read once. */
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
    const { mark, said } = this.#start
    if (said) yield { step: said, path: this.#path, mark }
    const reading = { file: this.#file, path: this.#path, mark }
    yield* fileSteps(reading, mark.offset, this.#lease, labelBytes())
  }

  release(): void {
    this.#file.close()
  }
}

/** One file as what is followed: over when it is deleted, or its name belongs to another file, and all was read. */
export class SingleFileFollower implements FollowSource {
  readonly kind = 'file'
  readonly #cursor: FileCursor
  readonly #path: string
  readonly #mark: FileMark
  #said: EventStep | undefined
  #saidDeleted = false

  constructor(cursor: FileCursor, path: string, { mark, said }: FileStart) {
    this.#cursor = cursor
    this.#path = path
    this.#mark = mark
    this.#said = said
  }

  marks(): FileMark[] {
    return [this.#mark]
  }

  get lagBytes(): number {
    return this.#cursor.lagBytes
  }

  async step(labelBytes: number): Promise<SourceStep> {
    const said = this.#said
    this.#said = undefined
    if (said) return this.#labelled(said)
    for (;;) {
      const taken = this.#cursor.step(labelBytes)
      const step = taken instanceof Promise ? await taken : taken
      if (step.kind !== 'end' || !this.#cursor.file.deleted) return this.#labelled(step)
      if (!this.#cursor.drained()) continue
      if (this.#saidDeleted) return this.#labelled({ kind: 'over' })
      this.#saidDeleted = true
      return this.#labelled({ kind: 'deleted', offset: this.#cursor.position })
    }
  }

  #labelled(step: SourceStep['step']): SourceStep {
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

/** Opens the file and finds where to begin. Throws a Refusal when there is no such file or place. */
export async function startOfFile(
  allocation: Allocation,
  path: string,
  at: StartRequest,
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
function resumed(content: ReadableFile, at: StartRequest, log: number, open: () => ReadableFile): FileStart {
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

async function positionOf(content: ReadableFile, path: string, at: StartRequest, signal: AbortSignal): Promise<number> {
  const { size, mtimeNs } = content.stat
  const file = new OpenFile(content.fd)
  const files = [{ index: 0, size: Number(size), modifiedMs: Number(mtimeNs) / 1e6, file }]
  const place = await requestedPosition(files, at, signal)
  return place ? place.offset : streamStart({ ...at, path }, Number(size))
}
