/** Giving a token more time. */
import { Rejection, type Reply } from '../../engines/framework/engine.ts'
import type { LoginRenewal } from '../../engines/framework/login-grant.ts'
import type { Mount } from '../mounts/mounts.ts'
import { leaseTerms } from '../mounts/mount-ttl.ts'
import { canonicalNames } from '../policies/policy-name.ts'
import type { TokenParts } from './token-parts.ts'
import { authBlock } from './token-create.ts'
import type { TokenEntry } from './token-entry.ts'
import { tokenMountRules } from './token-mount.ts'
import { findRole } from './token-role.ts'
import { lifeOf, type LifeRules, mostSeconds } from './token-ttl.ts'

/** `token` is shown to the caller again; empty where it must not be. Rejects with what the caller got wrong. */
export async function renewToken(
  core: TokenParts,
  { hash, type }: TokenEntry,
  { token, wishSeconds }: { readonly token: string; readonly wishSeconds: number },
): Promise<Reply> {
  if (type === 'batch') throw new Rejection(400, 'batch tokens cannot be renewed')
  const { tokens } = core.open
  const before = tokens.isThere(hash) ? tokens.pending(hash) : undefined
  if (!before) throw new Rejection(400, 'token not found')
  if (!before.renewable || before.expiresAtMs === undefined) throw new Rejection(400, 'lease is not renewable')
  const nowMs = core.now()
  const wish = wishSeconds > 0 ? wishSeconds : before.leaseSeconds
  const login = before.login && loginStanding(core, before.login)
  if (login) checkAlias(core, before, login)
  const rules = login ? loginRules(before, login) : rulesOf(core, before)
  const { seconds, warnings } = lifeOf({ ...rules, wishSeconds: wish, createdAtMs: before.createdAtMs }, nowMs)
  const entry = { ...before, leaseSeconds: seconds, renewedAtMs: nowMs, expiresAtMs: nowMs + seconds * 1000 }
  const reported = login && reportedGroups(core, before, login)
  try {
    await tokens.change(before, entry, reported ? [reported.part] : [])
  } finally {
    reported?.landed()
  }
  return { auth: authBlock(entry, token, core.open.identity.rights(entry.entityId)?.policies), warnings }
}

type Rules = Pick<LifeRules, 'defaultSeconds' | 'maxSeconds' | 'periodSeconds' | 'explicitMaxSeconds'>

/** Of a token with a role, what the role says today, within what the token was made with. */
function rulesOf(core: TokenParts, entry: TokenEntry): Rules {
  const { explicitMaxTtlSeconds: explicit, periodSeconds: period, role: name } = entry
  const mount = tokenMountRules(core)
  if (name === '') return { ...mount, periodSeconds: period, explicitMaxSeconds: explicit }
  const role = findRole(core, name)
  if (!role) {
    throw new Rejection(400, `original token role ${JSON.stringify(name)} could not be found, not renewing`)
  }
  return {
    ...mount,
    periodSeconds: role.periodSeconds === 0 ? 0 : least(period, role.periodSeconds),
    explicitMaxSeconds: least(explicit, role.explicitMaxTtlSeconds),
  }
}

/** The auth method of a login, and what it says of the login today. */
interface Standing {
  readonly mount: Mount
  /** Absent where the method has nothing to say. */
  readonly standing: LoginRenewal | undefined
}

/** Throws a Rejection (400) where the auth method would not let it in any more. */
function loginStanding(core: TokenParts, { mount: uuid, subject }: NonNullable<TokenEntry['login']>): Standing {
  const mount = core.open.mounts.byUuid(uuid)
  if (!mount) throw new Rejection(400, 'the auth method of this token is gone, not renewing')
  return { mount, standing: mount.engine.renewLogin?.(subject, mount) }
}

/**
 * Throws a Rejection (400) where the entity of the token has no alias of this name any more: an alias ends with its user or
 * role, so the one that has the name now is another one.
 */
function checkAlias(core: TokenParts, { entityId }: TokenEntry, { mount, standing }: Standing): void {
  const entity = core.open.identity.current(entityId)
  if (!entity || !standing) return
  const { accessor } = mount.record
  if (entity.aliases.some(({ mountAccessor, name }) => mountAccessor === accessor && name === standing.alias)) return
  throw new Rejection(400, 'the user or role of this token was replaced, not renewing')
}

/** Throws a Rejection (400) for a token whose policies are no longer those of its user or role. */
function loginRules(entry: TokenEntry, { mount, standing }: Standing): Rules {
  const { defaultSeconds, maxSeconds } = leaseTerms(mount.record.config)
  const terms = standing?.terms
  const names = terms && canonicalNames(terms.noDefaultPolicy ? terms.policies : [...terms.policies, 'default'])
  if (names && names.join('\n') !== entry.policies.join('\n')) {
    throw new Rejection(400, 'policies have changed, not renewing')
  }
  const { maxTtlSeconds = entry.login?.maxTtlSeconds ?? 0, periodSeconds = entry.periodSeconds } = terms ?? {}
  return {
    defaultSeconds,
    maxSeconds: mostSeconds({ maxTtlSeconds, periodSeconds }, maxSeconds),
    periodSeconds,
    explicitMaxSeconds: entry.explicitMaxTtlSeconds,
  }
}

/** What is to be committed where the groups of a login are others today. */
function reportedGroups(core: TokenParts, { entityId }: TokenEntry, { mount, standing }: Standing) {
  const { identity } = core.open
  const current = identity.current(entityId)
  if (!standing || !current) return undefined
  const draft = identity.draft(core.now())
  draft.reportGroups(current.id, { mountAccessor: mount.record.accessor, name: standing.alias }, standing.groups)
  return draft.touched.size > 0 ? identity.part(draft) : undefined
}

/** Of two bounds, of which 0 is none. */
function least(a: number, b: number): number {
  return a === 0 || b === 0 ? a + b : Math.min(a, b)
}
