/**
 * Resolves the token of a request to a caller with its permissions: for the secrets core, and for the rest of the process, which
 * authorizes requests about hosts with the same tokens and policies.
 *
 * Each request counts as one use of a token whose number of uses is limited, even if it is refused later. The new count is
 * durable before the answer. Concurrent uses are counted one after the other.
 */
import type { Canonical } from '../../engines/framework/path-table.ts'
import { type Caller, Rejection } from '../../engines/framework/engine.ts'
import { unknownToken } from '../../platform/errors.ts'
import type { Grants, Identity } from '../../platform/operation.ts'
import type { AccessRequest, Acl, Decision } from '../policies/acl.ts'
import type { TokenEntry } from './token-entry.ts'
import type { PolicyStore } from '../policies/policy-store.ts'
import type { TokenRevocation, TokenUse } from './token-revocation.ts'
import type { CachedToken, TokenStore } from './token-store.ts'

/** A caller with its permissions, and the use of its token that this request took. */
export interface AdmittedCaller {
  readonly caller: Caller
  /**
   * Owner of the caller's leases, with which they are revoked: the hash of its own token or, for a batch token, the hash of its
   * parent or the UUID of the auth method of its login. Empty if there is none.
   */
  readonly leaseOwner: string
  /** Absent for a token that does not expire. */
  readonly expiresAtMs?: number | undefined
  decide(request: AccessRequest): Decision
  /** Whether some rule may grant access below a path, which ends with a slash. */
  reaches(path: string): boolean
  /** Whether the token is still valid: for answers that take long. */
  isValid(): boolean
  /** Absent for a token with an unlimited number of uses. */
  readonly use?: TokenUse
}

/** Resolves when the use of a token is durable and, after its last use, the token is revoked. */
export async function finishUse({ use }: Pick<AdmittedCaller, 'use'>): Promise<void> {
  await use?.written
  await use?.revokeSpent?.()
}

function leaseOwnerOf({ hash, login, parent, type }: TokenEntry): string {
  if (type === 'service') return hash
  // A batch token cannot create tokens, so its parent is a service token.
  return parent === '' ? (login?.mount ?? '') : parent
}

export interface TokenAdmissionOptions {
  readonly tokens: TokenStore
  readonly revocation: TokenRevocation
  readonly policies: PolicyStore
  readonly now: () => number
  readonly aclOf: (entry: TokenEntry) => Acl
  readonly canonical: Canonical
  /** Names of the policies of a token and its entity; undefined if the entity is disabled or was deleted. */
  readonly policiesOf: (entry: TokenEntry) => readonly string[] | undefined
  /** Called when a token with bound addresses is refused because the address of its caller is unknown. */
  readonly onUnknownAddress: (accessor: string) => void
}

interface PresentedToken {
  readonly token: string
  /** Address of the caller; undefined if no server has seen it. */
  readonly remote: string | undefined
  /** True to check again for an answer under way, which takes no further use. */
  readonly isRecheck: boolean
}

export class TokenAdmission {
  readonly #options: TokenAdmissionOptions
  /** One per cached entry of a token. */
  readonly #admitted = new WeakMap<CachedToken, AdmittedCaller>()

  constructor(options: TokenAdmissionOptions) {
    this.#options = options
  }

  /** Throws a Rejection (403) for an invalid token, and for an address to which the token is not bound. */
  admit(token: string | undefined, remote: string | undefined): AdmittedCaller {
    const cached = this.#lookup(token, remote)
    if (!cached) throw new Rejection(403, 'permission denied')
    if (cached.entry.usesLeft !== 0) return { ...this.#callerOf(cached), use: this.#takeUse(cached.entry.hash) }
    let admitted = this.#admitted.get(cached)
    if (!admitted) this.#admitted.set(cached, (admitted = this.#callerOf(cached)))
    return admitted
  }

  /** Whether `admit` would accept the token; takes no use. */
  knows(token: string | undefined, remote: string | undefined): boolean {
    return this.#lookup(token, remote) !== undefined
  }

  #lookup(token: string | undefined, remote: string | undefined): CachedToken | undefined {
    const { now, policiesOf, tokens } = this.#options
    const cached = token === undefined ? undefined : tokens.lookup(token, now())
    return cached?.isAllowedFrom(remote) && policiesOf(cached.entry) ? cached : undefined
  }

