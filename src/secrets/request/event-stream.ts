/**
 * Formats a stream as lines of JSON, or as server-sent events if the client accepts them. The caller's permissions are checked
 * again before each chunk, because they may have been revoked. After the first chunk the status can no longer change, so the last
 * line has the reason if the server ends the stream.
 */
import type { StreamEvent } from '../../engines/framework/engine.ts'
import { secondsOf } from '../../engines/framework/fields.ts'
import { StreamedAnswer, type WholeAnswer } from '../../platform/operation.ts'
import type { RawInput } from '../../platform/schema.ts'
import { HEADERS, rejectionAnswer } from './answer.ts'

const EVENT_STREAM = 'text/event-stream'
/** Reconnection delay of browsers */
const RETRY_MS = 1000
const LINE_BREAK = Buffer.from('\n')

interface StreamFormat {
  readonly headers: Readonly<Record<string, string>>
  readonly first: string
  event(event: StreamEvent): string
  last(answer: WholeAnswer): string
  /** Of the last event in complete lines. */
  cursorIn(lines: Buffer): string | undefined
}

/** `X-Accel-Buffering` disables response buffering in proxies. */
const headersOf = (contentType: string) => ({ ...HEADERS, 'Content-Type': contentType, 'X-Accel-Buffering': 'no' })

const JSON_LINES: StreamFormat = {
  headers: headersOf('application/x-ndjson'),
  first: '',
  event: ({ cursor, value }) => `${JSON.stringify({ ...value, cursor })}\n`,
  last: (answer) => `${endReason(answer)}\n`,
  // Quotes within a value are escaped.
  cursorIn: (lines) => lastBetween(lines, '"cursor":"', '"'),
}

const SERVER_SENT_EVENTS: StreamFormat = {
  headers: headersOf(EVENT_STREAM),
  first: `retry: ${RETRY_MS}\n\n`,
  event({ cursor, kind, value }) {
    const name = kind === undefined ? '' : `event: ${kind}\n`
    // Without data a browser dispatches no event, but it keeps the ID.
    return `id: ${cursor}\n${value ? `${name}data: ${JSON.stringify({ ...value, cursor })}\n` : ''}\n`
  },
  last: (answer) => `event: end\ndata: ${endReason(answer)}\n\n`,
  // A line break within a value is escaped.
  cursorIn: (lines) => lastBetween(Buffer.concat([LINE_BREAK, lines]), '\nid: ', '\n'),
}

function endReason({ body, status }: WholeAnswer): string {
  const { errors = [] } = JSON.parse(String(body ?? '{}')) as { errors?: readonly string[] }
  return JSON.stringify({ status, errors })
}

/** Undefined if the client does not accept server-sent events. */
export function eventStreamOf({ headers }: RawInput): { readonly lastCursor: string | undefined } | undefined {
  const isAccepted = (headers['accept'] ?? '').toLowerCase().includes(EVENT_STREAM)
  return isAccepted ? { lastCursor: headers['last_event_id'] || undefined } : undefined
}

interface StreamCall {
  /** Throws a Rejection when the caller has lost its permission. */
  readonly check: () => void
  readonly raw: RawInput
  /** Aborts when the answer is not read any more. */
  readonly signal: AbortSignal
}

export function streamedAnswer(stream: AsyncIterable<readonly StreamEvent[]>, call: StreamCall): StreamedAnswer {
  const format = eventStreamOf(call.raw) ? SERVER_SENT_EVENTS : JSON_LINES
  return new StreamedAnswer(format.headers, chunksOf(stream, format, call))
}

/** Duration of a long poll that states none. */
const WAIT_SECONDS_DEFAULT = 30

/** Requests that wait for changes, for a server that repeats them at another one. */
export const watchRequests = {
  isLasting: (raw: RawInput): boolean =>
    raw.query.some(([name]) => name === 'cursor' || name === 'stream') || eventStreamOf(raw) !== undefined,

  cursorOf(headers: Readonly<Record<string, string>>, chunk: Uint8Array): string | undefined {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length)
    return formatOf(headers).cursorIn(bytes)
  },

  resumed(raw: RawInput, cursor: string): RawInput {
    if (eventStreamOf(raw)) return { ...raw, headers: { ...raw.headers, last_event_id: cursor } }
    return withQuery(raw, 'cursor', cursor)
  },

  shortened(raw: RawInput, elapsedMs: number): RawInput {
    const [, wait = WAIT_SECONDS_DEFAULT] = raw.query.findLast(([name]) => name === 'wait') ?? []
    try {
      const left = Math.max(0, Math.round(secondsOf(wait) - elapsedMs / 1000))
      return withQuery(raw, 'wait', String(left))
    } catch {
      // Malformed: the core refuses it.
      return raw
    }
  },

  endOf: (headers: Readonly<Record<string, string>>, answer: WholeAnswer): Uint8Array =>
    Buffer.from(formatOf(headers).last(answer)),
}

function formatOf(headers: Readonly<Record<string, string>>): StreamFormat {
  return headers['Content-Type'] === EVENT_STREAM ? SERVER_SENT_EVENTS : JSON_LINES
}

function withQuery(raw: RawInput, name: string, value: string): RawInput {
  return { ...raw, query: [...raw.query.filter(([each]) => each !== name), [name, value]] }
}

/** The text after the last `before`, up to `after`. */
function lastBetween(bytes: Buffer, before: string, after: string): string | undefined {
  const at = bytes.lastIndexOf(before)
  if (at < 0) return undefined
  const from = at + before.length
  const to = bytes.indexOf(after, from)
  return to < 0 ? undefined : bytes.toString('latin1', from, to)
}

async function* chunksOf(
  stream: AsyncIterable<readonly StreamEvent[]>,
  format: StreamFormat,
  { check, signal }: Pick<StreamCall, 'check' | 'signal'>,
): AsyncGenerator<Uint8Array> {
  try {
    let prefix = format.first
    for await (const events of stream) {
      check()
      yield Buffer.from(prefix + events.map((event) => format.event(event)).join(''))
      prefix = ''
    }
  } catch (error) {
    const answer = rejectionAnswer(error)
    // Without a reader there is no last line; one whose request is repeated at another server must not see it.
    if (!answer || signal.aborted) throw error
    yield Buffer.from(format.last(answer))
  }
}
