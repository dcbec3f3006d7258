/**
 * Turns a login that an auth method accepted into a token: finds or creates the entity of the alias, and commits the token and the
 * entity together with what the auth method changes.
 *
 * If a login enforcement applies, a token requires a code (`mfa/login-mfa.ts`): a login without one is answered with an MFA
 * requirement, and `validate-path.ts` is the second step.
 *
 * There is no `await` between the auth method's decision and the commit, so a credential that is valid for one login cannot be used
 * twice.
 */
import type { CommitPart } from '../../storage/barrier/storage.ts'
import { type AuthBlock, type MfaRequirement, Rejection, type Reply } from '../../engines/framework/engine.ts'
import type { LoginGrant } from '../../engines/framework/login-grant.ts'
import type { Refusal } from '../../platform/errors.ts'
import type { IdentityDraft } from '../identity/identity-draft.ts'
import type { IdentityStore } from '../identity/identity.ts'
import { validateMetadata, validateName } from '../identity/identity-limits.ts'
import type { Entity } from '../identity/identity-record.ts'
import type { Mount } from '../mounts/mounts.ts'
import type { LoginFacts } from '../mfa/enforcement.ts'
import type { MfaCredentials } from '../mfa/mfa-header.ts'
import type { LoginMfa } from '../mfa/login-mfa.ts'
import { ttlLimitsOf } from '../mounts/mount-ttl.ts'
import { canonicalNames } from '../policies/policy-name.ts'
import { authBlock } from '../tokens/token-create.ts'
import { randomName, type TokenEntry } from '../tokens/token-entry.ts'
import { newTokenText, type TokenStore } from '../tokens/token-store.ts'
import { grantTtl, loginMaxTtlSeconds } from '../tokens/token-ttl.ts'

const AUTH = 'auth/'
/** As in Vault, whose clients show it. */
const MFA_WARNING =
  'A login request was issued that is subject to MFA validation. Please make sure to validate the login by sending another request to mfa/validate endpoint.'

export interface LoginServices {
  readonly identity: IdentityStore
  readonly tokens: TokenStore
  readonly loginMfa: LoginMfa
  readonly now: () => number
  /** Called when a login with correct credentials gets no token. The caller is not given the reason, which would confirm them. */
  readonly onLoginRefused: (mountPath: string, reason: string) => void
}

/** A login whose answer waits until its parts are durable. */
export interface PreparedLogin {
  readonly reply: Reply
  /** For one commit. */
  readonly parts: readonly CommitPart[]
  /** To be called after the commit, successful or not. */
  readonly onSettled: () => void
  /** Present if there is no token: to be thrown when the parts are durable. */
  readonly refusal?: Refusal | undefined
}

export interface AcceptedLogin {
  readonly mount: Mount
  readonly path: string
  readonly login: LoginGrant
}

/** Throws the auth method's refusal if the entity is disabled. */
export function prepareLogin(
  services: LoginServices,
  accepted: AcceptedLogin,
  credentials: MfaCredentials | undefined,
): PreparedLogin {
  const { identity, loginMfa, now } = services
  const { login, mount, path } = accepted
  const draft = identity.draft(now())
  const entity = enabledEntityOf(draft, accepted)
  const enforcements = loginMfa.enforcementsFor(loginFactsOf(services, accepted, entity))
  if (enforcements.length === 0) return issueToken(services, accepted, draft, entity)
  if (!credentials) {
    const { onSettled, part } = identity.part(draft)
    // These callbacks hold the request, and so the password, which must not stay in memory.
    const { accepted: _accepted, refusal: _refusal, ...order } = login
    const pending = { mountUuid: mount.record.uuid, path, order, entityId: entity.id }
    const auth = mfaAuthBlock(loginMfa.begin(pending, enforcements))
    return { reply: { auth, warnings: [MFA_WARNING] }, parts: draft.changedEntities.size > 0 ? [part] : [], onSettled }
  }
  const { parts: codeParts, refusal } = loginMfa.satisfy(entity.id, enforcements, credentials, codeMissing)
  if (refusal) return { reply: {}, parts: codeParts, onSettled: () => undefined, refusal }
  const prepared = issueToken(services, accepted, draft, entity)
  return { ...prepared, parts: [...prepared.parts, ...codeParts] }
}

