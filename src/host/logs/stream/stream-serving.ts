/**
 * ServeOptions a stream: the loops that ask a source for its steps and make chunks of them, once or for as long as the caller
 * stays, with a sign of life every second. Between source and encoder a `StreamStage` may stand: the search for lines.
 */
import { nextTurn } from '../../../platform/scheduler.ts'
import type { Call, Chunk } from '../../../platform/operation.ts'
import type { BufferLease } from '../../files/buffers.ts'
import { resetMark, type FileMark } from '../locate/resume-cursor.ts'
import type { Followers } from '../follow/followers.ts'
import { type StreamEncoder, NOTHING } from './stream-encoder.ts'
import type {
  FollowSource,
  FiniteSource,
  OpenedSource,
  StreamSource,
  SourceDataStep,
  SourceStep,
} from '../follow/stream-source.ts'

/** Stock clients give up on a stream that is silent for longer. */
const HEARTBEAT_MS = 1000

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
    if (whole) lease.returnBuffers()
    else lease.dropBuffers()
  }
}

/** What stands between the bytes of a source and its caller, if anything does: the search for lines. */
export interface StreamStage {
  /** What the bytes come from, before the first of them. */
  begin(source: StreamSource): void
  /** Chunks for the data of a step. */
  take(taken: SourceDataStep): AsyncIterable<Buffer>
  /** Chunks for what was held back, at the end. */
  finish(): AsyncIterable<Buffer>
  /** The file of a step was truncated. */
  reset(mark: FileMark): void
  /** A sign of life; it may tell how far the stage has got. */
  heartbeat(): Buffer
  close(): void
}

/** How one stream is served, whatever it is of. */
interface ServeOptions<S extends StreamSource> {
  readonly encoder: StreamEncoder
  readonly stage?: StreamStage | undefined
  readonly head: (opened: OpenedSource<S>) => Chunk
}

interface FollowOptions extends ServeOptions<FollowSource> {
  readonly followers: Followers
  readonly call: Call
  readonly open: (lease: BufferLease) => Promise<OpenedSource<FollowSource>>
  /** True once nothing more will be written: the stream then ends, when everything has been given. */
  readonly ended?: (() => boolean) | undefined
}

/** The stream of one follower, until it leaves or what it follows is over. */
export async function* follow(options: FollowOptions): AsyncGenerator<Chunk> {
  const { followers, call, encoder, stage } = options
  const opened = await followers.enter(() => options.open(encoder.lease))
  const followed = opened.source
  const onAbort = () => followed.wake()
  call.signal.addEventListener('abort', onAbort)
  const heartbeat = new Heartbeat()
  encoder.begin(followed)
  stage?.begin(followed)
  try {
    yield options.head(opened)
    // Who asked for cursors has one from the first moment on, before there is any data.
    yield encoder.positionFrame()
    while (!call.signal.aborted) {
      if (heartbeat.due()) {
        yield stage ? stage.heartbeat() : encoder.heartbeat
        encoder.lease.returnBuffers()
      }
      const taken = await followed.step(encoder.labelBytes)
      const { step } = taken
      if (step.kind === 'over') break
      if ((step.kind === 'shared' || step.kind === 'private') && !stage) yield encoder.step(step, taken)
      else if (step.kind !== 'end') yield* chunksOf(taken, options)
      else if (!options.ended?.()) await followed.sleepUntil(heartbeat.dueAtMs)
      else if (followed.drained()) break
      // Whatever it is that is left: others have their turn before it is looked for again.
      else await nextTurn()
    }
    if (stage && !call.signal.aborted) yield* stage.finish()
  } finally {
    call.signal.removeEventListener('abort', onAbort)
    followed.release()
    stage?.close()
    encoder.lease.dropBuffers()
    followers.leave(followed)
  }
}

/** The stream of a source that is read once. */
export async function* readOnce<S extends FiniteSource>(
  options: ServeOptions<S> & { readonly open: (lease: BufferLease) => Promise<OpenedSource<S>> },
): AsyncGenerator<Chunk> {
  const { encoder, stage } = options
  let opened: OpenedSource<S> | undefined
  try {
    opened = await options.open(encoder.lease)
    const { source } = opened
    encoder.begin(source)
    stage?.begin(source)
    yield options.head(opened)
    for await (const taken of source.steps(() => encoder.labelBytes)) {
      if (stage || taken.step.kind !== 'private') yield* chunksOf(taken, options)
      else yield encoder.step(taken.step, taken)
    }
    if (stage) yield* stage.finish()
  } finally {
    opened?.source.release()
    stage?.close()
  }
}

/** What a caller is sent for a step. */
async function* chunksOf(taken: SourceStep, { encoder, stage }: ServeOptions<never>): AsyncGenerator<Buffer> {
  const { step } = taken
  if (step.kind === 'shared' || step.kind === 'private') {
    if (stage) yield* stage.take({ ...taken, step })
    else yield encoder.step(step, taken)
  } else if (step.kind === 'truncated') {
    resetMark(taken.mark)
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