  #callerOf(cached: CachedToken): AdmittedCaller {
    const { aclOf, canonical, now, policiesOf, tokens } = this.#options
    const { caller, entry } = cached
    return {
      caller,
      leaseOwner: leaseOwnerOf(entry),
      expiresAtMs: entry.expiresAtMs,
      decide: (request) => aclOf(entry).decide(request, canonical),
      reaches: (path) => aclOf(entry).allowsAnythingUnder(path),
      isValid: () => tokens.isStillValid(cached, now()) && policiesOf(entry) !== undefined,
    }
  }

  /** Throws a Rejection (403) if no use is left. */
  #takeUse(hash: string): TokenUse {
    const { revocation, tokens } = this.#options
    const entry = tokens.pending(hash)
    if (!entry || entry.usesLeft < 0 || entry.isLeaving) throw new Rejection(403, 'permission denied')
    const use =
      entry.usesLeft === 1
        ? revocation.takeLastUse(entry)
        : { written: tokens.change(entry, { ...entry, usesLeft: entry.usesLeft - 1 }) }
    // Awaited later, after the audit line of the request. A failure before that must not be an unhandled rejection.
    use.written.catch(() => undefined)
    return use
  }

  /**
   * The identity of a token for requests about hosts. Throws a Refusal for an invalid token. Takes one use of a token whose
   * number of uses is limited, unless `isRecheck`.
   */
  identityOf(token: string, remote: string | undefined, isRecheck: boolean): Identity | Promise<Identity> {
    const { now, policies: store } = this.#options
    return this.#resolve({ token, remote, isRecheck }, ({ accessor }, policies) =>
      store.identity(policies, now(), accessor),
    )
  }

  /** The permissions of a token for another process. Throws and counts as `identityOf`. */
  grantsOf(token: string, remote: string | undefined, isRecheck: boolean): Grants | Promise<Grants> {
    return this.#resolve({ token, remote, isRecheck }, ({ accessor, expiresAtMs, usesLeft }, policies) => {
      const nowMs = this.#options.now()
      const records = policies.flatMap((name) => this.#options.policies.find(name, nowMs) ?? [])
      const ends = [expiresAtMs, ...records.map((record) => record.expiresAtMs)].filter((ms) => ms !== undefined)
      return {
        accessor,
        management: policies.includes('root'),
        policies: records.map(({ text }) => text),
        isUseLimited: usesLeft !== 0,
        ...(ends.length > 0 && { expiresInMs: Math.max(0, Math.min(...ends) - nowMs) }),
      }
    })
  }

  #resolve<T>({ isRecheck, remote, token }: PresentedToken, describe: DescribeToken<T>): T | Promise<T> {
    const { now, onUnknownAddress, policiesOf, tokens } = this.#options
    const cached = tokens.lookup(token, now())
    const policies = cached && policiesOf(cached.entry)
    if (!policies || !cached.isAllowedFrom(remote)) {
      if (policies && remote === undefined) onUnknownAddress(cached.entry.accessor)
      throw unknownToken()
    }
    if (cached.entry.usesLeft === 0 || isRecheck) return describe(cached.entry, policies)
    return this.#resolveWithUse(cached.entry, describe)
  }

  async #resolveWithUse<T>(entry: TokenEntry, describe: DescribeToken<T>): Promise<T> {
    const use = this.#takeUse(entry.hash)
    await use.written
    const policies = this.#options.policiesOf(entry)
    if (!policies) throw unknownToken()
    const description = describe(entry, policies)
    await use.revokeSpent?.()
    return description
  }
}

/** `policies` are those of the token and of its entity. */
type DescribeToken<T> = (entry: TokenEntry, policies: readonly string[]) => T
