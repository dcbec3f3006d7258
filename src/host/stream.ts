/**
 * `fs/stream`: the bytes of one file as frames, and then, if asked, whatever is appended to it.
 *
 * Ends normally when the file is deleted or its name comes to belong to another file, after everything that was written
 * to it, with a frame that says so. A truncation is a frame too, and the stream goes on from the new beginning.
 */
import { fstatSync } from 'node:fs'
import { Refusal } from '../kit/errors.ts'
import type { AnyOperation, Call, Chunk } from '../kit/operation.ts'
import { queryBoolean, queryInteger, queryText, schema } from '../kit/schema.ts'
import { type Content, openFile } from './alloc-files.ts'
import type { Allocation, AllocationTable } from './allocation.ts'
import { allocationOperation, allocIdParam, pathQuery } from './allocation-operation.ts'
import { FileCursor } from './file-cursor.ts'
import { Encoder, type Followers, Heartbeat, NOTHING } from './follow.ts'
import { OpenFile, readSpan } from './read.ts'

export const originQuery = queryText({
  description: 'Where the offset counts from',
  fallback: 'start',
  choices: ['start', 'end'],
  otherwise: 'origin must be start or end',
})

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

async function* readOnce(allocation: Allocation, input: StreamInput): AsyncGenerator<Chunk> {
  const content = openFile(allocation, input.path)
  const file = new OpenFile(content.fd)
  const encoder = new Encoder({ framed: true })
  encoder.setFile(input.path)
  let clean = false
  try {
    let position = streamStart(input, fstatSync(file.fd).size)
    yield HEAD
    const span = { start: position, end: Number.MAX_SAFE_INTEGER, labelBytes: encoder.labelBytes }
    for await (const data of readSpan(file, encoder.lease, span)) {
      yield encoder.data(data, position)
      position += data.length
    }
    yield NOTHING
    clean = true
  } finally {
    file.close()
    if (clean) encoder.lease.rest()
    else encoder.lease.abandon()
  }
}

async function* follow(
  followers: Followers,
  allocation: Allocation,
  input: StreamInput,
  call: Call,
): AsyncGenerator<Chunk> {
  const encoder = new Encoder({ framed: true })
  encoder.setFile(input.path)
  const cursor = openCursor(followers, allocation, input, encoder)
  const onAbort = () => cursor.wake()
  call.signal.addEventListener('abort', onAbort)
  const heartbeat = new Heartbeat()
  try {
    yield HEAD
    yield encoder.heartbeat
    while (!call.signal.aborted) {
      if (heartbeat.due()) {
        yield encoder.heartbeat
        encoder.lease.rest()
      }
      const step = await cursor.step(encoder.labelBytes)
      if (step.kind === 'shared' || step.kind === 'own') yield encoder.step(step)
      else if (step.kind === 'truncated') yield encoder.event('file truncated', 0)
      else if (!cursor.file.deleted) await cursor.rest(heartbeat.dueAtMs)
      else if (cursor.drained()) {
        yield encoder.event('file deleted', cursor.position)
        return
      }
    }
  } finally {
    call.signal.removeEventListener('abort', onAbort)
    cursor.release()
    encoder.lease.abandon()
    followers.leave()
  }
}

/** Counts the follower in and opens its file; every way out of here that throws counts it out again. */
function openCursor(followers: Followers, allocation: Allocation, input: StreamInput, encoder: Encoder): FileCursor {
  followers.enter()
  try {
    const content: Content = openFile(allocation, input.path)
    const position = seekOrClose(content, input)
    return new FileCursor({
      files: followers.files,
      content,
      root: allocation.directory,
      position,
      lease: encoder.lease,
    })
  } catch (error) {
    followers.leave()
    throw error
  }
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
    run: (allocation, input, call) =>
      input.follow ? follow(host.followers, allocation, input, call) : readOnce(allocation, input),
  })
}
