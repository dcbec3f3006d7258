/**
 * Who is calling: from the token that came with a call to an identity, for an agent that stands alone.
 *
 * The configuration names tokens by their SHA-256 (`acl { token "ops" { sha256 = "..." policy = "..." } }`); the
 * tokens themselves are nowhere on this machine, so reading its files gives nobody a token. Policies are not
 * this room's business: it is handed each token's identity ready made.
 *
 * Promises:
 * - The time it takes to refuse or accept a token depends on the token's length and on how many tokens are
 *   configured, not on how much of it is right nor on which one it equals: hashes of equal length are compared in
 *   constant time, every one of them, whatever the ones before gave.
 * - An unknown token is refused; it never falls back to what calls without a token may do. A caller that presents a
 *   wrong token has a mistake to learn of.
 * - Neither a token nor a hash is kept, logged or put into an error. An identity carries the token's public name.
 * - With ACL off everybody may do everything, and a token that comes along is not even looked at.
 *
 * Assumes that tokens are long and random, as `openssl rand` and every secrets server make them: a plain hash of a
 * short password could be guessed by whoever reads the configuration. Assumes that hashes were checked by the
 * configuration; one that is malformed here is a fault of ours.
 *
 * What can go wrong: nothing at run time, there is no input besides the token and no one to ask. The identities are
 * fixed; a reload builds a new authorizer and swaps it in, so a call sees the old set or the new one, never a mix.
 */
import { hash, timingSafeEqual } from 'node:crypto'
import { Fault, unknownToken } from '../../platform/errors.ts'
import type { Grants, Identity } from '../../platform/operation.ts'
import { TIMINGS } from '../nats/timings.ts'

export interface TokenIdentity {
  /** Public name, for messages about this configuration. */
  readonly name: string
  /** 64 hexadecimal digits. */
  readonly sha256: string
  readonly identity: Identity
  readonly grants: Grants
}

export interface AuthorizerOptions {
  /** False lets everybody do everything. */
  readonly enabled: boolean
  readonly tokens: readonly TokenIdentity[]
  /** Who calls without a token. */
  readonly anonymous: Identity
  /** Who everybody is while `enabled` is false; may do everything unless given. */
  readonly management?: Identity
}

export interface Authorizer {
  /**
   * The identity behind a token; an empty one counts as none, since that is what clients without a token send.
   * @throws Refusal `permission_denied` for a token that is not known.
   * @throws Refusal `unavailable` while nobody can tell.
   */
  resolve(token: string | undefined, remote?: string): Identity | Promise<Identity>
  /**
   * As `resolve`, for a caller that was admitted before and whose answer still lasts. A use of the token is not taken, and
   * nothing that is remembered stands for a server that can be asked.
   */
  recheck(token: string | undefined, remote?: string): Identity | Promise<Identity>
  /** Longest time between two rechecks of a caller, in milliseconds: short where they cost nothing. */
  readonly recheckMs: number
  /** What to tell another process about a token, where this one may; `again` as in `recheck`. Throws as `resolve` does. */
  grantsOf?(token: string | undefined, remote?: string, again?: boolean): Grants | Promise<Grants>
}

/** Who knows tokens that are in no configuration: the secrets core of this process. Throws Refusals as `resolve` does. */
export interface TokenAuthority {
  /** `remote`: the address that the token came from; some tokens are good for some addresses only. */
  identityOf(token: string, remote: string | undefined, again?: boolean): Identity | Promise<Identity>
  /** With `again` no use is taken of a token whose uses are limited: its caller was admitted before. */
  grantsOf(token: string, remote: string | undefined, again?: boolean): Grants | Promise<Grants>
}

/** The tokens of the configuration first, so that they work while the core is sealed; all others are the core's. */
export function createCoreAuthorizer(own: OwnAuthorizer, core: TokenAuthority): Authorizer {
  return {
    resolve: (token, remote) => own.find(token) ?? core.identityOf(token ?? '', remote),
    recheck: (token, remote) => own.find(token) ?? core.identityOf(token ?? '', remote, true),
    recheckMs: TIMINGS.recheckOwnMs,
    grantsOf: (token, remote, again) =>
      own.find(token) ? own.grantsOf(token) : core.grantsOf(token ?? '', remote, again),
  }
}

/** An authorizer that has its tokens itself. */
export interface OwnAuthorizer extends Authorizer {
  resolve(token: string | undefined): Identity
  recheck(token: string | undefined): Identity
  /** The identity behind a token; undefined for one that is not known, where `resolve` refuses. */
  find(token: string | undefined): Identity | undefined
  /** What to tell another process about a token. Throws as `resolve` does. */
  grantsOf(token: string | undefined): Grants
}

/** Every caller of a process whose ACL is off. */
export const EVERYBODY: Identity = Object.freeze<Identity>({
  accessor: 'acl-disabled',
  allowsNode: () => true,
  allowsAgent: () => true,
  allowsNamespace: () => true,
})

const ALL: Grants = { accessor: 'acl-disabled', management: true, policies: [] }

/**
 * An authorizer over a fixed set of tokens.
 * @throws Fault when a hash is malformed.
 */
export function createAuthorizer(options: AuthorizerOptions): OwnAuthorizer {
  const management = options.management ?? EVERYBODY
  if (!options.enabled) {
    const everybody = () => management
    return {
      resolve: everybody,
      recheck: everybody,
      recheckMs: TIMINGS.recheckOwnMs,
      find: everybody,
      grantsOf: () => ALL,
    }
  }
  const known = options.tokens.map((token) => {
    if (!/^[\da-f]{64}$/i.test(token.sha256)) {
      throw new Fault(`the sha256 of token ${JSON.stringify(token.name)} is malformed`)
    }
    return { digest: Buffer.from(token.sha256, 'hex'), token }
  })
  const lookUp = (presentedToken: string): TokenIdentity | undefined => {
    const presented = hash('sha256', presentedToken, 'buffer')
    let found: TokenIdentity | undefined
    for (const { digest, token } of known) {
      // Not `some` and no `break`: which token it is must not show in the time.
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
    recheckMs: TIMINGS.recheckOwnMs,
    grantsOf: (token) => (token === undefined ? undefined : lookUp(token))?.grants ?? refuse(),
  }
}

function refuse(): never {
  throw unknownToken()
}
