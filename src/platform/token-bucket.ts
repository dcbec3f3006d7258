/** Token buckets: one that refuses when it is empty, and one that waits. */
import { sleep } from './clock.ts'

/** Token buckets, one for each key: a bucket fills at a steady rate up to its capacity. */
export class TokenBuckets {
  readonly #perSecond: number
  readonly #capacity: number
  readonly #now: () => number
  readonly #buckets = new Map<string, { tokens: number; atMs: number }>()

  /** A burst may take `capacity` at once. `now` is a monotonic clock in milliseconds. */
  constructor(options: { readonly perSecond: number; readonly capacity: number; readonly now: () => number }) {
    this.#perSecond = options.perSecond
    this.#capacity = options.capacity
    this.#now = options.now
  }

  /** Takes `amount` from the bucket of `key`; false and no change if it holds less. */
  take(key: string, amount: number): boolean {
    const nowMs = this.#now()
    const bucket = this.#buckets.get(key) ?? { tokens: this.#capacity, atMs: nowMs }
    this.#buckets.set(key, bucket)
    bucket.tokens = this.#tokensOf(bucket, nowMs)
    bucket.atMs = nowMs
    if (bucket.tokens < amount) return false
    bucket.tokens -= amount
    return true
  }

  #tokensOf({ tokens, atMs }: { tokens: number; atMs: number }, nowMs: number): number {
    return Math.min(this.#capacity, tokens + ((nowMs - atMs) / 1000) * this.#perSecond)
  }

  /** Removes full buckets. */
  sweep(): void {
    const nowMs = this.#now()
    for (const [key, bucket] of this.#buckets) {
      if (this.#tokensOf(bucket, nowMs) >= this.#capacity) this.#buckets.delete(key)
    }
  }
}

/** A token bucket for bytes that waits: constant rate, burst of 100 ms. */
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
