/**
 * Serves streams: the loops that turn the steps of a source into chunks, once or while the client is connected, with a
 * heartbeat every second. A `StreamStage` between source and encoder selects lines.
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

/** Stock clients close streams without heartbeats. */
const HEARTBEAT_MS = 1000

/**
 * A finite stream with the buffers of its lease. They are returned when everything is written, which is certain when the chunk
 * after an empty one is requested, and dropped if the client disconnects before.
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

/** A transformation of the bytes of a source: the selection of lines. */
export interface StreamStage {
  /** Called with the source before its first step. */
  begin(source: StreamSource): void
  /** Chunks for the data of a step. */
  take(sourceStep: SourceDataStep): AsyncIterable<Buffer>
  /** Chunks for buffered data, at the end of the stream. */
  finish(): AsyncIterable<Buffer>
  /** Called after the truncation of a file. */
  reset(mark: FileMark): void
  /** A heartbeat, with a cursor if the stage has progressed. */
  heartbeat(): Buffer
  close(): void
}

interface ServeStreamOptions<S extends StreamSource> {
  readonly encoder: StreamEncoder
  readonly stage?: StreamStage | undefined
  readonly head: (opened: OpenedSource<S>) => Chunk
}

interface FollowStreamOptions extends ServeStreamOptions<FollowSource> {
  readonly followers: Followers
  readonly call: Call
  readonly open: (lease: BufferLease) => Promise<OpenedSource<FollowSource>>
  /** True if nothing more will be written: then the stream ends when everything was sent. */
  readonly ended?: (() => boolean) | undefined
}

/** The stream of one follower, until it disconnects or its source is over. */
export async function* follow(options: FollowStreamOptions): AsyncGenerator<Chunk> {
  const { followers, call, encoder, stage } = options
  const opened = await followers.enter(() => options.open(encoder.lease))
  const source = opened.source
  const onAbort = () => source.wake()
  call.signal.addEventListener('abort', onAbort)
  const heartbeat = new Heartbeat()
  encoder.begin(source)
  stage?.begin(source)
  try {
    yield options.head(opened)
    // With cursors, the client gets one before the first data.
    yield encoder.positionFrame()
    while (!call.signal.aborted) {
      if (heartbeat.due()) {
        yield stage ? stage.heartbeat() : encoder.heartbeat
        encoder.lease.returnBuffers()
      }
      const sourceStep = await source.step(encoder.labelBytes)
      const { step } = sourceStep
      if (step.kind === 'over') break
      if ((step.kind === 'shared' || step.kind === 'private') && !stage) yield encoder.step(step, sourceStep)
      else if (step.kind !== 'end') yield* chunksOf(sourceStep, options)
      else if (!options.ended?.()) await source.sleepUntil(heartbeat.dueAtMs)
      else if (source.drained()) break
      // There is more data: yield before the next step.
      else await nextTurn()
    }
    if (stage && !call.signal.aborted) yield* stage.finish()
  } finally {
    call.signal.removeEventListener('abort', onAbort)
    source.release()
    stage?.close()
    encoder.lease.dropBuffers()
    followers.leave(source)
  }
}

/** The stream of a source that is read once. */
export async function* readOnce<S extends FiniteSource>(
  options: ServeStreamOptions<S> & { readonly open: (lease: BufferLease) => Promise<OpenedSource<S>> },
): AsyncGenerator<Chunk> {
  const { encoder, stage } = options
  let opened: OpenedSource<S> | undefined
  try {
    opened = await options.open(encoder.lease)
    const { source } = opened
    encoder.begin(source)
    stage?.begin(source)
    yield options.head(opened)
    for await (const sourceStep of source.steps(() => encoder.labelBytes)) {
      if (stage || sourceStep.step.kind !== 'private') yield* chunksOf(sourceStep, options)
      else yield encoder.step(sourceStep.step, sourceStep)
    }
    if (stage) yield* stage.finish()
  } finally {
    opened?.source.release()
    stage?.close()
  }
}

/** The chunks of a step. */
async function* chunksOf(
  sourceStep: SourceStep,
  { encoder, stage }: ServeStreamOptions<never>,
): AsyncGenerator<Buffer> {
  const { step } = sourceStep
  if (step.kind === 'shared' || step.kind === 'private') {
    if (stage) yield* stage.take({ ...sourceStep, step })
    else yield encoder.step(step, sourceStep)
  } else if (step.kind === 'truncated') {
    resetMark(sourceStep.mark)
    stage?.reset(sourceStep.mark)
    yield encoder.event('file truncated', 0, sourceStep)
  } else if (step.kind === 'deleted') {
    yield encoder.event('file deleted', step.offset, sourceStep)
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
