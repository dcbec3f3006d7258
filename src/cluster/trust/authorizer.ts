/**
 * Resolves the token of a call to an identity, on a process that resolves all tokens itself.
 *
 * The configuration names tokens by their SHA-256 (`acl { token "ops" { sha256 = "..." policy = "..." } }`). The tokens
 * themselves are not on this machine, so an attacker with its files has no token. Policies are compiled elsewhere: this
 * module receives the identity of each token.
 *
 * Promises:
 * - The time to accept or refuse a token depends only on its length and on the number of configured tokens: all hashes are
 *   compared, in constant time.
 * - An unknown token is refused. It never has the permissions of a call without a token, because the caller must learn that its
 *   token is wrong.
 * - No token and no hash is stored, logged or part of an error. An identity contains the accessor of the token.
 * - With ACL off every caller has all permissions, and tokens are ignored.
 *
 * Assumptions: tokens are long and random, as `openssl rand` and secrets servers generate them. A plain hash of a short
 * password could be guessed from the configuration. The configuration has validated the hashes; a malformed one is a fault.
 *
 * Failure modes: none at run time. Identities are immutable; a reload builds a new authorizer and replaces the old one, so a call
 * sees one set or the other.
 */
import { hash, timingSafeEqual } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Fault, notActive, Refusal, unknownToken } from '../../platform/errors.ts'
import type { Grants, Identity } from '../../platform/operation.ts'
import { TIMINGS } from '../nats/timings.ts'

export interface TokenIdentity {
  /** Name in the configuration, for error messages. */
  readonly name: string
  /** 64 hexadecimal digits. */
  readonly sha256: string
  readonly identity: Identity
  readonly grants: Grants
}

export interface AuthorizerOptions {
  /** False: every caller has all permissions. */
  readonly enabled: boolean
  readonly tokens: readonly TokenIdentity[]
  /** Identity of calls without a token. */
  readonly anonymous: Identity
  /** Identity of all calls while `enabled` is false. Default: all permissions. */
  readonly management?: Identity
}

export interface Authorizer {
  /**
   * The identity of a token. An empty one counts as none, because clients without a token send it.
   * @throws Refusal `permission_denied` for an unknown token.
   * @throws Refusal `unavailable` if no process can resolve it at present, `not_active` if no server of the cluster is active.
   */
  resolve(token: string | undefined, remote?: string): Identity | Promise<Identity>
  /**
   * As `resolve`, for an admitted caller whose answer is in progress. It does not count as a use of the token, and a cached
   * answer is used only if no server answers.
   */
  recheck(token: string | undefined, remote?: string): Identity | Promise<Identity>
  /** Longest interval of the rechecks of a caller, in milliseconds. */
  readonly recheckMs: number
  /** Permissions of a token for another process. Absent where this process does not answer that. Throws as `resolve`. */
  grantsOf?(
    token: string | undefined,
    remote?: string,
    isRecheck?: boolean,
    /** False: refused with `not_active` unless this process can answer without another server. Default true. */
    mayAsk?: boolean,
  ): Grants | Promise<Grants>
}

/** Resolves tokens that are not configured: the secrets core of this process. Throws Refusals as `resolve`. */
export interface TokenAuthority {
  /** `remote` is the client address; a token may be bound to addresses. A recheck does not count as a use of a token with limited uses. */
  identityOf(token: string, remote: string | undefined, isRecheck?: boolean): Identity | Promise<Identity>
  grantsOf(token: string, remote: string | undefined, isRecheck?: boolean): Grants | Promise<Grants>
}

/** Configured tokens first, so that they work while the core is sealed; the core resolves all others. */
export function createCoreAuthorizer(local: LocalAuthorizer, core: TokenAuthority): Authorizer {
  return {
    resolve: (token, remote) => local.find(token) ?? core.identityOf(token ?? '', remote),
    recheck: (token, remote) => local.find(token) ?? core.identityOf(token ?? '', remote, true),
    recheckMs: TIMINGS.recheckLocalMs,
    grantsOf: (token, remote, isRecheck) =>
      local.find(token) ? local.grantsOf(token) : core.grantsOf(token ?? '', remote, isRecheck),
  }
}

/** Times for which a token is not refused because no server of an HA cluster is active. */
export interface HeldTimes {
  readonly requestMs: number
  /** The answer in progress continues meanwhile. */
  readonly recheckMs: number
  /** Less than the timeout of the process that asks. */
  readonly grantsMs: number
}

/** A takeover needs 5 seconds, or 12 if it includes an election of NATS. */
const HELD_TIMES: HeldTimes = { requestMs: 15_000, recheckMs: 30_000, grantsMs: 4000 }
const HELD_RETRY_MS = 100

