/** Renewal of tokens. A renewal checks again what the role or the auth method says today. */
import type { Reply } from '../../engines/framework/engine.ts'
import type { LoginRenewal } from '../../engines/framework/login-grant.ts'
import type { Mount } from '../mounts/mounts.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import { ttlLimitsOf } from '../mounts/mount-ttl.ts'
import { canonicalNames } from '../policies/policy-name.ts'
import { authBlock } from './token-create.ts'
import type { TokenEntry } from './token-entry.ts'
import { findRole } from './token-role.ts'
import { tokenMountTtlLimits, type TokenServices } from './token-services.ts'
import { grantTtl, loginMaxTtlSeconds, smallerLimit, type TtlRequest } from './token-ttl.ts'

/** `token` is repeated in the answer; empty where it must not be shown. Rejects with a Rejection (400) if the token cannot be renewed. */
export async function renewToken(
  core: TokenServices,
  { hash, type }: TokenEntry,
  { requestedTtlSeconds, token }: { readonly requestedTtlSeconds: number; readonly token: string },
): Promise<Reply> {
  if (type === 'batch') throw new Rejection(400, 'batch tokens cannot be renewed')
  const { tokens } = core.open
  const before = tokens.exists(hash) ? tokens.pending(hash) : undefined
  if (!before) throw new Rejection(400, 'token not found')
  if (!before.renewable || before.expiresAtMs === undefined) throw new Rejection(400, 'lease is not renewable')
  const nowMs = core.now()
  const login = before.login && currentLogin(core, before.login)
  if (login) checkAlias(core, before, login)
  const limits = login ? loginLimits(before, login) : roleLimits(core, before)
  const { ttlSeconds, warnings } = grantTtl(
    {
      ...limits,
      requestedTtlSeconds: requestedTtlSeconds > 0 ? requestedTtlSeconds : before.leaseSeconds,
      createdAtMs: before.createdAtMs,
    },
    nowMs,
  )
  const entry = { ...before, leaseSeconds: ttlSeconds, renewedAtMs: nowMs, expiresAtMs: nowMs + ttlSeconds * 1000 }
  const groupChange = login && changedGroups(core, before, login)
  try {
    await tokens.change(before, entry, groupChange ? [groupChange.part] : [])
  } finally {
    groupChange?.onSettled()
  }
  return { auth: authBlock(entry, token, core.open.identity.rights(entry.entityId)?.policies), warnings }
}

type RenewalLimits = Omit<TtlRequest, 'requestedTtlSeconds' | 'createdAtMs'>

/** For a token with a role: the role's current limits, within those at creation. */
function roleLimits(core: TokenServices, entry: TokenEntry): RenewalLimits {
  const { explicitMaxTtlSeconds, periodSeconds, role: name } = entry
  const mount = tokenMountTtlLimits(core)
  if (name === '') return { ...mount, periodSeconds, explicitMaxTtlSeconds }
  const role = findRole(core, name)
  if (!role) {
    throw new Rejection(400, `original token role ${JSON.stringify(name)} could not be found, not renewing`)
  }
  return {
    ...mount,
    periodSeconds: role.periodSeconds === 0 ? 0 : smallerLimit(periodSeconds, role.periodSeconds),
    explicitMaxTtlSeconds: smallerLimit(explicitMaxTtlSeconds, role.explicitMaxTtlSeconds),
  }
}

/** The auth method of a login, and the terms it would grant today. */
interface CurrentLogin {
  readonly mount: Mount
  /** Absent if the auth method does not check renewals. */
  readonly standing: LoginRenewal | undefined
}

/** Throws a Rejection (400) if the auth method would refuse the login today. */
function currentLogin(core: TokenServices, { mount: uuid, subject }: NonNullable<TokenEntry['login']>): CurrentLogin {
  const mount = core.open.mounts.byUuid(uuid)
  if (!mount) throw new Rejection(400, 'the auth method of this token was disabled, not renewing')
  return { mount, standing: mount.engine.renewLogin?.(subject, mount) }
}

/**
 * Throws a Rejection (400) if the entity of the token no longer has the alias. An alias is removed with its user or role, so a
 * user or role that has the name now is a different one.
 */
function checkAlias(core: TokenServices, { entityId }: TokenEntry, { mount, standing }: CurrentLogin): void {
  const entity = core.open.identity.resolveEntity(entityId)
  if (!entity || !standing) return
  const { accessor } = mount.record
  if (entity.aliases.some(({ mountAccessor, name }) => mountAccessor === accessor && name === standing.alias)) return
  throw new Rejection(400, 'the user or role of this token was replaced, not renewing')
}

/** Throws a Rejection (400) if the policies of the user or role differ from those of the token. */
function loginLimits(entry: TokenEntry, { mount, standing }: CurrentLogin): RenewalLimits {
  const mountLimits = ttlLimitsOf(mount.record.config)
  const terms = standing?.terms
  const names = terms && canonicalNames(terms.noDefaultPolicy ? terms.policies : [...terms.policies, 'default'])
  if (names && names.join('\n') !== entry.policies.join('\n')) {
    throw new Rejection(400, 'policies have changed, not renewing')
  }
  const { maxTtlSeconds = entry.login?.maxTtlSeconds ?? 0, periodSeconds = entry.periodSeconds } = terms ?? {}
  return {
    defaultTtlSeconds: mountLimits.defaultTtlSeconds,
    maxTtlSeconds: loginMaxTtlSeconds({ maxTtlSeconds, periodSeconds }, mountLimits.maxTtlSeconds),
    periodSeconds,
    explicitMaxTtlSeconds: entry.explicitMaxTtlSeconds,
  }
}

/** The identity change to commit if the auth method reports other groups than before; undefined if not. */
function changedGroups(core: TokenServices, { entityId }: TokenEntry, { mount, standing }: CurrentLogin) {
  const { identity } = core.open
  const current = identity.resolveEntity(entityId)
  if (!standing || !current) return undefined
  const draft = identity.draft(core.now())
  draft.setReportedGroups(current.id, { mountAccessor: mount.record.accessor, name: standing.alias }, standing.groups)
  return draft.changedEntities.size > 0 ? identity.part(draft) : undefined
}