function codeMissing(_enforcement: unknown, reason: string): Rejection {
  return new Rejection(403, `permission denied: ${reason}`)
}

/** The entity of the login. Throws the auth method's refusal if it is disabled. */
export function enabledEntityOf(draft: IdentityDraft, { login, mount }: AcceptedLogin): Entity {
  const entity = entityOf(draft, login, mount)
  // With another text, a correct password of a disabled entity could be distinguished from a wrong one.
  if (entity.disabled) throw login.refusal()
  return entity
}

/** What login enforcements are matched with. */
export function loginFactsOf({ identity }: LoginServices, { mount }: AcceptedLogin, entity: Entity): LoginFacts {
  const { accessor, type } = mount.record
  const groupIds = () => {
    const { direct, inherited } = identity.groupsOf(entity)
    return [...direct, ...inherited].map(({ id }) => id)
  }
  return { entityIds: [entity.id, ...entity.mergedIds], mountAccessor: accessor, mountType: type, groupIds }
}

/** The `auth` block of an answer that requires a code. */
function mfaAuthBlock(requirement: MfaRequirement): AuthBlock {
  return {
    client_token: '',
    accessor: '',
    policies: null,
    metadata: null,
    lease_duration: 0,
    renewable: false,
    entity_id: '',
    token_type: 'default',
    orphan: false,
    mfa_requirement: requirement,
    num_uses: 0,
  }
}

/** Throws the auth method's refusal if the terms of the login allow no token. */
export function issueToken(
  services: LoginServices,
  { login, mount, path }: AcceptedLogin,
  draft: IdentityDraft,
  entity: Entity,
): PreparedLogin {
  const { identity, tokens } = services
  const type = tokenTypeOf(login, mount)
  const reason = reasonForRefusal(login, type)
  if (reason !== undefined) {
    services.onLoginRefused(mount.record.path, reason)
    throw login.refusal()
  }
  const { entry, token, warnings } = newEntry(services, { mount, path, login, entityId: entity.id, type })
  const { onSettled, part } = identity.part(draft)
  const isStored = entry.type === 'service'
  const shownToken = isStored ? token : tokens.sealBatch(entry)
  const identityParts = draft.changedEntities.size > 0 ? [part] : []
  const tokenParts = isStored ? [tokens.newPart(entry, { isChosen: false })] : []
  login.accepted?.()
  // Cached rights are of before this login, so they are computed again if the login changed the entity.
  const policies = draft.changedEntities.size > 0 ? identity.policiesOf(entity) : identity.rights(entity.id)?.policies
  const auth = authBlock(entry, shownToken, policies)
  return { reply: { auth, warnings }, parts: [...identityParts, ...tokenParts], onSettled }
}

/** The entity of the alias, with the metadata and groups that the auth method reports now. */
function entityOf(draft: IdentityDraft, { alias, groups }: LoginGrant, { record }: Mount): Entity {
  const name = validateName(alias.name, 'alias')
  const metadata = alias.metadata && (validateMetadata(new Map(Object.entries(alias.metadata))) ?? null)
  const known = draft.entityOfAlias(record.accessor, name)
  if (!known) {
    const newAlias = draft.newAlias({ name, mountAccessor: record.accessor, metadata, groups: [...groups] })
    const created = { ...draft.newEntity(''), aliases: [newAlias] }
    draft.putEntity(created)
    return created
  }
  const aliases = known.aliases.map((each) => {
    const isOfLogin = each.mountAccessor === record.accessor && each.name === name
    if (!isOfLogin || (isSame(each.metadata, metadata) && isSame(each.groups, groups))) return each
    return { ...each, metadata, groups: [...groups], updatedAtMs: draft.nowMs }
  })
  if (aliases.every((each, at) => each === known.aliases[at])) return known
  const changed = { ...known, aliases }
  draft.putEntity(changed)
  return changed
}

function isSame(a: object | null, b: object | null): boolean {
  return JSON.stringify(a) === JSON.stringify(b)
}

interface LoginTokenRequest extends AcceptedLogin {
  readonly entityId: string
  readonly type: TokenEntry['type']
}

