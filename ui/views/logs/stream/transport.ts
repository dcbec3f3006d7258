/**
 * How a browser opens a log stream: with fetch, or as a WebSocket. Browsers allow six connections of HTTP/1.1 to one host, and a followed log
 * occupies one, so the wall uses WebSockets, which have a limit of their own. In both cases the token is in a header of the request.
 */
import { ApiError, requirePlainPath, send, serverMessage } from '../../../api/client.ts'
import { token } from '../../../app/session.ts'
import { type LogRequest, withoutBody } from './log-target.ts'
import type { StreamEnvironment } from './resuming-stream.ts'

/** For the first response: the host may have to search for the start position. */
const HEAD_MS = 60_000
/** Received messages that were not handled yet. */
const QUEUED_CHARS_MAX = 8_000_000
const CLOSED_NORMALLY = 1000
/** Close codes from here are 4000 + the status over HTTP. */
const STATUS_CODES = 4400

export const openWithFetch: StreamEnvironment['open'] = async (request, signal) => {
  const { body, method, url } = request
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), HEAD_MS)
  try {
    const response = await send(url, { method, body, signal: AbortSignal.any([signal, late.signal]) })
    if (!response.body) throw new ApiError(0, 'the response has no body')
    return chunksOf(response.body)
  } finally {
    clearTimeout(timer)
  }
}

async function* chunksOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = body.getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      yield value
    }
  } finally {
    void reader.cancel().catch(() => undefined)
  }
}

/** A WebSocket has no body, so the request of a large job that resumes is sent with fetch. */
export const openWithSocket: StreamEnvironment['open'] = (request, signal) => {
  const inUrl = withoutBody(request)
  return inUrl ? new SocketStream(inUrl, signal).opened : openWithFetch(request, signal)
}

class SocketStream {
  readonly opened: Promise<AsyncIterable<string>>
  readonly #socket: WebSocket
  readonly #queue: string[] = []
  #queuedChars = 0
  #end: { readonly error: ApiError | undefined } | undefined
  #wake: (() => void) | undefined

  constructor({ url }: LogRequest, signal: AbortSignal) {
    requirePlainPath(url)
    const { host, protocol } = window.location
    this.#socket = new WebSocket(`${protocol === 'https:' ? 'wss' : 'ws'}://${host}${url}`, protocols())
    signal.addEventListener('abort', () => this.#socket.close(), { once: true })
    // An error is a message and then a close code: the handshake itself succeeds.
    this.opened = new Promise((resolve, reject) => {
      this.#socket.addEventListener('message', ({ data }: MessageEvent<unknown>) => {
        this.#push(String(data))
        resolve(this.#messages())
      })
      this.#socket.addEventListener('close', ({ code, reason }) => {
        const status = code >= STATUS_CODES ? code - 4000 : 0
        const error =
          code === CLOSED_NORMALLY ? undefined : new ApiError(status, serverMessage(reason) || 'the connection broke')
        this.#end ??= { error }
        this.#wake?.()
        if (error) reject(error)
        else resolve(this.#messages())
      })
    })
  }

  #push(text: string): void {
    this.#queue.push(text)
    this.#queuedChars += text.length
    // A WebSocket cannot be told to wait: the stream continues later at the last cursor.
    if (this.#queuedChars > QUEUED_CHARS_MAX) {
      this.#end ??= { error: new ApiError(0, 'reading paused') }
      this.#socket.close()
    }
    this.#wake?.()
  }

  async *#messages(): AsyncGenerator<string> {
    for (;;) {
      const text = this.#queue.shift()
      if (text !== undefined) {
        this.#queuedChars -= text.length
        yield text
      } else if (!this.#end) {
        await new Promise<void>((resolve) => (this.#wake = resolve))
      } else if (this.#end.error) throw this.#end.error
      else return
    }
  }
}

/** The token as a subprotocol: a page cannot set other headers of a WebSocket. */
function protocols(): string[] {
  const text = token.value
  if (text === undefined) return ['outpost']
  const bytes = new TextEncoder().encode(text)
  const base64 = btoa(String.fromCharCode(...bytes))
  return ['outpost', `outpost.token.${base64.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')}`]
}

/** Ends early when the signal aborts, when the browser is online again, and when the page is shown again. */
export function delay(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer)
      signal.removeEventListener('abort', end)
      window.removeEventListener('online', end)
      document.removeEventListener('visibilitychange', onVisible)
      resolve()
    }
    const onVisible = () => document.visibilityState === 'visible' && end()
    const timer = setTimeout(end, ms)
    signal.addEventListener('abort', end)
    window.addEventListener('online', end)
    document.addEventListener('visibilitychange', onVisible)
  })
}

/** A page that is covered, but counts as visible, draws no frames. */
const FRAME_MS_MAX = 100
const tasks = new MessageChannel()
const waiting: (() => void)[] = []
tasks.port1.addEventListener('message', () => waiting.shift()?.())
tasks.port1.start()

/** Resolves in a task of its own; browsers delay timers of hidden pages, but not messages. */
function nextTask(): Promise<void> {
  return new Promise((resolve) => {
    waiting.push(resolve)
    tasks.port2.postMessage(null)
  })
}

/** Resolves after the next frame was drawn; at once in a hidden page. */
export function nextFrame(): Promise<void> {
  if (document.hidden) return nextTask()
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, FRAME_MS_MAX)
    requestAnimationFrame(() => {
      clearTimeout(timer)
      void nextTask().then(resolve)
    })
  })
}
