/**
 * Writes a stream of chunks with back-pressure: one chunk is being written while the producer makes the next one, and never
 * more, so a client that does not read holds two chunks. The target is a `StreamSink`: a response or a WebSocket (websocket.ts).
 *
 * Before the head is sent an error is a status. After it, an error aborts the connection: the length or the
 * chunked encoding stays incomplete, which every client can tell from an end.
 */
import type { ServerResponse } from 'node:http'
import { Fault } from '../platform/errors.ts'
import { type Chunk, isStreamHead, type StreamHead } from '../platform/operation.ts'
import type { HeaderList } from './respond.ts'

export interface StreamSink {
  /** Sends the head. Throws if the response has begun already. */
  begin(head: StreamHead): void
  /**
   * Writes one chunk. Resolves when the kernel has its bytes and the buffer may be reused, or to the error
   * when the client has gone: as a value, because it is checked only with the next chunk.
   */
  write(bytes: Uint8Array, last: boolean): Promise<Error | undefined>
  /** The client has gone. */
  readonly gone: boolean
  /** Ends it as complete. */
  end(): void
}

/** Called when a write begins and ends, to detect a client that does not read. */
export type OnBlocked = (isBlocked: boolean) => void

export interface StreamOptions {
  /** The request was HEAD: send only the head. */
  readonly headOnly: boolean
  /** Counts the bytes as they are handed over. */
  readonly meter: { bytes: number }
}

const OTHER_LENGTH = 'the response body does not match its Content-Length'

/** Resolves to the number of body bytes. Rejects with errors of the producer. */
export async function sendStream(
  sink: StreamSink,
  chunks: AsyncIterable<Chunk>,
  options: StreamOptions,
): Promise<number> {
  const iterator = chunks[Symbol.asyncIterator]()
  const first = await iterator.next()
  if (first.done || !isStreamHead(first.value)) throw new Fault('a stream must begin with its head')
  const head = first.value
  try {
    sink.begin(head)
    if (!options.headOnly) return await sendBody(sink, iterator, head, options.meter)
    sink.end()
    return 0
  } finally {
    await iterator.return?.()
  }
}

/** Adds a head with status 200. */
export async function* withHead(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Chunk> {
  yield { status: 200 }
  yield* chunks
}

async function sendBody(
  sink: StreamSink,
  iterator: AsyncIterator<Chunk>,
  head: StreamHead,
  meter: { bytes: number },
): Promise<number> {
  let sent = 0
  let inFlight: Promise<Error | undefined> | undefined
  for (;;) {
    let next: IteratorResult<Chunk>
    try {
      next = await iterator.next()
    } catch (error) {
      // Send what was produced before the error: the last frame often has the reason.
      await inFlight
      throw error
    }
    const { done, value } = next
    if (done) break
    if (isStreamHead(value)) throw new Fault('a stream has one head')
    const failed = await inFlight
    if (failed) throw failed
    inFlight = undefined
    if (sink.gone) return sent
    if (value.length === 0) continue
    sent += value.length
    // The stream may come from a node: bytes beyond the length would be read as the next response.
    if (head.contentLength !== undefined && sent > head.contentLength) throw new Fault(OTHER_LENGTH)
    meter.bytes += value.length
    inFlight = sink.write(value, sent === head.contentLength)
  }
  const failed = await inFlight
  if (failed) throw failed
  // After a short body the next response would be read as the rest.
  if (head.contentLength !== undefined && sent < head.contentLength) throw new Fault(OTHER_LENGTH)
  sink.end()
  return sent
}

/** Shared, because every response gets it when its connection closes. */
const GONE = new Error('the caller is gone')

/** The write in flight. */
export class PendingWrite {
  readonly #onBlocked: OnBlocked
  #resolve: ((failed: Error | undefined) => void) | undefined

  constructor(onBlocked: OnBlocked) {
    this.#onBlocked = onBlocked
  }

  /** Resolves when `done` is called. */
  begin(): Promise<Error | undefined> {
    return new Promise((resolve) => {
      this.#resolve = resolve
      this.#onBlocked(true)
    })
  }

  readonly done = (failed?: Error | null): void => {
    if (!this.#resolve) return
    this.#onBlocked(false)
    this.#resolve(failed ?? undefined)
    this.#resolve = undefined
  }
}

/** A stream as an ordinary response. */
export class ResponseSink implements StreamSink {
  readonly #response: ServerResponse
  readonly #headers: HeaderList
  readonly #flushHead: boolean
  readonly #delivery: PendingWrite

  constructor(
    response: ServerResponse,
    options: {
      /** Sent before the headers of the stream's head. */
      readonly headers: HeaderList
      /** Send the head before the first chunk. */
      readonly flushHead: boolean
      readonly onBlocked: OnBlocked
    },
  ) {
    this.#response = response
    this.#headers = options.headers
    this.#flushHead = options.flushHead
    this.#delivery = new PendingWrite(options.onBlocked)
    // A queued response on a pipelined connection has no socket yet whose close would fail its write.
    response.once('close', () => this.#delivery.done(GONE))
  }

  begin(head: StreamHead): void {
    const headers = this.#headers
    for (const [name, value] of Object.entries(head.headers ?? {})) headers.push(name, value)
    if (head.contentType !== undefined) headers.push('Content-Type', head.contentType)
    if (head.contentLength !== undefined) headers.push('Content-Length', String(head.contentLength))
    this.#response.writeHead(head.status, headers)
    if (this.#flushHead) this.#response.flushHeaders()
  }

  write(bytes: Uint8Array, last: boolean): Promise<Error | undefined> {
    const taken = this.#delivery.begin()
    if (last) this.#response.end(bytes, this.#ended)
    else this.#response.write(bytes, this.#delivery.done)
    return taken
  }

  /** A complete response is destroyed too, but its producer must still finish. */
  get gone(): boolean {
    return this.#response.destroyed && !this.#response.writableFinished
  }

  end(): void {
    if (!this.#response.writableEnded) this.#response.end()
  }

  readonly #ended = () => this.#delivery.done()
}
