/**
 * Writing a stream of chunks with back-pressure: one chunk is on its way while the producer makes the next, and never
 * more, so a caller who does not read holds two chunks and nothing grows. Where it goes is a `Sink`: the answer to a
 * request, or a WebSocket (websocket.ts).
 *
 * Until the head has been sent an error is still a status. After it, an error breaks the connection: the length or the
 * chunked encoding stays incomplete, which every client can tell from an end.
 */
import type { ServerResponse } from 'node:http'
import { Fault } from '../platform/errors.ts'
import { type Chunk, isStreamHead, type StreamHead } from '../platform/operation.ts'
import type { HeaderList } from './respond.ts'

export interface Sink {
  /** Sends what precedes the bytes. Throws when an answer has begun already. */
  begin(head: StreamHead): void
  /**
   * Writes one chunk. Resolves when its bytes are with the kernel and their buffer may be used again, or with the error
   * when the caller is gone: as a value, because it is looked at only when the next chunk is there.
   */
  write(bytes: Uint8Array, last: boolean): Promise<Error | undefined>
  /** True when nobody is there to take what is left. */
  readonly gone: boolean
  /** Ends it as whole. */
  end(): void
}

/** Told when a write begins and ends, so that a caller who takes nothing for too long can be cut. */
export type OnWaiting = (waiting: boolean) => void

export interface StreamOptions {
  /** The request was HEAD: send what GET would announce, and nothing more. */
  readonly headOnly: boolean
  /** Counts the bytes as they are handed over. */
  readonly meter: { bytes: number }
}

const OTHER_LENGTH = 'an answer has another length than its head says'

/** Sends it all; resolves with the number of body bytes. Throws what the producer throws. */
export async function sendStream(sink: Sink, chunks: AsyncIterable<Chunk>, options: StreamOptions): Promise<number> {
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

/** Chunks behind a head that says nothing but that they come. */
export async function* headed(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Chunk> {
  yield { status: 200 }
  yield* chunks
}

async function sendBody(
  sink: Sink,
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
      // What was made before it went wrong is still sent: the last word of a stream often says why it breaks.
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
    // A node may have made it: bytes behind the length would be taken for the answer to the caller's next request.
    if (head.contentLength !== undefined && sent > head.contentLength) throw new Fault(OTHER_LENGTH)
    meter.bytes += value.length
    inFlight = sink.write(value, sent === head.contentLength)
  }
  const failed = await inFlight
  if (failed) throw failed
  // Of one that ends too soon, the answer to the next request would be taken for the rest.
  if (head.contentLength !== undefined && sent < head.contentLength) throw new Fault(OTHER_LENGTH)
  sink.end()
  return sent
}

/** Every answer's connection closes in the end: one object for all of them. */
const GONE = new Error('the caller is gone')

/** The one write that is under way. */
export class Delivery {
  readonly #onWaiting: OnWaiting
  #resolve: ((failed: Error | undefined) => void) | undefined

  constructor(onWaiting: OnWaiting) {
    this.#onWaiting = onWaiting
  }

  /** A write begins; resolves when `done` is called. */
  begin(): Promise<Error | undefined> {
    return new Promise((resolve) => {
      this.#resolve = resolve
      this.#onWaiting(true)
    })
  }

  readonly done = (failed?: Error | null): void => {
    if (!this.#resolve) return
    this.#onWaiting(false)
    this.#resolve(failed ?? undefined)
    this.#resolve = undefined
  }
}

/** A stream as the answer to a request. */
export class ResponseSink implements Sink {
  readonly #response: ServerResponse
  readonly #headers: HeaderList
  readonly #flushHead: boolean
  readonly #delivery: Delivery

  constructor(
    response: ServerResponse,
    options: {
      /** Headers that go before those of the stream's head. */
      readonly headers: HeaderList
      /** Send the head at once, even if no byte follows for a while. */
      readonly flushHead: boolean
      readonly onWaiting: OnWaiting
    },
  ) {
    this.#response = response
    this.#headers = options.headers
    this.#flushHead = options.flushHead
    this.#delivery = new Delivery(options.onWaiting)
    // A response that waits behind another on a pipelined connection has no socket whose end would fail its write.
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

  /** An answer that was sent whole counts as destroyed too; its producer still has to come to its own end. */
  get gone(): boolean {
    return this.#response.destroyed && !this.#response.writableFinished
  }

  end(): void {
    if (!this.#response.writableEnded) this.#response.end()
  }

  readonly #ended = () => this.#delivery.done()
}
