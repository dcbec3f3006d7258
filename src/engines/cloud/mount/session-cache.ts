/**
 * Sessions of STS that several callers share, for roles that say so (`cache_ttl`): ten thousand hosts that ask at once are one
 * request to STS. Who asks while a session is being made gets that one. Each caller has a lease of its own, which ends with the session.
 *
 * A session is given out again while it is younger than the role's `cache_ttl` and has half of its life left. It is given out no more once
 * a lease of it is revoked, or the role or the root configuration has changed; those who have it keep it until it ends, as with any
 * session. It is only in memory, so another process begins anew.
 *
 * A caller may ask for session names as it likes, and each is another session. So a role keeps a bounded number, and where that is reached
 * the caller that has begun most of them loses its oldest: it cannot push out those of other roles, nor the one that all others share. Of
 * a role so many are made at a time, the others wait; of a caller so many may wait.
 */
import { createHash } from 'node:crypto'
import { Rejection, type Reply } from '../../framework/engine.ts'
import { Places } from './mount-records.ts'

/** Of one mount; the oldest goes first. */
const SESSIONS_MAX = 1000
const ROLE_SESSIONS_MAX = 200
/** Made at a time, of one role. */
const ROLE_MAKING_MAX = 32
/** Being made or waiting to be, of one caller. */
const CALLER_MAKING_MAX = 32
/** What the making of one may take. It goes on when the caller that began it is gone: others wait for it. */
const MAKING_MS = 60_000

interface Kept {
  readonly role: string
  /** Who has begun it. */
  readonly maker: string
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
  readonly role: string
  /** Who asks: the same text for the same caller. */
  readonly maker: string
  /** All that the session depends on. */
  readonly key: readonly unknown[]
  readonly cacheSeconds: number
  /** The clock by which leases are measured. */
  readonly now: () => number
}

export class SessionCache {
  readonly #kept = new Map<string, Kept>()
  /** How many are being made of a role, and by whom. */
  readonly #making = new Map<string, Places>()

  /**
   * Resolves with the reply for one caller, and with whether it is that of another one's request; `make` is called where there is no
   * session to share. Rejects as `make` does, and with a Rejection (429) for a caller that has too many made.
   */
  async get(by: SharedBy, make: (signal: AbortSignal) => Promise<Reply>): Promise<{ reply: Reply; isShared: boolean }> {
    const { cacheSeconds, key, now, role } = by
    const name = createHash('sha256')
      .update(JSON.stringify([role, ...key]))
      .digest('base64')
    const there = this.#kept.get(name)
    const isShared = there !== undefined && (!there.made || isFresh(there.made, now(), cacheSeconds))
    const { making } = isShared ? there : this.#make(name, by, make)
    const made = await making
    return { reply: replyOf(made, now()), isShared }
  }

  /** Gives a session out no more. */
  forget(accessKey: unknown): void {
    for (const [name, { made }] of this.#kept) if (made?.data['access_key'] === accessKey) this.#kept.delete(name)
  }

  #make(name: string, { maker, now, role }: SharedBy, make: (signal: AbortSignal) => Promise<Reply>): Kept {
    const making = this.#inPlace(role, maker, () => make(AbortSignal.timeout(MAKING_MS))).then(({ data, lease }) => {
      // Only sessions get here, and each has both.
      const made = { ...(data as Made['data']), ttl: lease?.ttlSeconds ?? 0 }
      const order = lease ?? { ttlSeconds: 0, maxTtlSeconds: 0, renewable: false, internal: {} }
      // The TTL counts from the answer of STS, not from the request, which may have waited for its turn.
      const madeAtMs = now()
      return { data: made, lease: order, madeAtMs, endsAtMs: madeAtMs + order.ttlSeconds * 1000 }
    })
    const kept: Kept = { role, maker, making }
    this.#kept.delete(name)
    this.#kept.set(name, kept)
    making.then(
      (made) => (kept.made = made),
      () => this.#kept.get(name) === kept && this.#kept.delete(name),
    )
    this.#bound(role)
    return kept
  }

  async #inPlace(role: string, maker: string, work: () => Promise<Reply>): Promise<Reply> {
    const places = this.#making.get(role) ?? new Places(ROLE_MAKING_MAX, CALLER_MAKING_MAX)
    this.#making.set(role, places)
    const leave = places.enter(maker)
    if (!leave)
      throw new Rejection(429, 'too many sessions of this role are being made for this caller: try again later')
    try {
      await leave.entered
      return await work()
    } finally {
      leave.done()
      if (places.isEmpty && this.#making.get(role) === places) this.#making.delete(role)
    }
  }

  #bound(role: string): void {
    const ofRole = [...this.#kept].filter(([, kept]) => kept.role === role)
    if (ofRole.length > ROLE_SESSIONS_MAX) this.#dropOldest(ofRole, ({ maker }) => maker)
    if (this.#kept.size > SESSIONS_MAX) this.#dropOldest([...this.#kept], (kept) => kept.role)
  }

  /** The oldest of those that the most are of one `owner` with. */
  #dropOldest(some: readonly (readonly [name: string, kept: Kept])[], owner: (kept: Kept) => string): void {
    const counts = new Map<string, number>()
    for (const [, kept] of some) counts.set(owner(kept), (counts.get(owner(kept)) ?? 0) + 1)
    const most = Math.max(...counts.values())
    const oldest = some.find(([, kept]) => counts.get(owner(kept)) === most)
    if (oldest) this.#kept.delete(oldest[0])
  }
}

function isFresh({ endsAtMs, madeAtMs }: Made, nowMs: number, cacheSeconds: number): boolean {
  return nowMs - madeAtMs < cacheSeconds * 1000 && endsAtMs - nowMs >= (endsAtMs - madeAtMs) / 2
}

/** For one caller; its lease begins at `nowMs` and ends with the session. */
function replyOf({ data, endsAtMs, lease }: Made, nowMs: number): Reply {
  const ttlSeconds = Math.max(1, Math.trunc((endsAtMs - nowMs) / 1000))
  const internal = { ...lease.internal, session: data['access_key'] }
  return { data: { ...data, ttl: ttlSeconds }, lease: { ...lease, ttlSeconds, internal } }
}
