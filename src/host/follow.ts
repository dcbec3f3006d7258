/**
 * What `fs/stream` and `fs/logs` share: the limit on followers, the loop that serves one, heartbeats, and turning steps
 * into bytes.
 */
import { setImmediate } from 'node:timers/promises'
import { Refusal } from '../kit/errors.ts'
import type { Logger } from '../kit/log.ts'
import type { Call, Chunk } from '../kit/operation.ts'
import { queryText } from '../kit/schema.ts'
import type { BufferLease } from './buffers.ts'
import { forgetPlace, type Mark } from './cursor-code.ts'
import type { Step } from './file-cursor.ts'
import { FollowedFiles } from './followed-file.ts'
import { type DataStep, type Encoder, NOTHING, type Source } from './stream-encoder.ts'
import { DirectoryWatches } from './watched-directory.ts'

/** Stock clients give up on a stream that is silent for longer. */
export const HEARTBEAT_MS = 1000

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
  readonly #open = new Set<Followed>()

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
   * Counts one follower in, with what it follows; one that cannot be opened does not count. Rejects with a Refusal when
   * the agent has as many as it may. Pair with `leave`.
   */
  async enter(open: () => Followed | Promise<Followed>): Promise<Followed> {
    if (this.#count >= this.#limit) {
      throw new Refusal(
        'too_many',
        `this agent already serves ${this.#count} followers (limits.http_max_followers), try again later`,
        { 'Retry-After': '5' },
      )
    }
    this.#count++
    try {
      const followed = await open()
      this.#open.add(followed)
      return followed
    } catch (error) {
      this.#count--
      throw error
    }
  }

  leave(followed: Followed): void {
    this.#count--
    this.#open.delete(followed)
  }

  /** How many follow each kind of thing, and how far they are behind. */
  figures(): Readonly<Record<FollowedKind, FollowerFigures>> {
    const figures = { log: { count: 0, lagBytes: 0, lagBytesMax: 0 }, file: { count: 0, lagBytes: 0, lagBytesMax: 0 } }
    for (const { kind, lagBytes } of this.#open) {
      const sum = figures[kind]
      sum.count++
      sum.lagBytes += lagBytes
      sum.lagBytesMax = Math.max(sum.lagBytesMax, lagBytes)
    }
    return figures
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

/** A step of what is followed, the path that its frames name, and the mark of the file it comes from. */
export interface FollowStep {
  readonly step: Step | { readonly kind: 'deleted'; readonly offset: number } | { readonly kind: 'over' }
  readonly path: string
  readonly mark: Mark
}

export interface FollowedData extends FollowStep {
  readonly step: DataStep
}

export type FollowedKind = 'log' | 'file'

export interface FollowerFigures {
  readonly count: number
  /** Of all together, and of the one that is furthest behind. */
  readonly lagBytes: number
  readonly lagBytesMax: number
}

/** What can be followed. */
export interface Followed extends Source {
  readonly kind: FollowedKind
  /** Bytes of the file it is in that it has not been given, as of the last look at that file. */
  readonly lagBytes: number
  /** The next thing; `end` when there is nothing for now, `over` when nothing will ever come. Throws to break the stream. */
  step(labelBytes: number): Promise<FollowStep>
  /** Sleeps until there is news or the monotonic time has come. */
  rest(beatAtMs: number): Promise<void>
  wake(): void
  /** Looks once more; true when everything that was written up to this moment has been given. */
  drained(): boolean
  release(): void
}

/** What is read once: to the end that it has when it gets there. */
export interface Once extends Source {
  steps(labelBytes: () => number): AsyncIterable<FollowStep>
  /** Lets go of what is open, whether `steps` was begun or not. */
  release(): void
}

/** What stands between the bytes of a source and its caller, if anything does: the search for lines. */
export interface Stage {
  /** What the bytes come from, before the first of them. */
  begin(source: Source): void
  /** Chunks for the data of a step. */
  take(taken: FollowedData): AsyncIterable<Buffer>
  /** Chunks for what was held back, at the end. */
  finish(): AsyncIterable<Buffer>
  /** The file of a step was truncated. */
  reset(mark: Mark): void
  /** A sign of life; it may tell how far the stage has got. */
  heartbeat(): Buffer
  close(): void
}

/** How one stream is served, whatever it is of. */
interface Serving<S extends Source> {
  readonly encoder: Encoder
  readonly stage?: Stage | undefined
  readonly head: (source: S) => Chunk
}

interface Following extends Serving<Followed> {
  readonly followers: Followers
  readonly call: Call
  readonly open: (lease: BufferLease) => Followed | Promise<Followed>
  /** True once nothing more will be written: the stream then ends, when everything has been given. */
  readonly ended?: (() => boolean) | undefined
}

/** The stream of one follower, until it leaves or what it follows is over. */
export async function* follow(options: Following): AsyncGenerator<Chunk> {
  const { followers, call, encoder, stage } = options
  const followed = await followers.enter(() => options.open(encoder.lease))
  const onAbort = () => followed.wake()
  call.signal.addEventListener('abort', onAbort)
  const heartbeat = new Heartbeat()
  encoder.begin(followed)
  stage?.begin(followed)
  try {
    yield options.head(followed)
    // Who asked for cursors has one from the first moment on, before there is any data.
    yield encoder.placeFrame()
    while (!call.signal.aborted) {
      if (heartbeat.due()) {
        yield stage ? stage.heartbeat() : encoder.heartbeat
        encoder.lease.rest()
      }
      const taken = await followed.step(encoder.labelBytes)
      const { step } = taken
      if (step.kind === 'over') break
      if ((step.kind === 'shared' || step.kind === 'own') && !stage) yield encoder.step(step, taken)
      else if (step.kind !== 'end') yield* chunksOf(taken, options)
      else if (!options.ended?.()) await followed.rest(heartbeat.dueAtMs)
      else if (followed.drained()) break
      // Whatever it is that is left: others have their turn before it is looked for again.
      else await setImmediate()
    }
    if (stage && !call.signal.aborted) yield* stage.finish()
  } finally {
    call.signal.removeEventListener('abort', onAbort)
    followed.release()
    stage?.close()
    encoder.lease.abandon()
    followers.leave(followed)
  }
}

/** The stream of a source that is read once. */
export async function* readOnce<S extends Once>(
  options: Serving<S> & { readonly open: (lease: BufferLease) => S | Promise<S> },
): AsyncGenerator<Chunk> {
  const { encoder, stage } = options
  let source: S | undefined
  try {
    source = await options.open(encoder.lease)
    encoder.begin(source)
    stage?.begin(source)
    yield options.head(source)
    for await (const taken of source.steps(() => encoder.labelBytes)) {
      if (stage || taken.step.kind !== 'own') yield* chunksOf(taken, options)
      else yield encoder.step(taken.step, taken)
    }
    if (stage) yield* stage.finish()
  } finally {
    source?.release()
    stage?.close()
  }
}

/** What a caller is sent for a step. */
async function* chunksOf(taken: FollowStep, { encoder, stage }: Serving<never>): AsyncGenerator<Buffer> {
  const { step } = taken
  if (step.kind === 'shared' || step.kind === 'own') {
    if (stage) yield* stage.take({ ...taken, step })
    else yield encoder.step(step, taken)
  } else if (step.kind === 'truncated') {
    forgetPlace(taken.mark)
    stage?.reset(taken.mark)
    yield encoder.event('file truncated', 0, taken)
  } else if (step.kind === 'deleted') {
    yield encoder.event('file deleted', step.offset, taken)
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
