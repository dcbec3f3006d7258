/**
 * The body of an operation that takes a stream, for as long as it makes progress.
 *
 * How long an upload takes depends on its size and on the caller's line, so `requestTimeoutMs` is no limit for it: a large snapshot
 * over a slow line that goes on is taken whole. Instead the caller has to send at least `bytesMin` in each window of
 * `windowMs`; one that does not gets 408, and what the operation held for it is free at once. Only the time in which the
 * operation waits for the caller counts, never the time in which the caller waits for our disk.
 */
import { Refusal } from '../platform/errors.ts'

/** The least that the caller of an upload has to send. */
export interface UploadPace {
  readonly windowMs: number
  readonly bytesMin: number
}

/** 6.4 KiB/s, which a line of 64 kbit/s carries; the window is longer than the pauses of a line that loses packets. */
export const UPLOAD_PACE: UploadPace = { windowMs: 20_000, bytesMin: 128 << 10 }

/** An upload as its operation reads it. Ended early, it does not wait for the caller. */
export class Upload implements AsyncIterableIterator<Uint8Array> {
  readonly #body: AsyncIterator<Uint8Array>
  readonly #pace: UploadPace
  /** Of this window. */
  #waitedMs = 0
  #bytes = 0
  #isOver = false
  #timer: NodeJS.Timeout | undefined

  constructor(body: AsyncIterable<Uint8Array>, pace: UploadPace) {
    this.#body = body[Symbol.asyncIterator]()
    this.#pace = pace
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  /** Rejects with a Refusal once the caller is too slow. */
  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (this.#isOver) return { done: true, value: undefined }
    const startMs = performance.now()
    const coming = this.#body.next()
    // Where the caller was too slow, it is not waited for.
    coming.catch(() => undefined)
    try {
      const result = await Promise.race([coming, this.#late(startMs)])
      if (result.done === true) return { done: true, value: undefined }
      this.#bytes += result.value.byteLength
      return result
    } finally {
      clearTimeout(this.#timer)
      this.#waitedMs += performance.now() - startMs
    }
  }

  /** Rejects when less than the least has come by the end of a window. */
  #late(startMs: number): Promise<never> {
    return new Promise((_resolve, reject) => {
      const judge = () => {
        if (this.#bytes < this.#pace.bytesMin) {
          this.#isOver = true
          reject(this.#tooSlow())
          return
        }
        // The next window begins now.
        this.#waitedMs = startMs - performance.now()
        this.#bytes = 0
        this.#timer = setTimeout(judge, this.#pace.windowMs)
      }
      this.#timer = setTimeout(judge, this.#pace.windowMs - this.#waitedMs)
    })
  }

  /** What still comes is the transport's to throw away. */
  return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#isOver = true
    clearTimeout(this.#timer)
    return Promise.resolve({ done: true, value: undefined })
  }

  #tooSlow(): Refusal {
    const { bytesMin, windowMs } = this.#pace
    const text = `the upload is too slow: less than ${bytesMin} bytes came in ${windowMs / 1000} s`
    return new Refusal('request_timeout', text)
  }
}
