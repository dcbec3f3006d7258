/**
 * The stream of a tail: frames in order, each once, over broken connections. Each frame has a cursor; after a break the request is repeated
 * with the last cursor of the frames that were handled. The server sends a heartbeat each second, so a connection without a byte for
 * `SILENCE_MS` is broken.
 */
import { ApiError } from '../../../api/client.ts'
import { type Frame, FrameReader, MalformedFrame } from '../../../api/frame-reader.ts'
import { followRequest, type LogRequest, type LogSelection, type LogTarget } from './log-target.ts'

const SILENCE_MS = 5000
const RETRY_MIN_MS = 250
const RETRY_MAX_MS = 5000
/** A thousand lines: handled in a few milliseconds. */
const PIECE_BYTES = 128 * 1024
/** After a restart, a host reads its allocations first. */
const NOT_FOUND_RETRY_MS = 30_000

export type StreamState =
  | { readonly kind: 'connecting' }
  /** The server has no such log yet; `reason` is its text. */
  | { readonly kind: 'waiting'; readonly reason: string }
  | { readonly kind: 'open' }
  | { readonly kind: 'disconnected'; readonly reason: string }
  /** The tasks have ended and everything was received. */
  | { readonly kind: 'ended' }
  | { readonly kind: 'failed'; readonly error: Error }

type Chunks = AsyncIterable<Uint8Array | string>

export interface StreamEnvironment {
  /** Rejects with an ApiError. Its chunks reject when the connection breaks, and when `signal` aborts. */
  readonly open: (request: LogRequest, signal: AbortSignal) => Promise<Chunks>
  /** Resolves earlier when `signal` aborts. */
  readonly delay: (ms: number, signal: AbortSignal) => Promise<void>
  /** Awaited before each chunk: limits the rate, and pauses reading. */
  readonly admit: () => Promise<void> | undefined
}

export interface StreamListener {
  readonly onFrames: (frames: readonly Frame[]) => void
  readonly onState: (state: StreamState) => void
}

export class ResumingStream {
  readonly #target: LogTarget
  readonly #selection: LogSelection
  readonly #environment: StreamEnvironment
  readonly #listener: StreamListener
  readonly #cursors = new Map<string, string>()
  #retryDelayMs = RETRY_MIN_MS
  #brokenAtMs: number | undefined

  constructor(target: LogTarget, selection: LogSelection, environment: StreamEnvironment, listener: StreamListener) {
    this.#target = target
    this.#selection = selection
    this.#environment = environment
    this.#listener = listener
  }

  /** Resolves when the stream has ended or failed, and when `signal` aborts. May be called again to continue at the last cursor. */
  async run(signal: AbortSignal): Promise<void> {
    this.#listener.onState({ kind: 'connecting' })
    while (!signal.aborted) {
      const end = await this.#connect(signal)
      if (signal.aborted) return
      this.#listener.onState(end)
      if (end.kind === 'ended' || end.kind === 'failed') return
      this.#brokenAtMs ??= Date.now()
      const delayMs = this.#retryDelayMs
      this.#retryDelayMs = Math.min(delayMs * 2, RETRY_MAX_MS)
      await this.#environment.delay(delayMs, signal)
    }
  }

  /** One connection. Resolves with the state after its end. */
  async #connect(signal: AbortSignal): Promise<StreamState> {
    const connection = new AbortController()
    const leave = () => connection.abort()
    signal.addEventListener('abort', leave)
    try {
      const request = followRequest(this.#target, this.#selection, this.#cursors)
      const chunks = await this.#environment.open(request, connection.signal)
      this.#listener.onState({ kind: 'open' })
      return await this.#read(chunks, connection)
    } catch (error) {
      return this.#stateAfter(error)
    } finally {
      signal.removeEventListener('abort', leave)
      connection.abort()
    }
  }

  async #read(chunks: Chunks, connection: AbortController): Promise<StreamState> {
    const reader = new FrameReader()
    const iterator = chunks[Symbol.asyncIterator]()
    for (;;) {
      await this.#environment.admit()
      const timer = setTimeout(() => connection.abort(), SILENCE_MS)
      const { done, value } = await iterator.next().finally(() => clearTimeout(timer))
      if (done) break
      for (const [index, piece] of piecesOf(value).entries()) {
        if (index > 0) await this.#environment.admit()
        const frames = reader.push(piece)
        this.#listener.onFrames(frames)
        for (const frame of frames) this.#record(frame)
        if (connection.signal.aborted) throw new Error('aborted')
      }
      this.#retryDelayMs = RETRY_MIN_MS
      this.#brokenAtMs = undefined
    }
    if (!reader.isComplete) return { kind: 'disconnected', reason: 'the stream ended within a frame' }
    // The log of a job has no end: its server stops.
    return this.#target.kind === 'job'
      ? { kind: 'disconnected', reason: 'the server closed the stream' }
      : { kind: 'ended' }
  }

  #record({ allocationId, cursor }: Frame): void {
    if (cursor !== undefined) this.#cursors.set(this.#target.kind === 'job' ? allocationId : '', cursor)
  }

  #stateAfter(error: unknown): StreamState {
    if (error instanceof MalformedFrame) return { kind: 'disconnected', reason: error.message }
    if (!(error instanceof ApiError)) return { kind: 'disconnected', reason: 'the connection broke' }
    const { message, status } = error
    if (status === 404 && this.#mayAppear()) return { kind: 'waiting', reason: message }
    const isRetryable = status === 0 || status === 408 || status === 429 || status >= 500
    return isRetryable ? { kind: 'disconnected', reason: message } : { kind: 'failed', error }
  }

  /** A log that was never read may start later; one that was read is there again soon after a restart of its host. */
  #mayAppear(): boolean {
    if (this.#cursors.size === 0 && this.#selection.cursor === undefined) return true
    return this.#brokenAtMs === undefined || Date.now() - this.#brokenAtMs < NOT_FOUND_RETRY_MS
  }
}

/** A browser may return megabytes at once, whose lines take longer than a frame of the screen. */
function piecesOf(chunk: Uint8Array | string): (Uint8Array | string)[] {
  if (chunk.length <= PIECE_BYTES) return [chunk]
  const pieces: (Uint8Array | string)[] = []
  for (let from = 0; from < chunk.length; from += PIECE_BYTES) {
    const to = from + PIECE_BYTES
    pieces.push(typeof chunk === 'string' ? chunk.slice(from, to) : chunk.subarray(from, to))
  }
  return pieces
}
