/**
 * Token buckets, one for each quota and caller. A bucket is a few numbers that are looked at when its caller comes: there is
 * no timer. One that is full again says the same as none, so it may go at any time; new ones take such with them. (A `Map`
 * in the order of use would do, but takes time with the number of its deleted entries to find its first.)
 */
import { LRUCache } from 'lru-cache'

/** Callers that are counted at a time, of all quotas together: some 20 MB. */
export const BUCKETS_MAX = 100_000
/** Of the longest unused ones, how many are looked at to find the one that gives way. */
const LOOKED_AT = 16
/** Full ones that go for each one that comes, so that what a flood leaves behind goes with those who come later. */
const SWEPT_FOR_ONE = 2

export interface Limit {
  /** Requests at once of a caller that was silent before. */
  readonly capacity: number
  readonly tokensPerMs: number
  /** How long a caller that has used up its requests gets none at all; 0: it gets each as soon as it is there. */
  readonly blockMs: number
}

export interface Taken {
  readonly isAllowed: boolean
  readonly remaining: number
  /** Until all requests are there again. */
  readonly resetMs: number
  /** Until the next is allowed; 0 where one is left. */
  readonly retryMs: number
}

interface Bucket {
  tokens: number
  atMs: number
  blockedUntilMs: number
  readonly limit: Limit
}

export class QuotaBuckets {
  readonly #bucketsMax: number
  /** Takes memory for all from the beginning, so it is made for the first. */
  #buckets: LRUCache<string, Bucket> | undefined

  constructor(bucketsMax = BUCKETS_MAX) {
    this.#bucketsMax = bucketsMax
  }

  get size(): number {
    return this.#buckets?.size ?? 0
  }

  /** Counts one request. `nowMs` is of a clock that nobody sets. */
  take(key: string, limit: Limit, nowMs: number): Taken {
    this.#buckets ??= new LRUCache({ max: this.#bucketsMax })
    const known = this.#buckets.get(key)
    const bucket = known ?? { tokens: limit.capacity, atMs: nowMs, blockedUntilMs: 0, limit }
    if (!known) {
      makeRoom(this.#buckets, nowMs)
      this.#buckets.set(key, bucket)
    }
    bucket.tokens = tokensOf(bucket, nowMs)
    bucket.atMs = nowMs
    const isBlocked = bucket.blockedUntilMs > nowMs
    const isAllowed = !isBlocked && bucket.tokens >= 1
    if (isAllowed) bucket.tokens--
    else if (!isBlocked && limit.blockMs > 0) bucket.blockedUntilMs = nowMs + limit.blockMs
    const blockedMs = Math.max(0, bucket.blockedUntilMs - nowMs)
    const nextMs = Math.max(0, 1 - bucket.tokens) / limit.tokensPerMs
    return {
      isAllowed,
      remaining: blockedMs > 0 ? 0 : Math.floor(bucket.tokens),
      resetMs: Math.max(blockedMs, (limit.capacity - bucket.tokens) / limit.tokensPerMs),
      retryMs: Math.max(blockedMs, nextMs),
    }
  }
}

/** A caller whose bucket goes begins anew: that of one who has asked little is the one to lose. */
function makeRoom(buckets: LRUCache<string, Bucket>, nowMs: number): void {
  const oldest: { readonly key: string; readonly fullness: number }[] = []
  for (const key of buckets.rkeys()) {
    const bucket = buckets.peek(key)
    if (bucket) oldest.push({ key, fullness: fullnessOf(bucket, nowMs) })
    if (oldest.length === LOOKED_AT) break
  }
  oldest.sort((a, b) => b.fullness - a.fullness)
  const full = oldest.slice(0, SWEPT_FOR_ONE).filter(({ fullness }) => fullness >= 1)
  const leaving = full.length === 0 && buckets.size >= buckets.max ? oldest.slice(0, 1) : full
  for (const { key } of leaving) buckets.delete(key)
}

function tokensOf({ atMs, limit, tokens }: Bucket, nowMs: number): number {
  return Math.min(limit.capacity, tokens + Math.max(0, nowMs - atMs) * limit.tokensPerMs)
}

/** From 0, also for a caller that is blocked, to 1. */
function fullnessOf(bucket: Bucket, nowMs: number): number {
  return bucket.blockedUntilMs > nowMs ? 0 : tokensOf(bucket, nowMs) / bucket.limit.capacity
}
