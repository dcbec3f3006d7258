/**
 * `fs/stream`: the bytes of one file as frames, and then, if asked, whatever is appended to it.
 *
 * Ends normally when the file is deleted or its name comes to belong to another file, after everything that was written
 * to it, with a frame that says so. A truncation is a frame too, and the stream goes on from the new beginning.
 */
import type { AnyOperation, Call, StreamHead } from '../kit/operation.ts'
import { Refusal } from '../kit/errors.ts'
import { type Field, queryBoolean, queryInteger, schema } from '../kit/schema.ts'
import { type Content, openFile } from './alloc-files.ts'
import type { Allocation, AllocationTable } from './allocation.ts'
import { allocationOperation, allocIdParam, pathQuery } from './allocation-operation.ts'
import type { BufferLease } from './buffers.ts'
import { logHash, type Mark, markAt, scopeHash } from './cursor-code.ts'
import { FileCursor } from './file-cursor.ts'
import {
  follow,
  type Followed,
  type Followers,
  type FollowStep,
  leased,
  type Once,
  originQuery,
  readOnce,
} from './follow.ts'
import { LineStage } from './line-stage.ts'
import { laterPlace, type PlacedFile, tailPlace } from './log-position.ts'
import { markState } from './log-resume.ts'
import type { Beginning } from './log-selection.ts'
import { sincePlace } from './log-since.ts'
import { fileSteps } from './log-steps.ts'
import { tasksEnded } from './log-selection.ts'
import { OpenFile } from './read.ts'
import { type Additions, additions, beginningOf, isPlaced, linesOf } from './stream-additions.ts'
import { Encoder } from './stream-encoder.ts'

interface StreamInput extends Additions {
  readonly alloc_id: string
  readonly path: string
  readonly follow: boolean
  readonly offset: number
  readonly origin: string
}

const requiredOffset = queryInteger({ description: 'First byte, counted from the origin', fallback: 0, required: true })
const optionalOffset = queryInteger({ description: '', fallback: 0 })

/** Needed, unless something else says where to begin. */
const offset: Field<number> = {
  ...requiredOffset,
  required: false,
  description: 'First byte, counted from the origin; needed unless cursor, tail_lines or since say where to begin',
  parse: (raw, name) => (isPlaced(raw) ? optionalOffset : requiredOffset).parse(raw, name),
}

const streamInput = schema({
  alloc_id: allocIdParam,
  path: pathQuery,
  follow: queryBoolean({ description: 'Go on with what is appended', fallback: true }),
  offset,
  origin: originQuery,
  ...additions,
})

const HEAD: StreamHead = {
  status: 200,
  contentType: 'text/plain; charset=utf-8',
  headers: { 'X-Content-Type-Options': 'nosniff' },
  frames: true,
}

const head = (): StreamHead => HEAD

/** First byte of a stream; beyond the end of the file is legal. */
export function streamStart(input: { offset: number; origin: string; path: string }, size: number): number {
  if (input.origin === 'end') return Math.max(size - input.offset, 0)
  if (input.offset >= 0) return input.offset
  throw new Refusal(
    'invalid_request',
    `can't seek to offset ${input.offset}: seek ${input.path}: invalid argument; count from the end with origin=end`,
  )
}

/** An open file, where to begin in it, and what is to be said first. */
interface Opened {
  readonly content: Content
  readonly mark: Mark
  readonly said: FollowStep['step'] | undefined
}

/** One file that is read once. */
class FileOnce implements Once {
  readonly #opened: Opened
  readonly #path: string
  readonly #lease: BufferLease
  readonly #file: OpenFile

  constructor(opened: Opened, path: string, lease: BufferLease) {
    this.#opened = opened
    this.#file = new OpenFile(opened.content.fd)
    this.#path = path
    this.#lease = lease
  }

