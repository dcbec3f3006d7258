/**
 * Streams as they go out: a line of JSON for each thing that is told, or server-sent events for who asks for them. Before
 * anything goes out, its caller is looked at again: it may have lost its rights since it came. Once a stream has begun
 * there is no status any more, so its last line says why it ends, where that is not because its caller left.
 */
import { Rejection, type StreamEvent } from '../../engines/framework/engine.ts'
import { StreamedAnswer, type WholeAnswer } from '../../platform/operation.ts'
import type { RawInput } from '../../platform/schema.ts'
import { HEADERS, rejectionAnswer } from './answer.ts'

const EVENT_STREAM = 'text/event-stream'
/** A browser asks again this soon. */
const RETRY_MS = 1000

interface Form {
  readonly headers: Readonly<Record<string, string>>
  readonly first: string
  told(told: StreamEvent): string
  last(answer: WholeAnswer): string
}

/** Proxies that collect an answer before they hand it on are told not to. */
const headersOf = (contentType: string) => ({ ...HEADERS, 'Content-Type': contentType, 'X-Accel-Buffering': 'no' })

const LINES: Form = {
  headers: headersOf('application/x-ndjson'),
  first: '',
  told: ({ cursor, value }) => `${JSON.stringify({ ...value, cursor })}\n`,
  last: (answer) => `${lastWord(answer)}\n`,
}

const EVENTS: Form = {
  headers: headersOf(EVENT_STREAM),
  first: `retry: ${RETRY_MS}\n\n`,
  told({ cursor, kind, value }) {
    const name = kind === undefined ? '' : `event: ${kind}\n`
    // Without data it is no event to a browser, which keeps the ID all the same.
    return `id: ${cursor}\n${value ? `${name}data: ${JSON.stringify({ ...value, cursor })}\n` : ''}\n`
  },
  last: (answer) => `event: end\ndata: ${lastWord(answer)}\n\n`,
}

function lastWord({ body, status }: WholeAnswer): string {
  const { errors = [] } = JSON.parse(String(body ?? '{}')) as { errors?: readonly string[] }
  return JSON.stringify({ status, errors })
}

/** What a request says of server-sent events. */
export function eventStreamOf({ headers }: RawInput): { readonly lastCursor: string | undefined } | undefined {
  const isWanted = (headers['accept'] ?? '').toLowerCase().includes(EVENT_STREAM)
  return isWanted ? { lastCursor: headers['last_event_id'] || undefined } : undefined
}

/** `check` throws a Rejection once the caller may hear nothing any more. Throws one where the answer cannot be a stream. */
export function streamedAnswer(
  stream: AsyncIterable<readonly StreamEvent[]>,
  { check, hops, raw }: { readonly check: () => void; readonly hops: number; readonly raw: RawInput },
): StreamedAnswer {
  if (hops > 0) {
    const instead = 'ask without "stream", with "cursor" and "wait", or ask the server that keeps the secrets'
    throw new Rejection(400, `a server that asks another one for secrets hands no stream on: ${instead}`)
  }
  const form = eventStreamOf(raw) ? EVENTS : LINES
  return new StreamedAnswer(form.headers, chunksOf(stream, form, check))
}

async function* chunksOf(
  stream: AsyncIterable<readonly StreamEvent[]>,
  form: Form,
  check: () => void,
): AsyncGenerator<Uint8Array> {
  try {
    let before = form.first
    for await (const several of stream) {
      check()
      yield Buffer.from(before + several.map((told) => form.told(told)).join(''))
      before = ''
    }
  } catch (error) {
    const answer = rejectionAnswer(error)
    if (!answer) throw error
    yield Buffer.from(form.last(answer))
  }
}
