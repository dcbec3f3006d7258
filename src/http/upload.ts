/**
 * The body of an operation that takes a stream, with a minimum rate instead of a timeout.
 *
 * The duration of an upload depends on its size and the client's line, so `requestTimeoutMs` does not apply. Instead the client has to
 * send at least `bytesMin` in each window of `windowMs`; otherwise it gets 408, and the operation's resources are released. Only
 * the time in which the operation waits for the client counts, not the time in which the client waits for the disk.
 */
import { Refusal } from '../platform/errors.ts'

/** Minimum rate of an upload. */
export interface UploadPace {
  readonly windowMs: number
  readonly bytesMin: number
}

/** 6.4 KiB/s fits into 64 kbit/s; the window is longer than the pauses of a lossy line. */
export const UPLOAD_PACE: UploadPace = { windowMs: 20_000, bytesMin: 128 << 10 }

/** The body for the operation. Ended early, it does not wait for the client. */
export class UploadBody implements AsyncIterableIterator<Uint8Array> {
  readonly #body: AsyncIterator<Uint8Array>
  readonly #pace: UploadPace
  /** In this window. */
  #waitedMs = 0
  #bytes = 0
  #hasEnded = false
  #timer: NodeJS.Timeout | undefined

  constructor(body: AsyncIterable<Uint8Array>, pace: UploadPace) {
    this.#body = body[Symbol.asyncIterator]()
    this.#pace = pace
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  /** Rejects with a Refusal once the client is too slow. */
  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    if (this.#hasEnded) return { done: true, value: undefined }
    const startMs = performance.now()
    const next = this.#body.next()
    // Not awaited if the client was too slow.
    next.catch(() => undefined)
    try {
      const result = await Promise.race([next, this.#tooSlowAfter(startMs)])
      if (result.done === true) return { done: true, value: undefined }
      this.#bytes += result.value.byteLength
      return result
    } finally {
      clearTimeout(this.#timer)
      this.#waitedMs += performance.now() - startMs
    }
  }

  /** Rejects at the end of a window below the minimum rate. */
  #tooSlowAfter(startMs: number): Promise<never> {
    return new Promise((_resolve, reject) => {
      const check = () => {
        if (this.#bytes < this.#pace.bytesMin) {
          this.#hasEnded = true
          reject(this.#tooSlow())
          return
        }
        this.#waitedMs = startMs - performance.now()
        this.#bytes = 0
        this.#timer = setTimeout(check, this.#pace.windowMs)
      }
      this.#timer = setTimeout(check, this.#pace.windowMs - this.#waitedMs)
    })
  }

  /** The transport discards the rest. */
  return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#hasEnded = true
    clearTimeout(this.#timer)
    return Promise.resolve({ done: true, value: undefined })
  }

  #tooSlow(): Refusal {
    const { bytesMin, windowMs } = this.#pace
    const text = `the upload is too slow: less than ${bytesMin} bytes came in ${windowMs / 1000} s`
    return new Refusal('request_timeout', text)
  }
}
