/**
 * Writing a stream of chunks with back-pressure: one chunk is on its way while the producer makes the next, and never
 * more, so a caller who does not read holds two chunks and nothing grows.
 *
 * Until the head has been sent an error is still a status. After it, an error breaks the connection: the length or the
 * chunked encoding stays incomplete, which every client can tell from an end.
 */
import type { ServerResponse } from 'node:http'
import { Fault } from '../kit/errors.ts'
import { type Chunk, isStreamHead, type StreamHead } from '../kit/operation.ts'
import type { HeaderList } from './respond.ts'

export interface StreamOptions {
  /** Headers that go before those of the stream's head. */
  readonly headers: HeaderList
  /** The request was HEAD: send what GET would announce, and nothing more. */
  readonly headOnly: boolean
  /** Send the head at once, even if no byte follows for a while. */
  readonly flushHead: boolean
  /** Told when a write begins and ends, so that a caller who takes nothing for too long can be cut. */
  readonly onWaiting: (waiting: boolean) => void
}

/** Sends it all; resolves with the number of body bytes. Throws what the producer throws. */
export async function sendStream(
  response: ServerResponse,
  chunks: AsyncIterable<Chunk>,
  options: StreamOptions,
): Promise<number> {
  const iterator = chunks[Symbol.asyncIterator]()
  const first = await iterator.next()
  if (first.done || !isStreamHead(first.value)) throw new Fault('a stream must begin with its head')
  const head = first.value
  try {
    if (options.headOnly) {
      writeHead(response, head, options.headers)
      response.end()
      return 0
    }
    return await sendBody(response, iterator, head, options)
  } finally {
    await iterator.return?.()
  }
}

async function sendBody(
  response: ServerResponse,
  iterator: AsyncIterator<Chunk>,
  head: StreamHead,
  options: StreamOptions,
): Promise<number> {
  writeHead(response, head, options.headers)
  if (options.flushHead) response.flushHeaders()
  const writer = new ChunkWriter(response, options.onWaiting)
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
    // An answer that was sent whole counts as destroyed too; its producer still has to come to its own end.
    if (response.destroyed && !response.writableFinished) return sent
    if (value.length === 0) continue
    sent += value.length
    inFlight = writer.write(value, sent === head.contentLength)
  }
  const failed = await inFlight
  if (failed) throw failed
  if (!response.writableEnded) response.end()
  return sent
}

function writeHead(response: ServerResponse, head: StreamHead, headers: HeaderList): void {
  for (const [name, value] of Object.entries(head.headers ?? {})) headers.push(name, value)
  if (head.contentType !== undefined) headers.push('Content-Type', head.contentType)
  if (head.contentLength !== undefined) headers.push('Content-Length', String(head.contentLength))
  response.writeHead(head.status, headers)
}

/**
 * Writes chunks one at a time. A write resolves when its bytes are with the kernel and their buffer may be used again, or
 * with the error when the caller is gone: as a value, because it is looked at only when the next chunk is there.
 */
class ChunkWriter {
  readonly #response: ServerResponse
  readonly #onWaiting: (waiting: boolean) => void
  #resolve: ((failed: Error | undefined) => void) | undefined

  constructor(response: ServerResponse, onWaiting: (waiting: boolean) => void) {
    this.#response = response
    this.#onWaiting = onWaiting
    // A response that waits behind another on a pipelined connection has no socket whose end would fail its write.
    response.once('close', () => this.#done(new Error('the caller is gone')))
  }

  write(bytes: Uint8Array, last: boolean): Promise<Error | undefined> {
    return new Promise((resolve) => {
      this.#resolve = resolve
      this.#onWaiting(true)
      if (last) this.#response.end(bytes, this.#ended)
      else this.#response.write(bytes, this.#written)
    })
  }

  readonly #ended = () => this.#done(undefined)
  readonly #written = (error?: Error | null) => this.#done(error ?? undefined)

  #done(failed: Error | undefined): void {
    if (!this.#resolve) return
    this.#onWaiting(false)
    this.#resolve(failed)
    this.#resolve = undefined
  }
}
