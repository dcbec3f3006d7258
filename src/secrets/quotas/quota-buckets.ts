/**
 * Token buckets, one for each quota and caller. A bucket is computed when its caller sends a request; there is no timer. A full bucket is
 * equivalent to none, so it can be removed at any time: each new bucket removes a few full ones. (A `Map` in the order of use would do,
 * but finding its first entry takes time proportional to the number of deleted ones.)
 */
import { LRUCache } from 'lru-cache'

/** Buckets of all quotas together: about 20 MB. */
export const BUCKETS_MAX = 100_000
/** Least recently used buckets that are compared to find the one to evict. */
const EVICTION_CANDIDATES = 16
/** Full buckets removed for each new one, so that the buckets of a flood disappear with later requests. */
const REMOVED_PER_NEW = 2

export interface RateLimit {
  /** Maximum burst. */
  readonly capacity: number
  readonly tokensPerMs: number
  /** How long a caller that exceeds the limit is blocked; 0 for no block. */
  readonly blockMs: number
}

export interface RateDecision {
  readonly isAllowed: boolean
  readonly remaining: number
  /** Time until the bucket is full. */
  readonly resetMs: number
  /** Time until the next request is allowed; 0 if one is allowed now. */
  readonly retryMs: number
  /** With this request the caller was blocked. */
  readonly isNewlyBlocked: boolean
}

interface Bucket {
  tokens: number
  atMs: number
  blockedUntilMs: number
  readonly limit: RateLimit
}

export class QuotaBuckets {
  readonly #bucketsMax: number
  /** Created with the first bucket, because it allocates the memory for all of them. */
  #buckets: LRUCache<string, Bucket> | undefined

  constructor(bucketsMax = BUCKETS_MAX) {
    this.#bucketsMax = bucketsMax
  }

  get size(): number {
    return this.#buckets?.size ?? 0
  }

  /** Counts one request. `nowMs` is monotonic. `blockedMs`: remaining time of a block from before this bucket. */
  take(key: string, limit: RateLimit, nowMs: number, blockedMs: (key: string) => number = () => 0): RateDecision {
    this.#buckets ??= new LRUCache({ max: this.#bucketsMax })
    const known = this.#buckets.get(key)
    const bucket = known ?? { tokens: limit.capacity, atMs: nowMs, blockedUntilMs: 0, limit }
    if (!known) {
      if (limit.blockMs > 0) bucket.blockedUntilMs = nowMs + blockedMs(key)
      evict(this.#buckets, nowMs)
      this.#buckets.set(key, bucket)
    }
    bucket.tokens = tokensOf(bucket, nowMs)
    bucket.atMs = nowMs
    const isBlocked = bucket.blockedUntilMs > nowMs
    const isAllowed = !isBlocked && bucket.tokens >= 1
    const isNewlyBlocked = !isAllowed && !isBlocked && limit.blockMs > 0
    if (isAllowed) bucket.tokens--
    else if (isNewlyBlocked) bucket.blockedUntilMs = nowMs + limit.blockMs
    const remainingMs = Math.max(0, bucket.blockedUntilMs - nowMs)
    const nextMs = Math.max(0, 1 - bucket.tokens) / limit.tokensPerMs
    return {
      isAllowed,
      remaining: remainingMs > 0 ? 0 : Math.floor(bucket.tokens),
      resetMs: Math.max(remainingMs, (limit.capacity - bucket.tokens) / limit.tokensPerMs),
      retryMs: Math.max(remainingMs, nextMs),
      isNewlyBlocked,
    }
  }
}

/** Removes full buckets or, if there is none and the table is full, the fullest of the candidates: its caller loses the least. */
function evict(buckets: LRUCache<string, Bucket>, nowMs: number): void {
  const candidates: { readonly key: string; readonly fullness: number }[] = []
  for (const key of buckets.rkeys()) {
    const bucket = buckets.peek(key)
    if (bucket) candidates.push({ key, fullness: fullnessOf(bucket, nowMs) })
    if (candidates.length === EVICTION_CANDIDATES) break
  }
  candidates.sort((a, b) => b.fullness - a.fullness)
  const full = candidates.slice(0, REMOVED_PER_NEW).filter(({ fullness }) => fullness >= 1)
  const evicted = full.length === 0 && buckets.size >= buckets.max ? candidates.slice(0, 1) : full
  for (const { key } of evicted) buckets.delete(key)
}

function tokensOf({ atMs, limit, tokens }: Bucket, nowMs: number): number {
  return Math.min(limit.capacity, tokens + Math.max(0, nowMs - atMs) * limit.tokensPerMs)
}

/** From 0 to 1; 0 for a blocked caller. */
function fullnessOf(bucket: Bucket, nowMs: number): number {
  return bucket.blockedUntilMs > nowMs ? 0 : tokensOf(bucket, nowMs) / bucket.limit.capacity
}