  marks(): Mark[] {
    return [this.#opened.mark]
  }

  async *steps(labelBytes: () => number): AsyncGenerator<FollowStep> {
    const { mark, said } = this.#opened
    if (said) yield { step: said, path: this.#path, mark }
    const reading = { file: this.#file, path: this.#path, mark }
    yield* fileSteps(reading, mark.offset, this.#lease, labelBytes())
  }

  release(): void {
    this.#file.close()
  }
}

/** One file as what is followed: over when it is deleted, or its name belongs to another file, and all was read. */
class OneFile implements Followed {
  readonly kind = 'file'
  readonly #cursor: FileCursor
  readonly #path: string
  readonly #mark: Mark
  #said: FollowStep['step'] | undefined
  #saidDeleted = false

  constructor(cursor: FileCursor, path: string, { mark, said }: Opened) {
    this.#cursor = cursor
    this.#path = path
    this.#mark = mark
    this.#said = said
  }

  marks(): Mark[] {
    return [this.#mark]
  }

  get lagBytes(): number {
    return this.#cursor.lagBytes
  }

  async step(labelBytes: number): Promise<FollowStep> {
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

  #labelled(step: FollowStep['step']): FollowStep {
    return { step, path: this.#path, mark: this.#mark }
  }

  drained(): boolean {
    return this.#cursor.drained()
  }

  rest(beatAtMs: number): Promise<void> {
    return this.#cursor.rest(beatAtMs)
  }

  wake(): void {
    this.#cursor.wake()
  }

  release(): void {
    this.#cursor.release()
  }
}

/** Opens the file and finds where to begin. */
async function openAt(allocation: Allocation, input: StreamInput, at: Beginning, call: Call): Promise<Opened> {
  const content = openFile(allocation, input.path)
  try {
    const log = logHash(input.path)
    if (at.cursor) return resumed(content, at, log, () => openFile(allocation, input.path))
    const position = await positionOf(content, input, at, call.signal)
    return { content, mark: markAt(log, 0, content, position), said: undefined }
  } catch (error) {
    new OpenFile(content.fd).close()
    throw error
  }
}

/** Where a cursor goes on in the file; from its beginning, and said so, when it is another file or was rewritten. */
function resumed(content: Content, at: Beginning, log: number, open: () => Content): Opened {
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

async function positionOf(content: Content, input: StreamInput, at: Beginning, signal: AbortSignal): Promise<number> {
  const { size, mtimeNs } = content.stat
  const { sinceMs, tailLines } = at
  if (sinceMs === undefined && tailLines === undefined) return streamStart(input, Number(size))
  const file = new OpenFile(content.fd)
  const files: PlacedFile[] = [{ index: 0, size: Number(size), modifiedMs: Number(mtimeNs) / 1e6, file }]
  let place = { index: 0, offset: 0 }
  if (sinceMs !== undefined) place = await sincePlace(files, sinceMs, signal)
  if (tailLines !== undefined) place = laterPlace(place, await tailPlace(files, tailLines, signal))
  return place.offset
}

type Host = { allocations: AllocationTable; followers: Followers }

function serve(host: Host, allocation: Allocation, input: StreamInput, call: Call) {
  const scope = scopeHash('stream', allocation.id)
  const at = beginningOf(input, scope)
  const encoder = new Encoder({ framed: true, scope: input.cursor === undefined ? undefined : scope })
  const lines = linesOf(input)
  const stage = lines && new LineStage(encoder, lines)
  const { followers, allocations } = host
  const open = () => openAt(allocation, input, at, call)
  if (!input.follow) {
    const once = async (lease: BufferLease) => new FileOnce(await open(), input.path, lease)
    return leased(encoder.lease, readOnce({ encoder, stage, head, open: once }))
  }
  return follow({
    followers,
    call,
    encoder,
    stage,
    head,
    async open(lease) {
      const opened = await open()
      const { content, mark } = opened
      const { files } = followers
      const cursor = new FileCursor({ files, content, root: allocation.directory, position: mark.offset, lease })
      return new OneFile(cursor, input.path, opened)
    },
    ended: input.end_when_done ? () => tasksEnded(allocations.get(allocation.id), '*') : undefined,
  })
}

export function streamOperation(host: Host): AnyOperation {
  return allocationOperation(host.allocations, {
    name: 'host.fs_stream',
    summary: 'Follow a file as frames',
    path: 'fs/stream/:alloc_id',
    input: streamInput,
    output: 'stream',
    needs: ['read-fs'],
    endless: (input) => input.follow,
    run: (allocation, input, call) => serve(host, allocation, input, call),
  })
}
