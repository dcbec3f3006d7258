/**
 * Resolves tokens on a process that has servers: configured tokens locally, all others by asking a server. Answers are cached:
 *
 * - For `freshMs` the cached answer is used without another request.
 * - After that a server is asked again. If no server answers, the cached answer is used, at most `ttlMs` after it was given: a
 *   network failure must not lock an operator out of a host at once.
 * - Never after the token has expired. A token with a limited number of uses is not cached: each use is a request.
 * - Not after the secrets core was sealed: a server that reports it, or `clear`, empties the cache.
 *
 * `recheck`, for callers whose answer is in progress, asks a server even if the cached answer is fresh.
 *
 * So a revoked token is refused after `freshMs` at the latest, or after `ttlMs` if no server answers.
 *
 * Tokens are stored as hashes only. A refused token is cached for a moment too, so that a caller that retries causes one
 * request.
 */
import { createHash } from 'node:crypto'
import { Refusal, unknownToken } from '../../platform/errors.ts'
import type { Grants, Identity } from '../../platform/operation.ts'
import { TIMINGS } from '../nats/timings.ts'
import type { Authorizer, LocalAuthorizer } from './authorizer.ts'

/** As in the compatible system. */
const CACHED_MAX = 1024
const RECHECK_MIN_MS = 250

interface CachedIdentity {
  /** Undefined for a refused token. */
  readonly identity: Identity | undefined
  /** Until then no server is asked. */
  readonly freshUntilMs: number
  /** Until then it is used if no server answers. */
  readonly usableUntilMs: number
}

interface ResolvedIdentity {
  readonly identity: Identity
  /** False for a token with a limited number of uses: the answer is valid for one call. */
  readonly isShared: boolean
}

export interface RemoteAuthorizerOptions {
  readonly local: LocalAuthorizer
  /**
   * Asks a server. Rejects with a Refusal: `permission_denied` for an unknown token, `sealed` if the secrets core is
   * sealed, any other code if no server answered. A recheck does not count as a use of the token.
   */
  readonly ask: (token: string, remote: string | undefined, isRecheck: boolean) => Promise<Grants>
  readonly identityOf: (grants: Grants) => Identity
  /** Time for which an answer is used without another request; at most `ttlMs`. */
  readonly freshMs: number
  /** Age up to which an answer is used if no server answers. 0 caches nothing. */
  readonly ttlMs: number
  /** Monotonic clock in milliseconds. Default: `performance.now`. */
  readonly now?: () => number
}

export interface RemoteAuthorizer extends Authorizer {
  /** Empties the cache: the secrets core was sealed. */
  clear(): void
}

export function createRemoteAuthorizer(options: RemoteAuthorizerOptions): RemoteAuthorizer {
  const { local, now = () => performance.now() } = options
  const cache = new IdentityCache(now)
  const lookups = new TokenLookups(options, cache, now)
  return {
    clear: () => cache.clear(),
    resolve(token, remote) {
      const known = local.find(token)
      if (known || token === undefined) return known ?? local.resolve(token)
      const key = keyOf(token, remote)
      const cached = cache.get(key)
      if (cached && now() < cached.freshUntilMs) {
        if (cached.identity) return cached.identity
        throw unknownToken()
      }
      return lookups.identityOf({ token, remote, key, isRecheck: false })
    },
    recheck(token, remote) {
      const known = local.find(token)
      if (known || token === undefined) return known ?? local.resolve(token)
      return lookups.identityOf({ token, remote, key: keyOf(token, remote), isRecheck: true })
    },
    recheckMs: Math.min(TIMINGS.recheckMaxMs, Math.max(RECHECK_MIN_MS, options.ttlMs)),
  }
}

function keyOf(token: string, remote: string | undefined): string {
  return createHash('sha256')
    .update(`${remote ?? ''} ${token}`, 'utf8')
    .digest('base64')
}

interface TokenLookup {
  readonly token: string
  readonly remote: string | undefined
  readonly key: string
  readonly isRecheck: boolean
}

