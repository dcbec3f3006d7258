/**
 * Limits the concurrent requests of an AWS client by additive increase and multiplicative decrease. AWS throttles an account:
 * then requests run one at a time for a second, after that half as many as before, and each response increases the limit a
 * little. So a thousand users that are revoked at once find the rate that AWS allows. A single request never waits.
 *
 * A request takes a millisecond of the event loop, before it is sent and after the response. If more than a few are in progress, each
 * starts in a separate turn, so that other work runs in between.
 */
import { scheduler } from '../../../platform/scheduler.ts'

/** The number of sockets. */
export const CONCURRENT_REQUESTS_MAX = 50
/** Requests that start without waiting for a turn. */
const IMMEDIATE_MAX = 2
const PAUSE_MS = 1000

const line = scheduler.queue()

export class RequestLimiter {
  readonly #nowMs: () => number
  #limit = CONCURRENT_REQUESTS_MAX
  #running = 0
  #resumeAtMs = 0
  readonly #waiting = new Set<() => void>()

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs
  }

  /** Current limit of concurrent requests. */
  get limit(): number {
    return Math.floor(this.#limit)
  }

  /** Sends a request once the limit allows it. Resolves or rejects as `send` does. `isThrottled` detects throttling errors. */
  async run<T>(send: () => Promise<T>, isThrottled: (error: unknown) => boolean, signal: AbortSignal): Promise<T> {
    while (!this.#maySend() && !signal.aborted) await this.#wait(signal)
    this.#running++
    const startedAtMs = this.#nowMs()
    try {
      if (this.#running > IMMEDIATE_MAX && !signal.aborted) await line.later(true)
      const response = await send()
      this.#limit = Math.min(CONCURRENT_REQUESTS_MAX, this.#limit + 1 / this.#limit)
      return response
    } catch (error) {
      // Requests that started before the pause are part of the same overload.
      if (isThrottled(error) && startedAtMs >= this.#resumeAtMs) this.#pause()
      throw error
    } finally {
      this.#running--
      this.#wake()
    }
  }

  get #pauseMs(): number {
    return this.#resumeAtMs - this.#nowMs()
  }

  #maySend(): boolean {
    return this.#running === 0 || (this.#pauseMs <= 0 && this.#running < this.limit)
  }

  async #wait(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const wake = () => {
      this.#waiting.delete(wake)
      resolve()
    }
    this.#waiting.add(wake)
    signal.addEventListener('abort', wake, { once: true })
    await promise
    signal.removeEventListener('abort', wake)
  }

  /** Wakes as many requests as the limit allows. While one waits, another one is in progress and calls this at its end. */
  #wake(): void {
    let free = this.#pauseMs > 0 ? 1 - this.#running : this.limit - this.#running
    for (const wake of this.#waiting) if (free-- > 0) wake()
  }

  #pause(): void {
    this.#limit = Math.max(1, this.#limit / 2)
    this.#resumeAtMs = this.#nowMs() + PAUSE_MS
  }
}
