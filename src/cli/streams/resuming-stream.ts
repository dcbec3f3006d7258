/**
 * A stream of frames that resumes after a broken connection, for `logs` and `fs tail`.
 *
 * The stream requests cursors, keeps the cursor of the last frame that the consumer has processed (in the logs of a job: of each
 * allocation), and retries from there, so nothing is lost or repeated. The server sends a heartbeat every second: a connection without
 * a byte for five seconds is broken. A clean end of the response ends the stream. A client error (4xx except 408 and 429) ends it with
 * the text of the response.
 *
 * With a server without cursors, the stream cannot resume exactly; a remark reports that.
 */
import type { IncomingMessage } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../platform/errors.ts'
import { CommandError } from '../framework/define-command.ts'
import { type Frame, FrameReader, MalformedFrame } from './frame-reader.ts'
import type { AgentTarget } from '../client/agent-target.ts'
import { openResponse, type Query, AgentRefusal, requireSuccess } from '../client/http-client.ts'
import { AllocationCursor, type ResumeRequest, type StreamCursors } from './stream-cursors.ts'

/** Tolerates several late heartbeats. */
const SILENCE_MS = 5000
/** For the first response: the server may have to search for the start position. */
const FIRST_HEAD_MS = 60_000
const RETRY_MIN_MS = 100
const RETRY_MAX_MS = 2000

export interface StreamRequest {
  readonly target: AgentTarget
  readonly path: string
  readonly query: Query
  /** False: a broken connection is an error. */
  readonly resume: boolean
  /** Default: those of one allocation. */
  readonly cursors?: StreamCursors
  /** Aborting it ends the stream without an error. */
  readonly signal: AbortSignal
  readonly outage: OutageReporter
}

/** Receives the start and end of each outage. */
export interface OutageReporter {
  lost(reason: string): void
  /** `remark`: how the resumption is inexact; usually empty. */
  resumed(remark: string): void
}

interface StreamPosition {
  /** Delay before the next attempt; grows while connections break without data. */
  retryDelayMs: number
  readonly cursors: StreamCursors
  /** Bytes of data processed: the position for a server without cursors. */
  bytes: number
}

/** Frames with data or an event, in order, each once. Throws CommandError. */
export async function* framesOf(request: StreamRequest): AsyncGenerator<Frame> {
  const { cursors = new AllocationCursor() } = request
  const position: StreamPosition = { retryDelayMs: RETRY_MIN_MS, cursors, bytes: 0 }
  let response = await open(request, position, FIRST_HEAD_MS)
  while (response) {
    const broken = yield* framesUntilBroken(response, request.signal, position)
    if (broken === undefined || request.signal.aborted) return
    response = await reopen(request, position, broken)
  }
}

/** Resolves to undefined when the signal has aborted. */
async function open(
  request: StreamRequest,
  position: StreamPosition,
  timeoutMs: number,
): Promise<IncomingMessage | undefined> {
  const { cursors } = position
  const first = request.resume ? { ...request.query, cursor: '' } : request.query
  const next = cursors.hasPosition ? cursors.resume(request.query) : { query: first }
  try {
    return await requestStream(request, next, timeoutMs)
  } catch (error) {
    if (request.signal.aborted) return undefined
    throw error
  }
}

async function requestStream(request: StreamRequest, next: ResumeRequest, timeoutMs: number): Promise<IncomingMessage> {
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), timeoutMs)
  try {
    const signal = AbortSignal.any([request.signal, late.signal])
    const response = await openResponse(request.target, { path: request.path, ...next, signal })
    await requireSuccess(response, request.target)
    return response
  } catch (error) {
    if (!late.signal.aborted) throw error
    const where = request.target.url.origin
    throw new CommandError(`${where} did not respond within ${timeoutMs / 1000} s, check that the agent is running`)
  } finally {
    clearTimeout(timer)
  }
}