class IdentityCache {
  readonly #entries = new Map<string, CachedIdentity>()
  readonly #now: () => number
  /** Number of calls of `clear`: an answer to a request that was sent before the last one is not cached. */
  generation = 0

  constructor(now: () => number) {
    this.#now = now
  }

  get(key: string): CachedIdentity | undefined {
    return this.#entries.get(key)
  }

  set(key: string, entry: CachedIdentity): void {
    this.#entries.delete(key)
    this.#entries.set(key, entry)
    const [oldest] = this.#entries.keys()
    if (this.#entries.size > CACHED_MAX && oldest !== undefined) this.#entries.delete(oldest)
  }

  delete(key: string): void {
    this.#entries.delete(key)
  }

  /** An identity that may be used if no server answers. */
  usable(key: string): Identity | undefined {
    const entry = this.#entries.get(key)
    if (entry && this.#now() < entry.usableUntilMs) return entry.identity
    this.#entries.delete(key)
    return undefined
  }

  clear(): void {
    this.generation++
    this.#entries.clear()
  }
}

/** Requests to servers, at most one for each token at a time. */
class TokenLookups {
  readonly #options: RemoteAuthorizerOptions
  readonly #cache: IdentityCache
  readonly #now: () => number
  readonly #pending = new Map<string, Promise<ResolvedIdentity>>()

  constructor(options: RemoteAuthorizerOptions, cache: IdentityCache, now: () => number) {
    this.#options = options
    this.#cache = cache
    this.#now = now
  }

  async identityOf(lookup: TokenLookup): Promise<Identity> {
    const { key } = lookup
    const pending = this.#pending.get(key)
    if (pending) {
      const { identity, isShared } = await pending
      return isShared ? identity : await this.identityOf(lookup)
    }
    const request = this.#ask(lookup)
    this.#pending.set(key, request)
    return (await request).identity
  }

  async #ask({ token, remote, key, isRecheck }: TokenLookup): Promise<ResolvedIdentity> {
    const [requestedAtMs, generation] = [this.#now(), this.#cache.generation]
    try {
      const grants = await this.#options.ask(token, remote, isRecheck)
      return this.#store(key, grants, requestedAtMs, generation)
    } catch (error) {
      return this.#withoutGrants(key, error)
    } finally {
      this.#pending.delete(key)
    }
  }

  /** `requestedAtMs` is before the request was sent, so the expiry of the token is never computed too late. */
  #store(key: string, grants: Grants, requestedAtMs: number, generation: number): ResolvedIdentity {
    const { freshMs, identityOf, ttlMs } = this.#options
    const identity = identityOf(grants)
    const isShared = grants.isUseLimited !== true
    if (isShared && generation === this.#cache.generation) {
      const usableUntilMs = requestedAtMs + Math.min(ttlMs, grants.expiresInMs ?? Number.POSITIVE_INFINITY)
      const freshUntilMs = Math.min(usableUntilMs, requestedAtMs + freshMs)
      this.#cache.set(key, { identity, freshUntilMs, usableUntilMs })
    } else this.#cache.delete(key)
    return { identity, isShared }
  }

  #withoutGrants(key: string, error: unknown): ResolvedIdentity {
    const code = error instanceof Refusal ? error.code : undefined
    if (code === 'permission_denied') {
      const untilMs = this.#now() + Math.min(TIMINGS.refusedTokenMs, this.#options.ttlMs)
      this.#cache.set(key, { identity: undefined, freshUntilMs: untilMs, usableUntilMs: untilMs })
      throw error
    }
    if (code === 'sealed') {
      this.#cache.clear()
      throw error
    }
    const identity = this.#cache.usable(key)
    if (identity) return { identity, isShared: true }
    // The server has answered with its reason.
    if (code === 'unavailable' || code === 'not_active') throw error
    throw new Refusal('unavailable', 'no server responded to the request about this token, try again')
  }
}
