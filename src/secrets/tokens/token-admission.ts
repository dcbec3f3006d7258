/**
 * From the token that came with a request to a caller with its rights: for the secrets core, and for the rest of the
 * process, which asks the same tokens and policies about hosts.
 *
 * A token with a limited number of uses pays with each of them, also with one that is refused afterwards: what is left
 * is written down before the caller is answered. Two that come at the same time are counted one after the other.
 */
import type { Canonical } from '../../engines/framework/path-table.ts'
import { type Caller, Rejection } from '../../engines/framework/engine.ts'
import { unknownToken } from '../../platform/errors.ts'
import type { Grants, Identity } from '../../platform/operation.ts'
import type { AccessRequest, Acl, Decision } from '../policies/acl.ts'
import type { TokenEntry } from './token-entry.ts'
import type { PolicyStore } from '../policies/policy-store.ts'
import type { TokenRevocation } from './token-revocation.ts'
import type { KnownToken, TokenStore } from './token-store.ts'

/** A caller with its policies, and what its token costs with this use. */
export interface Admitted {
  readonly caller: Caller
  /**
   * What ends the caller's leases when it is revoked or disabled: the hash of its own token or, of a batch token, that of its
   * parent or the UUID of the auth method of its login. Empty for none of these.
   */
  readonly leaseOwner: string
  /** When the token ends; absent for one without an end. */
  readonly expiresAtMs?: number | undefined
  judge(request: AccessRequest): Decision
  /** Whether there may be anything for the caller below a path, which ends with a slash. */
  reaches(path: string): boolean
  /** Whether the token is still one: for answers that go on. */
  lasts(): boolean
  /** Resolves once the use is written down; absent for a token that may be used as often as one likes. */
  readonly used?: Promise<unknown>
  /** To be called after the last use that the token had. */
  readonly spent?: () => Promise<void>
}

/** Resolves when the use of a token that a request has taken is written down, and the token of a last use is revoked. */
export async function finishUse({ spent, used }: Pick<Admitted, 'used' | 'spent'>): Promise<void> {
  await used
  await spent?.()
}

function leaseOwnerOf({ hash, login, parent, type }: TokenEntry): string {
  if (type === 'service') return hash
  // A batch token cannot create tokens, so its parent is a service token.
  return parent === '' ? (login?.mount ?? '') : parent
}

/** What admission needs of the core. */
export interface Admitting {
  readonly tokens: TokenStore
  readonly revocation: TokenRevocation
  readonly policies: PolicyStore
  readonly now: () => number
  readonly aclOf: (entry: TokenEntry) => Acl
  readonly canonical: Canonical
  /** Names of the policies of a token and its entity; undefined where the entity is disabled or gone. */
  readonly policiesOf: (entry: TokenEntry) => readonly string[] | undefined
  /** Told of a token that is bound to addresses and was refused because no address of its caller was seen. */
  readonly onUnseenAddress: (accessor: string) => void
}

interface Presented {
  readonly token: string
  readonly remote: string | undefined
  readonly again: boolean
}

export class Admission {
  readonly #core: Admitting
  /** One for each token whose entry is kept; it goes when the entry does. */
  readonly #admitted = new WeakMap<KnownToken, Admitted>()

  constructor(core: Admitting) {
    this.#core = core
  }

  /** Throws a Rejection (403) for what is no token, and for one that may not come from there. */
  admit(token: string | undefined, remote: string | undefined): Admitted {
    const known = this.#knownFrom(token, remote)
    if (!known) throw new Rejection(403, 'permission denied')
    if (known.entry.usesLeft !== 0) return { ...this.#fresh(known), ...this.#use(known.entry.hash) }
    let admitted = this.#admitted.get(known)
    if (!admitted) this.#admitted.set(known, (admitted = this.#fresh(known)))
    return admitted
  }

  /** Whether `admit` would let it in; takes no use of it. */
  knows(token: string | undefined, remote: string | undefined): boolean {
    return this.#knownFrom(token, remote) !== undefined
  }

  #knownFrom(token: string | undefined, remote: string | undefined): KnownToken | undefined {
    const known = token === undefined ? undefined : this.#core.tokens.known(token, this.#core.now())
    return known?.mayComeFrom(remote) && this.#core.policiesOf(known.entry) ? known : undefined
  }

  #fresh(known: KnownToken): Admitted {
    const { caller, entry } = known
    const acl = () => this.#core.aclOf(entry)
    return {
      caller,
      leaseOwner: leaseOwnerOf(entry),
      expiresAtMs: entry.expiresAtMs,
      judge: (request) => acl().decide(request, this.#core.canonical),
      reaches: (path) => acl().allowsAnythingUnder(path),
      lasts: () => this.#core.tokens.isStill(known, this.#core.now()) && this.#core.policiesOf(entry) !== undefined,
    }
  }

  /** Takes one use; throws a Rejection (403) where none is left. */
  #use(hash: string): Pick<Admitted, 'used' | 'spent'> {
    const { revocation, tokens } = this.#core
    const entry = tokens.pending(hash)
    if (!entry || entry.usesLeft < 0 || entry.isLeaving) throw new Rejection(403, 'permission denied')
    const use =
      entry.usesLeft === 1
        ? revocation.lastUse(entry)
        : { used: tokens.change(entry, { ...entry, usesLeft: entry.usesLeft - 1 }) }
    // It is awaited later, behind the first line of the audit trail, and may fail before: that must not end the process.
    use.used.catch(() => undefined)
    return use
  }

  /**
   * Who a token is to the rest of the process. Throws a Refusal for what is no token. A token with a limited number of
   * uses pays with one, unless `again` says that its caller has paid and that the answer still lasts.
   */
  identityOf(token: string, remote: string | undefined, again: boolean): Identity | Promise<Identity> {
    return this.#told({ token, remote, again }, ({ accessor }, policies) =>
      this.#core.policies.identity(policies, this.#core.now(), accessor),
    )
  }

  /** What to tell another process about a token; refuses and counts as `identityOf`. */
  grantsOf(token: string, remote: string | undefined, again: boolean): Grants | Promise<Grants> {
    return this.#told({ token, remote, again }, ({ accessor, expiresAtMs, usesLeft }, policies) => {
      const nowMs = this.#core.now()
      const records = policies.flatMap((name) => this.#core.policies.find(name, nowMs) ?? [])
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

  #told<T>({ token, remote, again }: Presented, tell: Tell<T>): T | Promise<T> {
    const known = this.#core.tokens.known(token, this.#core.now())
    const policies = known && this.#core.policiesOf(known.entry)
    if (!policies || !known.mayComeFrom(remote)) {
      if (policies && remote === undefined) this.#core.onUnseenAddress(known.entry.accessor)
      throw unknownToken()
    }
    if (known.entry.usesLeft === 0 || again) return tell(known.entry, policies)
    return this.#paid(known.entry, tell)
  }

  async #paid<T>(entry: TokenEntry, tell: Tell<T>): Promise<T> {
    const { spent, used } = this.#use(entry.hash)
    await used
    const policies = this.#core.policiesOf(entry)
    if (!policies) throw unknownToken()
    const told = tell(entry, policies)
    await spent?.()
    return told
  }
}

/** `policies` are those of the token and of its entity. */
type Tell<T> = (entry: TokenEntry, policies: readonly string[]) => T
