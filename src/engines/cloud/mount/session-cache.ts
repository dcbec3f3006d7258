/**
 * Cache of STS sessions that several callers share, for roles with `cache_ttl`: ten thousand hosts that start at once cause one
 * request to STS. A caller that arrives while a session is being created waits for it. Each caller has its own lease, which expires
 * with the session.
 *
 * A session is reused while it is younger than `cache_ttl` of the role and has at least half of its lifetime left. It is not reused
 * after a lease of it was revoked, or after a change of the role or the root configuration. Callers that have it keep it until it
 * expires. The cache is only in memory, so another process starts with an empty one.
 *
 * A caller may choose session names, and each name is a separate session. So the number of sessions of a role is limited. At
 * the limit, the caller that created most of them loses its oldest one: it can evict neither sessions of other roles nor the
 * one that all other callers share. The creation of sessions is limited per role and per caller.
 */
import { createHash } from 'node:crypto'
import { Rejection, type Reply } from '../../framework/engine.ts'

/** Sessions of a mount. */
const SESSIONS_MAX = 1000
const ROLE_SESSIONS_MAX = 200
/** Concurrent creations of a role. */
const ROLE_CREATIONS_MAX = 32
/** Creations of a caller, running or waiting. */
const CALLER_CREATIONS_MAX = 32
/** Timeout of a creation. It continues without the caller that started it, because others wait for it. */
const CREATION_TIMEOUT_MS = 60_000

interface CachedSession {
  readonly role: string
  /** The caller that created it. */
  readonly caller: string
  readonly pending: Promise<IssuedSession>
  /** Set once `pending` is resolved. */
  issued?: IssuedSession
}

interface IssuedSession {
  readonly data: Readonly<Record<string, unknown>>
  readonly lease: NonNullable<Reply['lease']>
  readonly issuedAtMs: number
  readonly expiresAtMs: number
}

export interface SessionRequest {
  readonly role: string
  /** Identifies the caller. */
  readonly caller: string
  /** Everything that the session depends on. */
  readonly key: readonly unknown[]
  readonly cacheSeconds: number
  /** The clock of leases. */
  readonly now: () => number
}

export class SessionCache {
  readonly #sessions = new Map<string, CachedSession>()
  /** By role. */
  readonly #creations = new Map<string, ConcurrencyLimit>()

  /**
   * Resolves with the reply, and with whether its session was created by another request; otherwise `create` is called. Rejects as
   * `create` does, and with a Rejection (429) for a caller with too many creations.
   */
  async get(
    request: SessionRequest,
    create: (signal: AbortSignal) => Promise<Reply>,
  ): Promise<{ reply: Reply; isShared: boolean }> {
    const { cacheSeconds, key, now, role } = request
    const id = createHash('sha256')
      .update(JSON.stringify([role, ...key]))
      .digest('base64')
    const cached = this.#sessions.get(id)
    const isShared = cached !== undefined && (!cached.issued || isReusable(cached.issued, now(), cacheSeconds))
    const { pending } = isShared ? cached : this.#create(id, request, create)
    const issued = await pending
    return { reply: replyOf(issued, now()), isShared }
  }

  /** Removes a session, which is then not reused. */
  forget(accessKey: unknown): void {
    for (const [id, { issued }] of this.#sessions) {
      if (issued?.data['access_key'] === accessKey) this.#sessions.delete(id)
    }
  }

