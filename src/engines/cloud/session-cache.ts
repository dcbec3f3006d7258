/**
 * Sessions of STS that several callers share, for roles that say so (`cache_ttl`): ten thousand hosts that ask at once are one
 * request to STS. Who asks while a session is being made gets that one. Each caller has a lease of its own, which ends with the session.
 *
 * A session is given out again while it is younger than the role's `cache_ttl` and has half of its life left. It is given out no more once
 * a lease of it is revoked, or the role or the root configuration has changed; those who have it keep it until it ends, as with any
 * session. It is only in memory, so another process begins anew.
 */
import { createHash } from 'node:crypto'
import type { Reply } from '../engine.ts'

/** Of one mount; the oldest goes first. */
const SESSIONS_MAX = 1000
/** What the making of one may take. It goes on when the caller that began it is gone: others wait for it. */
const MAKING_MS = 60_000

interface Kept {
  readonly making: Promise<Made>
  made?: Made
}

interface Made {
  readonly data: Readonly<Record<string, unknown>>
  readonly lease: NonNullable<Reply['lease']>
  readonly madeAtMs: number
  readonly endsAtMs: number
}

export interface SharedBy {
  /** All that the session depends on. */
  readonly key: readonly unknown[]
  readonly cacheSeconds: number
  readonly nowMs: number
}

export class SessionCache {
  readonly #kept = new Map<string, Kept>()
  /** Requests that were answered by a session of another one. */
  shared = 0

  /** Resolves with the reply for one caller; `make` is called where there is no session to share. Rejects as `make` does. */
  async get({ cacheSeconds, key, nowMs }: SharedBy, make: (signal: AbortSignal) => Promise<Reply>): Promise<Reply> {
    const name = createHash('sha256').update(JSON.stringify(key)).digest('base64')
    const there = this.#kept.get(name)
    const isGood = there && (!there.made || isFresh(there.made, nowMs, cacheSeconds))
    if (isGood) this.shared++
    const { making } = isGood ? there : this.#make(name, nowMs, make)
    return replyOf(await making, nowMs)
  }

  /** Gives a session out no more. */
  forget(accessKey: unknown): void {
    for (const [name, { made }] of this.#kept) if (made?.data['access_key'] === accessKey) this.#kept.delete(name)
  }

  #make(name: string, nowMs: number, make: (signal: AbortSignal) => Promise<Reply>): Kept {
    const making = make(AbortSignal.timeout(MAKING_MS)).then(({ data, lease }) => {
      // Only sessions get here, and each has both.
      const made = { ...(data as Made['data']), ttl: lease?.ttlSeconds ?? 0 }
      const order = lease ?? { ttlSeconds: 0, maxTtlSeconds: 0, renewable: false, internal: {} }
      return { data: made, lease: order, madeAtMs: nowMs, endsAtMs: nowMs + order.ttlSeconds * 1000 }
    })
    const kept: Kept = { making }
    this.#kept.delete(name)
    this.#kept.set(name, kept)
    making.then(
      (made) => (kept.made = made),
      () => this.#kept.get(name) === kept && this.#kept.delete(name),
    )
    for (const oldest of this.#kept.keys()) {
      if (this.#kept.size <= SESSIONS_MAX) break
      this.#kept.delete(oldest)
    }
    return kept
  }
}

function isFresh({ endsAtMs, madeAtMs }: Made, nowMs: number, cacheSeconds: number): boolean {
  return nowMs - madeAtMs < cacheSeconds * 1000 && endsAtMs - nowMs >= (endsAtMs - madeAtMs) / 2
}

function replyOf({ data, endsAtMs, lease }: Made, nowMs: number): Reply {
  const ttlSeconds = Math.max(1, Math.trunc((endsAtMs - nowMs) / 1000))
  const internal = { ...lease.internal, session: data['access_key'] }
  return { data: { ...data, ttl: ttlSeconds }, lease: { ...lease, ttlSeconds, internal } }
}
