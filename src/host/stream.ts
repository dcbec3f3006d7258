/**
 * `fs/stream`: the bytes of one file as frames, and then, if asked, whatever is appended to it.
 *
 * Ends normally when the file is deleted or its name comes to belong to another file, after everything that was written
 * to it, with a frame that says so. A truncation is a frame too, and the stream goes on from the new beginning.
 */
import { fstatSync } from 'node:fs'
import { Refusal } from '../kit/errors.ts'
import type { AnyOperation, Chunk } from '../kit/operation.ts'
import { queryBoolean, queryInteger, schema } from '../kit/schema.ts'
import { type Content, openFile } from './alloc-files.ts'
import type { Allocation, AllocationTable } from './allocation.ts'
import { allocationOperation, allocIdParam, pathQuery } from './allocation-operation.ts'
import { FileCursor } from './file-cursor.ts'
import type { BufferLease } from './buffers.ts'
import { Encoder, follow, type Followed, type Followers, type FollowStep, leased, originQuery } from './follow.ts'
import { OpenFile, readSpan } from './read.ts'

interface StreamInput {
  readonly alloc_id: string
  readonly path: string
  readonly follow: boolean
  readonly offset: number
  readonly origin: string
}

const streamInput = schema({
  alloc_id: allocIdParam,
  path: pathQuery,
  follow: queryBoolean({ description: 'Go on with what is appended', fallback: true }),
  offset: queryInteger({ description: 'First byte, counted from the origin', fallback: 0, required: true }),
  origin: originQuery,
})

const HEAD: Chunk = {
  status: 200,
  contentType: 'text/plain; charset=utf-8',
  headers: { 'X-Content-Type-Options': 'nosniff' },
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

async function* readOnce(allocation: Allocation, input: StreamInput, encoder: Encoder): AsyncGenerator<Chunk> {
  const content = openFile(allocation, input.path)
  const file = new OpenFile(content.fd)
  encoder.setFile(input.path)
  try {
    let position = streamStart(input, fstatSync(file.fd).size)
    yield HEAD
    const span = { start: position, end: Number.MAX_SAFE_INTEGER, labelBytes: encoder.labelBytes }
    for await (const data of readSpan(file, encoder.lease, span)) {
      yield encoder.data(data, position)
      position += data.length
    }
  } finally {
    file.close()
  }
}

/** One file as what is followed: over when it is deleted, or its name belongs to another file, and all was read. */
class OneFile implements Followed {
  readonly #cursor: FileCursor
  readonly #path: string
  #saidDeleted = false

  constructor(cursor: FileCursor, path: string) {
    this.#cursor = cursor
    this.#path = path
  }

  async step(labelBytes: number): Promise<FollowStep> {
    for (;;) {
      const taken = this.#cursor.step(labelBytes)
      const step = taken instanceof Promise ? await taken : taken
      if (step.kind !== 'end' || !this.#cursor.file.deleted) return { step, path: this.#path }
      if (!this.#cursor.drained()) continue
      if (this.#saidDeleted) return { step: { kind: 'over' }, path: this.#path }
      this.#saidDeleted = true
      return { step: { kind: 'deleted', offset: this.#cursor.position }, path: this.#path }
    }
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

function openOne(followers: Followers, allocation: Allocation, input: StreamInput, lease: BufferLease): Followed {
  const content = openFile(allocation, input.path)
  const position = seekOrClose(content, input)
  const { files } = followers
  return new OneFile(new FileCursor({ files, content, root: allocation.directory, position, lease }), input.path)
}

function seekOrClose(content: Content, input: StreamInput): number {
  try {
    return streamStart(input, Number(content.stat.size))
  } catch (error) {
    new OpenFile(content.fd).close()
    throw error
  }
}

export function streamOperation(host: { allocations: AllocationTable; followers: Followers }): AnyOperation {
  return allocationOperation(host.allocations, {
    name: 'host.fs_stream',
    summary: 'Follow a file as frames',
    path: 'fs/stream/:alloc_id',
    input: streamInput,
    output: 'stream',
    needs: ['read-fs'],
    endless: (input) => input.follow,
    run(allocation, input, call) {
      const { followers } = host
      if (input.follow) {
        const open = (lease: BufferLease) => openOne(followers, allocation, input, lease)
        return follow({ followers, call, framed: true, head: HEAD, open })
      }
      const encoder = new Encoder({ framed: true })
      return leased(encoder.lease, readOnce(allocation, input, encoder))
    },
  })
}