/** Retries until the server answers. Resolves to undefined when the signal has aborted; throws CommandError. */
async function reopen(
  request: StreamRequest,
  position: StreamPosition,
  reason: string,
): Promise<IncomingMessage | undefined> {
  const where = request.target.url.origin
  const { bytes, cursors } = position
  if (!request.resume) throw new CommandError(`connection to ${where} lost (${reason})`)
  if (!cursors.hasPosition && !cursors.isOneLog && bytes > 0) {
    throw new CommandError(
      `connection to ${where} lost (${reason}): the server has no cursors for the logs of a job, run the command again with -since`,
    )
  }
  request.outage.lost(reason)
  const { again, remark } = resumeRequest(request, position)
  for (;;) {
    const { retryDelayMs } = position
    position.retryDelayMs = Math.min(retryDelayMs * 2, RETRY_MAX_MS)
    await delay(retryDelayMs, undefined, { signal: request.signal }).catch(() => undefined)
    if (request.signal.aborted) return undefined
    try {
      const response = await open(again, position, SILENCE_MS)
      if (response) request.outage.resumed(remark)
      return response
    } catch (error) {
      if (error instanceof AgentRefusal && error.isFinal) {
        throw new CommandError(`cannot resume: ${error.message}`, 1, { cause: error })
      }
    }
  }
}

/** The next request: with the cursor, or approximately without one. */
function resumeRequest(request: StreamRequest, position: StreamPosition): { again: StreamRequest; remark: string } {
  if (position.cursors.hasPosition || position.bytes === 0) return { again: request, remark: '' }
  const { tail_lines: lines, since, ...query } = request.query
  const fromStart = query['origin'] !== 'end' && lines === undefined && since === undefined
  if (fromStart) {
    const offset = Number(query['offset'] ?? 0) + position.bytes
    return {
      again: { ...request, query: { ...query, offset } },
      remark: ' by byte count, because the server has no cursors: data may be missing if the log was rotated',
    }
  }
  return {
    again: { ...request, query: { ...query, origin: 'end', offset: 1 } },
    remark: ' at the end, because the server has no cursors: data that was written in the meantime is missing',
  }
}

/** Yields until the response ends. Returns why it broke, or undefined for a clean end. */
async function* framesUntilBroken(
  response: IncomingMessage,
  signal: AbortSignal,
  position: StreamPosition,
): AsyncGenerator<Frame, string | undefined> {
  const reader = new FrameReader()
  const silence = new SilenceTimer(response)
  const leave = () => void response.destroy()
  signal.addEventListener('abort', leave)
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      silence.isWaiting = false
      reader.push(chunk)
      for (let frame = reader.next(); frame; frame = reader.next()) {
        if (frame.data || frame.event !== '') {
          position.retryDelayMs = RETRY_MIN_MS
          yield frame
        }
        // After the yield, when the consumer has processed the frame.
        position.cursors.record(frame)
        position.bytes += frame.data?.length ?? 0
      }
      silence.wait()
    }
    return reader.pending === 0 ? undefined : 'ended within a frame'
  } catch (error) {
    if (signal.aborted) return undefined
    if (error instanceof MalformedFrame) throw new CommandError(`the agent ended the stream: ${oneLine(error.message)}`)
    if (silence.hasExpired) return `no data for ${SILENCE_MS / 1000} s`
    return reasonOf(error)
  } finally {
    silence.end()
    signal.removeEventListener('abort', leave)
    response.destroy()
  }
}

/** Breaks the response after a wait of `SILENCE_MS`. The time of the consumer does not count. */
class SilenceTimer {
  isWaiting = true
  hasExpired = false
  #sinceMs = performance.now()
  #checkedMs = this.#sinceMs
  readonly #timer: NodeJS.Timeout

  constructor(response: IncomingMessage) {
    this.#timer = setInterval(() => {
      const nowMs = performance.now()
      // The process was suspended: data that has arrived in the meantime is read first.
      if (nowMs - this.#checkedMs > SILENCE_MS / 2) this.#sinceMs = nowMs
      this.#checkedMs = nowMs
      if (!this.isWaiting || nowMs - this.#sinceMs < SILENCE_MS) return
      this.hasExpired = true
      response.destroy(new Error('silent'))
    }, SILENCE_MS / 10)
  }

  wait(): void {
    this.#sinceMs = performance.now()
    this.isWaiting = true
  }

  end(): void {
    clearInterval(this.#timer)
  }
}

function reasonOf(error: unknown): string {
  const message = messageOf(error)
  return message === 'aborted' ? 'closed by the agent' : message
}

function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ')
}
