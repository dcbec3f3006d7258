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
