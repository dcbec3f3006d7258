/**
 * How many requests one client of AWS has under way. AWS counts what an account asks and refuses what is too much of it: then for a
 * second one goes on at a time, after it half as many as before, and each answer lets a little more. A thousand users that end at once so
 * find the rate that AWS allows, in place of a thousand requests that are each refused by themselves. A lone request never waits.
 *
 * A request costs a millisecond of the event loop, before it is sent and when it is answered. Where more than a few are under way each
 * begins in a turn of its own, so that others are served between them.
 */
import { scheduler } from '../../../platform/scheduler.ts'

/** As many as there are sockets. */
export const AT_ONCE_MAX = 50
/** Begin at once. */
const UNPACED_MAX = 2
const PAUSE_MS = 1000

const line = scheduler.queue()

export class AwsPace {
  readonly #nowMs: () => number
  #limit = AT_ONCE_MAX
  #running = 0
  #resumeAtMs = 0
  readonly #waiting = new Set<() => void>()

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs
  }

  /** How many may be under way now. */
  get limit(): number {
    return Math.floor(this.#limit)
  }

  /** Sends a request when it may be; resolves or rejects as it does. `isRefused` tells whether it was one too many. */
  async run<T>(send: () => Promise<T>, isRefused: (error: unknown) => boolean, signal: AbortSignal): Promise<T> {
    while (!this.#mayBegin() && !signal.aborted) await this.#wait(signal)
    this.#running++
    const beganAtMs = this.#nowMs()
    try {
      if (this.#running > UNPACED_MAX && !signal.aborted) await line.later(true)
      const answer = await send()
      this.#limit = Math.min(AT_ONCE_MAX, this.#limit + 1 / this.#limit)
      return answer
    } catch (error) {
      // Those that began before the pause say nothing new.
      if (isRefused(error) && beganAtMs >= this.#resumeAtMs) this.#pause()
      throw error
    } finally {
      this.#running--
      this.#wake()
    }
  }

  get #pauseMs(): number {
    return this.#resumeAtMs - this.#nowMs()
  }

  #mayBegin(): boolean {
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

  /** As many as may begin: the limit may have grown, or the pause be over. While one waits, another is under way that calls this. */
  #wake(): void {
    let free = this.#pauseMs > 0 ? 1 - this.#running : this.limit - this.#running
    for (const wake of this.#waiting) if (free-- > 0) wake()
  }

  #pause(): void {
    this.#limit = Math.max(1, this.#limit / 2)
    this.#resumeAtMs = this.#nowMs() + PAUSE_MS
  }
}
