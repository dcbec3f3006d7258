/** Token bucket for bytes: constant rate, burst of 100 ms. */
import { sleep } from '../../platform/clock.ts'

export class BandwidthLimiter {
  readonly #bytesPerMs: number
  readonly #now: () => number
  /** When the bytes taken so far will have been refilled. */
  #paidAtMs = 0

  /** `bytesPerSecond` 0: no limit. */
  constructor(bytesPerSecond: number, now: () => number = () => performance.now()) {
    this.#bytesPerMs = bytesPerSecond / 1000
    this.#now = now
  }

  /** Resolves when these bytes may be sent, in the order of the calls. Resolves early when `signal` aborts. */
  async take(bytes: number, signal?: AbortSignal): Promise<void> {
    if (this.#bytesPerMs <= 0) return
    const nowMs = this.#now()
    const fromMs = Math.max(this.#paidAtMs, nowMs - BURST_MS)
    this.#paidAtMs = fromMs + bytes / this.#bytesPerMs
    const waitMs = this.#paidAtMs - nowMs
    if (waitMs > 0) await sleep(waitMs, signal)
  }
}

const BURST_MS = 100
