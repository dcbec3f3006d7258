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
import { createHash, timingSafeEqual } from 'node:crypto'
import { Fault, Refusal } from '../kit/errors.ts'
import type { Identity } from '../kit/operation.ts'

export interface TokenIdentity {
  /** Public name, for messages about this configuration. */
  readonly name: string
  /** 64 hexadecimal digits. */
  readonly sha256: string
  readonly identity: Identity
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
   */
  resolve(token: string | undefined): Identity | Promise<Identity>
}

const EVERYBODY: Identity = Object.freeze<Identity>({
  accessor: 'acl-disabled',
  allowsNode: () => true,
  allowsAgent: () => true,
  allowsNamespace: () => true,
})

/**
 * An authorizer over a fixed set of tokens.
 * @throws Fault when a hash is malformed.
 */
export function createAuthorizer(options: AuthorizerOptions): Authorizer {
  const management = options.management ?? EVERYBODY
  if (!options.enabled) return { resolve: () => management }
  const known = options.tokens.map(({ name, sha256, identity }) => {
    if (!/^[\da-f]{64}$/i.test(sha256)) throw new Fault(`the sha256 of token ${JSON.stringify(name)} is malformed`)
    return { digest: Buffer.from(sha256, 'hex'), identity }
  })
  return {
    resolve(token) {
      if (token === undefined || token === '') return options.anonymous
      const presented = createHash('sha256').update(token, 'utf8').digest()
      let found: Identity | undefined
      for (const { digest, identity } of known) {
        // Not `some` and no `break`: which token it is must not show in the time.
        const equal = timingSafeEqual(presented, digest)
        found = equal ? identity : found
      }
      if (!found) throw new Refusal('permission_denied', 'Permission denied')
      return found
    },
  }
}
