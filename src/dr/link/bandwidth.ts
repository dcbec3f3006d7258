/** How many bytes may leave: a bucket that fills at a steady rate and holds what a tenth of a second brings. */
import { sleep } from '../../platform/clock.ts'

export class Bandwidth {
  readonly #bytesPerMs: number
  readonly #now: () => number
  /** When all that has been taken will have been paid for. */
  #paidAtMs = 0

  /** `bytesPerSecond` 0: no limit. */
  constructor(bytesPerSecond: number, now: () => number = () => performance.now()) {
    this.#bytesPerMs = bytesPerSecond / 1000
    this.#now = now
  }

  /** Resolves when these bytes may leave; takers come in their order. Resolves early when `signal` aborts. */
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
