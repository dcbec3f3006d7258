/**
 * What `fs/stream` and `fs/logs` share: the limit on followers, heartbeats, and turning a cursor's steps into bytes.
 */
import { Refusal } from '../kit/errors.ts'
import { type FileEvent, FrameLabel, framesBytesMax, HEARTBEAT } from '../kit/frame.ts'
import type { Logger } from '../kit/log.ts'
import { BufferLease } from './buffers.ts'
import type { Step } from './file-cursor.ts'
import { FollowedFiles } from './followed-file.ts'
import { DirectoryWatches } from './watched-directory.ts'

/** Stock clients give up on a stream that is silent for longer. */
export const HEARTBEAT_MS = 1000

/** A chunk of no bytes; whoever asks for the one behind it has written all before it. */
export const NOTHING = Buffer.alloc(0)

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

  /** Counts one follower in; throws a Refusal when the agent has as many as it may. Pair with `leave`. */
  enter(): void {
    if (this.#count >= this.#limit) {
      throw new Refusal(
        'too_many',
        `this agent already serves ${this.#count} followers (limits.http_max_followers), try again later`,
        { 'Retry-After': '5' },
      )
    }
    this.#count++
  }

  leave(): void {
    this.#count--
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
export class Heartbeat {
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