/** The reason why a login gets no token. Such terms are refused when they are written, but a mount can be tuned later. */
function reasonForRefusal({ terms }: LoginGrant, type: TokenEntry['type']): string | undefined {
  if (canonicalNames(terms.policies).includes('root')) return 'auth methods cannot create root tokens'
  // Uses of a batch token are not counted, so the limit would have no effect.
  return type === 'batch' && terms.numUses > 0 ? 'batch tokens cannot have a limited number of uses' : undefined
}

function newEntry({ now, tokens }: LoginServices, { entityId, login, mount, path, type }: LoginTokenRequest) {
  const { metadata, subject, terms } = login
  const nowMs = now()
  const policies = canonicalNames(terms.noDefaultPolicy ? terms.policies : [...terms.policies, 'default'])
  const { defaultTtlSeconds, maxTtlSeconds } = ttlLimitsOf(mount.record.config)
  const { ttlSeconds, warnings } = grantTtl(
    {
      requestedTtlSeconds: terms.ttlSeconds,
      periodSeconds: terms.periodSeconds,
      explicitMaxTtlSeconds: terms.explicitMaxTtlSeconds,
      defaultTtlSeconds,
      maxTtlSeconds: loginMaxTtlSeconds(terms, maxTtlSeconds),
      createdAtMs: nowMs,
    },
    nowMs,
  )
  const token = newTokenText()
  const isBatch = type === 'batch'
  const entry: TokenEntry = {
    hash: tokens.hashOf(token),
    accessor: isBatch ? '' : randomName(24),
    type,
    policies,
    displayName: displayName(mount, login),
    path,
    meta: metadata ? { ...metadata } : null,
    parent: '',
    depth: 0,
    entityId,
    role: '',
    usesLeft: terms.numUses,
    createdAtMs: nowMs,
    ttlSeconds,
    leaseSeconds: ttlSeconds,
    explicitMaxTtlSeconds: terms.explicitMaxTtlSeconds,
    periodSeconds: terms.periodSeconds,
    renewable: !isBatch,
    boundCidrs: [...terms.boundCidrs],
    expiresAtMs: nowMs + ttlSeconds * 1000,
    login: { mount: mount.record.uuid, subject, maxTtlSeconds: terms.maxTtlSeconds },
  }
  return { entry, token, warnings }
}

/** The token type that the mount is tuned to, or that of the user or role if the mount has a default type. */
function tokenTypeOf({ terms }: LoginGrant, { record }: Mount): TokenEntry['type'] {
  const { tokenType = 'default-service' } = record.config
  const isFixedByMount = tokenType === 'service' || tokenType === 'batch'
  const type = isFixedByMount || terms.type === 'default' ? tokenType : terms.type
  return type === 'batch' || type === 'default-batch' ? 'batch' : 'service'
}

function displayName({ record }: Mount, login: LoginGrant): string {
  const source = record.path.slice(AUTH.length).replaceAll('/', '-')
  return (source + login.displayName).replace(/-$/, '')
}

/**
 * Removes the aliases of deleted users or roles. The next user or role with such a name is another person or program, and must not get
 * the entity's policies, groups and MFA secrets (docs/decisions/085-lockout-of-roles-and-reused-names.md). The entity itself stays:
 * tokens refer to it, and it may have other aliases. No `await` before the parts are committed.
 */
export function releaseAliases(
  identity: IdentityStore,
  { mount, names, nowMs }: { readonly mount: Mount; readonly names: readonly string[]; readonly nowMs: number },
): Pick<PreparedLogin, 'onSettled' | 'parts'> {
  const { accessor } = mount.record
  const draft = identity.draft(nowMs)
  for (const name of names) {
    const entity = draft.entityOfAlias(accessor, name)
    if (!entity) continue
    const others = entity.aliases.filter((each) => each.mountAccessor !== accessor || each.name !== name)
    draft.putEntity({ ...entity, aliases: others })
  }
  if (draft.changedEntities.size === 0) return { parts: [], onSettled: () => undefined }
  const { onSettled, part } = identity.part(draft)
  return { parts: [part], onSettled }
}