/**
 * The authorizer of a process that asks a server of an HA cluster. While no server is active, new requests wait, and a recheck has no
 * result: what is in progress continues.
 */
export function createHeldAuthorizer(asking: Authorizer, times = HELD_TIMES): Authorizer {
  return heldAuthorizer(() => asking, times)
}

/** The core's authorizer while `isActive`; otherwise the one that asks the active server. */
export function createMemberAuthorizer(
  core: Authorizer,
  asking: Authorizer,
  isActive: () => boolean,
  times = HELD_TIMES,
): Authorizer {
  const either = heldAuthorizer(() => (isActive() ? core : asking), times)
  return {
    ...either,
    get recheckMs() {
      return either.recheckMs
    },
    grantsOf(token, remote, isRecheck, mayAsk = true) {
      if (!mayAsk && !isActive()) throw notActive()
      return either.grantsOf?.(token, remote, isRecheck, mayAsk) ?? refuseGrants()
    },
  }
}

function heldAuthorizer(now: () => Authorizer, { grantsMs, recheckMs, requestMs }: HeldTimes): Authorizer {
  return {
    resolve: (token, remote) => repeatedWhileInactive(() => now().resolve(token, remote), requestMs),
    recheck: (token, remote) => repeatedWhileInactive(() => now().recheck(token, remote), recheckMs),
    get recheckMs() {
      return now().recheckMs
    },
    grantsOf: (token, remote, isRecheck, mayAsk) =>
      repeatedWhileInactive(() => now().grantsOf?.(token, remote, isRecheck, mayAsk) ?? refuseGrants(), grantsMs),
  }
}

/** Repeats an attempt that was refused because no server is active. */
function repeatedWhileInactive<T>(attempt: () => T | Promise<T>, heldMs: number): T | Promise<T> {
  const first = attempt()
  return first instanceof Promise ? repeated(first, attempt, performance.now() + heldMs) : first
}

async function repeated<T>(first: Promise<T>, attempt: () => T | Promise<T>, endMs: number): Promise<T> {
  for (let next: T | Promise<T> = first; ; next = attempt()) {
    try {
      return await next
    } catch (error) {
      const isHeld = error instanceof Refusal && error.code === 'not_active'
      if (!isHeld || performance.now() > endMs) throw error
    }
    await sleep(HELD_RETRY_MS)
  }
}

/** An authorizer for configured tokens. */
export interface LocalAuthorizer extends Authorizer {
  resolve(token: string | undefined): Identity
  recheck(token: string | undefined): Identity
  /** Undefined for an unknown token, which `resolve` refuses. */
  find(token: string | undefined): Identity | undefined
  grantsOf(token: string | undefined): Grants
}

/** Identity of all callers of a process with ACL off. */
export const UNRESTRICTED: Identity = Object.freeze<Identity>({
  accessor: 'acl-disabled',
  allowsNode: () => true,
  allowsAgent: () => true,
  allowsNamespace: () => true,
})

const ALL_GRANTS: Grants = { accessor: 'acl-disabled', management: true, policies: [] }

/**
 * An authorizer over a fixed set of tokens.
 * @throws Fault when a hash is malformed.
 */
export function createAuthorizer(options: AuthorizerOptions): LocalAuthorizer {
  const management = options.management ?? UNRESTRICTED
  if (!options.enabled) {
    const resolve = () => management
    return {
      resolve,
      recheck: resolve,
      recheckMs: TIMINGS.recheckLocalMs,
      find: resolve,
      grantsOf: () => ALL_GRANTS,
    }
  }
  const configured = options.tokens.map((token) => {
    if (!/^[\da-f]{64}$/i.test(token.sha256)) {
      throw new Fault(`the sha256 of token ${JSON.stringify(token.name)} is malformed`)
    }
    return { digest: Buffer.from(token.sha256, 'hex'), token }
  })
  const lookUp = (presentedToken: string): TokenIdentity | undefined => {
    const presented = hash('sha256', presentedToken, 'buffer')
    let found: TokenIdentity | undefined
    for (const { digest, token } of configured) {
      // No early exit: the time must not depend on which token matches.
      const equal = timingSafeEqual(presented, digest)
      found = equal ? token : found
    }
    return found
  }
  const find = (token: string | undefined) =>
    token === undefined || token === '' ? options.anonymous : lookUp(token)?.identity
  const resolve = (token: string | undefined) => find(token) ?? refuse()
  return {
    find,
    resolve,
    recheck: resolve,
    recheckMs: TIMINGS.recheckLocalMs,
    grantsOf: (token) => (token === undefined ? undefined : lookUp(token))?.grants ?? refuse(),
  }
}

function refuseGrants(): never {
  throw new Fault('this process does not resolve tokens for other processes')
}

function refuse(): never {
  throw unknownToken()
}
