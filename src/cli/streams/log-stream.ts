/**
 * A stream of frames that goes on when its connection breaks: what `logs` and `fs tail` follow with.
 *
 * It asks for cursors, remembers that of the last frame its receiver has taken, and asks again from there until it is
 * answered: nothing lost, nothing repeated, however often the agent restarts. A connection without a byte for five
 * seconds is a broken one, as a heartbeat comes every second. A clean end is the end. An answer that says the request
 * is wrong (4xx, but not 408 and 429) ends it too, with that answer's text.
 *
 * A server that gives no cursors is served as well, but cannot be resumed exactly: that is said when it happens.
 */
import type { IncomingMessage } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from '../../platform/errors.ts'
import { CommandError } from '../framework/command-shape.ts'
import { type Frame, FrameReader, NotAFrame } from './frame-reader.ts'
import type { AgentTarget } from '../client/agent-target.ts'
import { openResponse, type Query, RefusedByAgent, requireSuccess } from '../client/http-client.ts'

/** Two heartbeats may be late. */
const SILENCE_MS = 5000
/** For the first head: a server may have to search for where to begin. */
const FIRST_HEAD_MS = 60_000
const WAIT_FIRST_MS = 100
const WAIT_MOST_MS = 2000

export interface StreamRequest {
  readonly target: AgentTarget
  readonly path: string
  readonly query: Query
  /** False: a broken connection is an error. */
  readonly resume: boolean
  /** Aborting it ends the stream quietly. */
  readonly signal: AbortSignal
  readonly outage: Outage
}

/** Hears of each break of a connection, and of its end. */
export interface Outage {
  lost(reason: string): void
  /** `remark` says what is not exact about it; mostly empty. */
  resumed(remark: string): void
}

interface Place {
  /** How long to wait before asking again; grows while connections break without having brought anything. */
  waitMs: number
  cursor: string | undefined
  /** Bytes of data taken so far: where a server without cursors may be asked to go on. */
  bytes: number
}

/** Frames with data or an event, in order, each once. Throws CommandError. */
export async function* framesOf(request: StreamRequest): AsyncGenerator<Frame> {
  const place: Place = { waitMs: WAIT_FIRST_MS, cursor: undefined, bytes: 0 }
  let response = await opened(request, place, FIRST_HEAD_MS)
  while (response) {
    const broken = yield* framesUntilBroken(response, request.signal, place)
    if (broken === undefined || request.signal.aborted) return
    response = await reopened(request, place, broken)
  }
}

/** Resolves to undefined when the signal ended it. */
async function opened(request: StreamRequest, place: Place, patienceMs: number): Promise<IncomingMessage | undefined> {
  const first = request.resume ? { ...request.query, cursor: '' } : request.query
  const query = place.cursor === undefined ? first : resumed(request.query, place.cursor)
  try {
    return await answered(request, query, patienceMs)
  } catch (error) {
    if (request.signal.aborted) return undefined
    throw error
  }
}

async function answered(request: StreamRequest, query: Query, patienceMs: number): Promise<IncomingMessage> {
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), patienceMs)
  try {
    const signal = AbortSignal.any([request.signal, late.signal])
    const response = await openResponse(request.target, { path: request.path, query, signal })
    await requireSuccess(response, request.target)
    return response
  } catch (error) {
    if (!late.signal.aborted) throw error
    const where = request.target.url.origin
    throw new CommandError(`${where} did not answer within ${patienceMs / 1000} s, check that the agent runs`)
  } finally {
    clearTimeout(timer)
  }
}

/** A cursor outranks the place to begin at; what is left out cannot be refused. */
function resumed(query: Query, cursor: string): Query {
  const { tail_lines: _lines, since: _since, ...rest } = query
  return { ...rest, cursor }
}

/** Asks until it is answered. Resolves to undefined when the signal ended it; throws CommandError. */
async function reopened(request: StreamRequest, place: Place, broken: string): Promise<IncomingMessage | undefined> {
  const where = request.target.url.origin
  if (!request.resume) throw new CommandError(`connection to ${where} lost (${broken})`)
  request.outage.lost(broken)
  const { again, remark } = againFrom(request, place)
  for (;;) {
    const { waitMs } = place
    place.waitMs = Math.min(waitMs * 2, WAIT_MOST_MS)
    await delay(waitMs, undefined, { signal: request.signal }).catch(() => undefined)
    if (request.signal.aborted) return undefined
    try {
      const response = await opened(again, place, SILENCE_MS)
      if (response) request.outage.resumed(remark)
      return response
    } catch (error) {
      if (error instanceof RefusedByAgent && error.isFinal) {
        throw new CommandError(`cannot resume: ${error.message}`, 1, { cause: error })
      }
    }
  }
}

/** How to ask again: by the cursor, or as well as it can be done without one. */
function againFrom(request: StreamRequest, place: Place): { again: StreamRequest; remark: string } {
  if (place.cursor !== undefined || place.bytes === 0) return { again: request, remark: '' }
  const { tail_lines: lines, since, ...query } = request.query
  const fromStart = query['origin'] !== 'end' && lines === undefined && since === undefined
  if (fromStart) {
    const offset = Number(query['offset'] ?? 0) + place.bytes
    return {
      again: { ...request, query: { ...query, offset } },
      remark: ' by counting bytes, as this server gives no cursors: some may be missing if a log was rotated away',
    }
  }
  return {
    again: { ...request, query: { ...query, origin: 'end', offset: 1 } },
    remark: ' at the end, as this server gives no cursors: what was written meanwhile is missing',
  }
}

/** Yields until the answer ends. Returns why it broke, or undefined for a clean end. */
async function* framesUntilBroken(
  response: IncomingMessage,
  signal: AbortSignal,
  place: Place,
): AsyncGenerator<Frame, string | undefined> {
  const reader = new FrameReader()
  const silence = new Silence(response)
  const leave = () => void response.destroy()
  signal.addEventListener('abort', leave)
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      silence.isWaiting = false
      reader.push(chunk)
      for (let frame = reader.next(); frame; frame = reader.next()) {
        if (frame.data || frame.event !== '') {
          place.waitMs = WAIT_FIRST_MS
          yield frame
        }
        // Only now: whoever took it has it.
        if (frame.cursor !== undefined) place.cursor = frame.cursor
        place.bytes += frame.data?.length ?? 0
      }
      silence.wait()
    }
    return reader.pending === 0 ? undefined : 'ended within a frame'
  } catch (error) {
    if (signal.aborted) return undefined
    if (error instanceof NotAFrame) throw new CommandError(`the agent ended the stream: ${oneLine(error.message)}`)
    if (silence.isOver) return `nothing for ${SILENCE_MS / 1000} s`
    return reasonOf(error)
  } finally {
    silence.end()
    signal.removeEventListener('abort', leave)
    response.destroy()
  }
}

/** Breaks an answer that has been waited for too long. The time its receiver takes does not count. */
class Silence {
  isWaiting = true
  isOver = false
  #sinceMs = performance.now()
  #lookedMs = this.#sinceMs
  readonly #timer: NodeJS.Timeout

  constructor(response: IncomingMessage) {
    this.#timer = setInterval(() => {
      const nowMs = performance.now()
      // We were stopped (Ctrl-Z, a closed lid): what was sent meanwhile is read first.
      if (nowMs - this.#lookedMs > SILENCE_MS / 2) this.#sinceMs = nowMs
      this.#lookedMs = nowMs
      if (!this.isWaiting || nowMs - this.#sinceMs < SILENCE_MS) return
      this.isOver = true
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