  #create(
    id: string,
    { caller, now, role }: SessionRequest,
    create: (signal: AbortSignal) => Promise<Reply>,
  ): CachedSession {
    const created = this.#limited(role, caller, () => create(AbortSignal.timeout(CREATION_TIMEOUT_MS)))
    const pending = created.then(({ data, lease }) => {
      // `create` is for sessions only, whose replies have data and a lease.
      const sessionData = { ...(data as IssuedSession['data']), ttl: lease?.ttlSeconds ?? 0 }
      const sessionLease = lease ?? { ttlSeconds: 0, maxTtlSeconds: 0, renewable: false, internal: {} }
      // The TTL counts from the response of STS, not from the request, which may have waited.
      const issuedAtMs = now()
      const expiresAtMs = issuedAtMs + sessionLease.ttlSeconds * 1000
      return { data: sessionData, lease: sessionLease, issuedAtMs, expiresAtMs }
    })
    const session: CachedSession = { role, caller, pending }
    this.#sessions.delete(id)
    this.#sessions.set(id, session)
    pending.then(
      (issued) => (session.issued = issued),
      () => this.#sessions.get(id) === session && this.#sessions.delete(id),
    )
    this.#evict(role)
    return session
  }

  async #limited(role: string, caller: string, work: () => Promise<Reply>): Promise<Reply> {
    const limit = this.#creations.get(role) ?? new ConcurrencyLimit(ROLE_CREATIONS_MAX, CALLER_CREATIONS_MAX)
    this.#creations.set(role, limit)
    const slot = limit.acquire(caller)
    if (!slot)
      throw new Rejection(429, 'too many sessions of this role are being created for this caller, try again later')
    try {
      await slot.acquired
      return await work()
    } finally {
      slot.release()
      if (limit.isIdle && this.#creations.get(role) === limit) this.#creations.delete(role)
    }
  }

  #evict(role: string): void {
    const ofRole = [...this.#sessions].filter(([, session]) => session.role === role)
    if (ofRole.length > ROLE_SESSIONS_MAX) this.#evictOldest(ofRole, ({ caller }) => caller)
    if (this.#sessions.size > SESSIONS_MAX) this.#evictOldest([...this.#sessions], (session) => session.role)
  }

  /** Evicts the oldest session of the owner with most sessions. */
  #evictOldest(
    sessions: readonly (readonly [id: string, session: CachedSession])[],
    ownerOf: (session: CachedSession) => string,
  ): void {
    const counts = new Map<string, number>()
    for (const [, session] of sessions) counts.set(ownerOf(session), (counts.get(ownerOf(session)) ?? 0) + 1)
    const maxCount = Math.max(...counts.values())
    const oldest = sessions.find(([, session]) => counts.get(ownerOf(session)) === maxCount)
    if (oldest) this.#sessions.delete(oldest[0])
  }
}

function isReusable({ expiresAtMs, issuedAtMs }: IssuedSession, nowMs: number, cacheSeconds: number): boolean {
  return nowMs - issuedAtMs < cacheSeconds * 1000 && expiresAtMs - nowMs >= (expiresAtMs - issuedAtMs) / 2
}

/** The reply for one caller. Its lease starts at `nowMs` and expires with the session. */
function replyOf({ data, expiresAtMs, lease }: IssuedSession, nowMs: number): Reply {
  const ttlSeconds = Math.max(1, Math.trunc((expiresAtMs - nowMs) / 1000))
  const internal = { ...lease.internal, session: data['access_key'] }
  return { data: { ...data, ttl: ttlSeconds }, lease: { ...lease, ttlSeconds, internal } }
}

interface ConcurrencySlot {
  /** Resolves when the work may start. */
  readonly acquired: Promise<void>
  /** To be called once, at the end of the work. */
  readonly release: () => void
}

/** Limits concurrent work in FIFO order, and the running and waiting work of each caller. */
class ConcurrencyLimit {
  readonly #runningMax: number
  readonly #perCallerMax: number
  readonly #byCaller = new Map<string, number>()
  readonly #waiting: (() => void)[] = []
  #running = 0

  constructor(runningMax: number, perCallerMax: number) {
    this.#runningMax = runningMax
    this.#perCallerMax = perCallerMax
  }

  get isIdle(): boolean {
    return this.#byCaller.size === 0
  }

  /** Undefined for a caller at its limit. */
  acquire(caller: string): ConcurrencySlot | undefined {
    const count = this.#byCaller.get(caller) ?? 0
    if (count >= this.#perCallerMax) return undefined
    this.#byCaller.set(caller, count + 1)
    const { promise: acquired, resolve } = Promise.withResolvers<void>()
    if (this.#running < this.#runningMax) {
      this.#running++
      resolve()
    } else this.#waiting.push(resolve)
    return { acquired, release: () => this.#release(caller) }
  }

  #release(caller: string): void {
    const count = (this.#byCaller.get(caller) ?? 1) - 1
    if (count > 0) this.#byCaller.set(caller, count)
    else this.#byCaller.delete(caller)
    const next = this.#waiting.shift()
    // The next work takes over the slot.
    if (next) next()
    else this.#running--
  }
}
