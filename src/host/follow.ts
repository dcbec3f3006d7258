/**
 * What `fs/stream` and `fs/logs` share: the limit on followers, the loop that serves one, heartbeats, and turning steps
 * into bytes.
 */
import { Refusal } from '../kit/errors.ts'
import { type FileEvent, FrameLabel, framesBytesMax, HEARTBEAT } from '../kit/frame.ts'
import type { Logger } from '../kit/log.ts'
import type { Call, Chunk } from '../kit/operation.ts'
import { queryText } from '../kit/schema.ts'
import { BufferLease } from './buffers.ts'
import type { Step } from './file-cursor.ts'
import { FollowedFiles } from './followed-file.ts'
import { DirectoryWatches } from './watched-directory.ts'

/** Stock clients give up on a stream that is silent for longer. */
export const HEARTBEAT_MS = 1000

/** A chunk of no bytes; whoever asks for the one behind it has written all before it. */
export const NOTHING = Buffer.alloc(0)

export const originQuery = queryText({
  description: 'Where the offset counts from',
  fallback: 'start',
  choices: ['start', 'end'],
  otherwise: 'origin must be start or end',
})

/** Followers of this agent, and the files they follow. */
export class Followers {
  readonly files: FollowedFiles
  readonly watches: DirectoryWatches
  #limit: number
  #count = 0

  constructor(options: { limit: number; logger: Logger; deletedStallMs?: number }) {
    this.watches = new DirectoryWatches(options.logger)
    this.files = new FollowedFiles(this.watches, options.deletedStallMs)
    this.#limit = 0
    this.setLimit(options.limit)
  }

  get count(): number {
    return this.#count
  }

  /** 0 switches the limit off. */
  setLimit(limit: number): void {
    this.#limit = limit === 0 ? Number.POSITIVE_INFINITY : limit
  }

  /**
   * Counts one follower in, with what it follows; one that cannot be opened does not count. Throws a Refusal when the
   * agent has as many as it may. Pair with `leave`.
   */
  enter<T>(open: () => T): T {
    if (this.#count >= this.#limit) {
      throw new Refusal(
        'too_many',
        `this agent already serves ${this.#count} followers (limits.http_max_followers), try again later`,
        { 'Retry-After': '5' },
      )
    }
    const followed = open()
    this.#count++
    return followed
  }

  leave(): void {
    this.#count--
  }
}

/**
 * A stream that comes to an end, with the buffers it borrows: they go back once everything is written, which is certain
 * when the chunk behind an empty one is asked for, and to the collector when the caller leaves before.
 */
export async function* leased(lease: BufferLease, chunks: AsyncIterable<Chunk>): AsyncGenerator<Chunk> {
  let whole = false
  try {
    yield* chunks
    yield NOTHING
    whole = true
  } finally {
    if (whole) lease.rest()
    else lease.abandon()
  }
}

/** A step of what is followed, and the path that its frames name. */
export interface FollowStep {
  readonly step: Step | { readonly kind: 'deleted'; readonly offset: number } | { readonly kind: 'over' }
  readonly path: string
}

/** What can be followed: one file, or a log of many. */
export interface Followed {
  /** The next thing; `end` when there is nothing for now, `over` when nothing will ever come. Throws to break the stream. */
  step(labelBytes: number): Promise<FollowStep>
  /** Sleeps until there is news or the monotonic time has come. */
  rest(beatAtMs: number): Promise<void>
  wake(): void
  release(): void
}

/** The stream of one follower, until it leaves or what it follows is over. */
export async function* follow(options: {
  followers: Followers
  call: Call
  framed: boolean
  head: Chunk
  open: (lease: BufferLease) => Followed
}): AsyncGenerator<Chunk> {
  const { followers, call, head } = options
  const encoder = new Encoder({ framed: options.framed })
  const followed = followers.enter(() => options.open(encoder.lease))
  const onAbort = () => followed.wake()
  call.signal.addEventListener('abort', onAbort)
  const heartbeat = new Heartbeat()
  try {
    yield head
    yield encoder.heartbeat
    while (!call.signal.aborted) {
      if (heartbeat.due()) {
        yield encoder.heartbeat
        encoder.lease.rest()
      }
      const { step, path } = await followed.step(encoder.labelBytes)
      encoder.setFile(path)
      if (step.kind === 'shared' || step.kind === 'own') yield encoder.step(step)
      else if (step.kind === 'truncated') yield encoder.event('file truncated', 0)
      else if (step.kind === 'deleted') yield encoder.event('file deleted', step.offset)
      else if (step.kind === 'over') return
      else await followed.rest(heartbeat.dueAtMs)
    }
  } finally {
    call.signal.removeEventListener('abort', onAbort)
    followed.release()
    encoder.lease.abandon()
    followers.leave()
  }
}

/** Bytes on the wire for one stream: framed or plain. */
export class Encoder {
  readonly lease: BufferLease
  readonly #framed: boolean
  #label = new FrameLabel('')

  constructor(options: { framed: boolean }) {
    this.#framed = options.framed
    this.lease = new BufferLease({ framed: options.framed })
  }

  /** From now on, frames name this file. */
  setFile(path: string): void {
    if (this.#label.file !== path) this.#label = new FrameLabel(path)
  }

  get labelBytes(): number {
    return this.#framed ? this.#label.bytes : 0
  }

  /**
   * A sign of life; no bytes when plain. Once it has been taken (the caller asked for the chunk behind it), every chunk
   * before it is written, so the buffers can go back.
   */
  get heartbeat(): Buffer {
    return this.#framed ? HEARTBEAT : NOTHING
  }

  event(event: FileEvent, offset: number): Buffer {
    return this.#framed ? this.#label.eventFrame(event, offset) : NOTHING
  }

  /** Bytes for a step that carries data. */
  step(step: Extract<Step, { kind: 'shared' | 'own' }>): Buffer {
    if (step.kind === 'own') return this.data(step.data, step.start)
    return this.#framed ? step.chunk.frame(this.#label) : step.chunk.data
  }

  /** Bytes for data that lies in the lease's read buffer. `start` is its offset in the file. */
  data(data: Buffer, start: number): Buffer {
    if (!this.#framed) return data
    let target = this.lease.framesBuffer()
    const most = framesBytesMax(data.length, this.#label)
    if (most > target.length) target = Buffer.allocUnsafeSlow(most)
    return target.subarray(0, this.#label.encodeFrames(data, 0, data.length, start, target, 0))
  }
}

/** When the next heartbeat is due, without drifting. */
class Heartbeat {
  dueAtMs = performance.now() + HEARTBEAT_MS

  /** True once per period. */
  due(): boolean {
    const nowMs = performance.now()
    if (nowMs < this.dueAtMs) return false
    this.dueAtMs += HEARTBEAT_MS
    if (this.dueAtMs < nowMs) this.dueAtMs = nowMs + HEARTBEAT_MS
    return true
  }
}
