/**
 * From a login to a token: the entity of the alias is found or made, the token gets its policies and its time, and both
 * become durable in one commit with what the auth method changes.
 *
 * Where a login enforcement is for a login, the token is made only with a code (`mfa/login-mfa.ts`): the answer of a login without
 * one says what is missing, and `finishedLogin` goes on from there.
 *
 * Nothing is waited for between the auth method's decision and that commit, so what it decided upon is still so: of a
 * credential that is good for one login there is one.
 */
import type { Part } from '../../storage/barrier/storage.ts'
import { rangesInBoth } from '../../engines/framework/address-ranges.ts'
import { type AuthBlock, type MfaRequirement, Rejection, type Reply } from '../../engines/framework/engine.ts'
import type { LoginFailures, LoginOrder } from '../../engines/framework/login-order.ts'
import type { Refusal } from '../../platform/errors.ts'
import type { IdentityDraft } from '../identity/identity-draft.ts'
import type { IdentityStore } from '../identity/identity.ts'
import { checkedMetadata, checkedName } from '../identity/identity-limits.ts'
import type { Entity } from '../identity/identity-record.ts'
import type { Mount, MountTable } from '../mounts/mounts.ts'
import type { LoginFacts } from '../mfa/enforcement.ts'
import type { Credentials } from '../mfa/mfa-header.ts'
import { type LoginMfa, type PendingLogin, unsatisfied } from '../mfa/login-mfa.ts'
import { ttlLimitsOf } from '../mounts/mount-ttl.ts'
import { canonicalNames } from '../policies/policy-name.ts'
import { authBlock } from '../tokens/token-create.ts'
import { randomName, type TokenEntry } from '../tokens/token-entry.ts'
import { newTokenText, type TokenStore } from '../tokens/token-store.ts'
import { grantTtl, loginMaxTtlSeconds } from '../tokens/token-ttl.ts'

const AUTH = 'auth/'

export interface LoginParts {
  readonly identity: IdentityStore
  readonly tokens: TokenStore
  readonly loginMfa: LoginMfa
  readonly now: () => number
  /** Told why a login with right credentials gets no token: its caller is not, as that would tell that they are right. */
  readonly onBarred: (mountPath: string, why: string) => void
}

/** A login that is to be answered once its parts are durable. */
export interface Login {
  readonly reply: Reply
  /** To be committed as one. */
  readonly parts: readonly Part[]
  /** To be called when that is over. */
  readonly landed: () => void
  /** Set where there is no token: to be thrown once the parts are durable. */
  readonly refusal?: Refusal | undefined
}

/** A login as its auth method has let it in. */
interface LetIn {
  readonly mount: Mount
  readonly path: string
  readonly login: LoginOrder
}

/** Throws the auth method's refusal where the entity is disabled. */
export function loginOf(parts: LoginParts, letIn: LetIn, credentials: Credentials | undefined): Login {
  const { identity, loginMfa, now } = parts
  const { login, mount, path } = letIn
  const draft = identity.draft(now())
  const entity = enabledEntityOf(draft, letIn)
  const enforcements = loginMfa.enforcementsFor(factsOf(parts, letIn, entity))
  if (enforcements.length === 0) return granted(parts, letIn, draft, entity)
  if (!credentials) {
    const { landed, part } = identity.part(draft)
    // What is left out knows the request, and so the password.
    const { accepted: _accepted, refusal: _refusal, ...order } = login
    const pending = { mountUuid: mount.record.uuid, path, order, entityId: entity.id }
    const auth = withoutToken(loginMfa.begin(pending, enforcements))
    return { reply: { auth, warnings: [NEEDS_CODE] }, parts: draft.touched.size > 0 ? [part] : [], landed }
  }
  const { parts: used, refusal } = loginMfa.satisfy(entity.id, enforcements, credentials, withoutCode)
  if (refusal) return { reply: {}, parts: used, landed: () => undefined, refusal }
  const made = granted(parts, letIn, draft, entity)
  return { ...made, parts: [...made.parts, ...used] }
}

function withoutCode(_enforcement: unknown, why: string): Rejection {
  return new Rejection(403, `permission denied: ${why}`)
}

function withoutRightCode(): Rejection {
  return new Rejection(403, 'permission denied')
}

const NEEDS_CODE =
  'A login request was issued that is subject to MFA validation. Please make sure to validate the login by sending another request to mfa/validate endpoint.'

/**
 * The second step of a login: the token, for a code. Throws a Rejection (400) for an ID that names no login, and where what the
 * login was let in by is gone or another one, as its password, or its entity is another one.
 */
export function finishedLogin(
  parts: LoginParts & { readonly mounts: Pick<MountTable, 'byUuid'>; failuresOf(mount: Mount): LoginFailures },
  requestId: string,
  credentials: Credentials,
): Login {
  const { identity, loginMfa, mounts, now } = parts
  const pending = loginMfa.find(requestId)
  const mount = pending && mounts.byUuid(pending.mountUuid)
  if (!pending || !mount) throw new Rejection(400, 'invalid request ID')
  const { groups, terms } = standingOf(pending, mount)
  const accepted = () => parts.failuresOf(mount).succeeded(pending.order.alias.name)
  const login = { ...pending.order, groups, terms, accepted, refusal: withoutRightCode }
  const letIn = { mount, path: pending.path, login }
  const draft = identity.draft(now())
  const entity = enabledEntityOf(draft, letIn)
  if (entity.id !== pending.entityId) throw new Rejection(400, 'invalid request ID')
  const enforcements = loginMfa.enforcementsFor(factsOf(parts, letIn, entity))
  const { parts: used, refusal } = loginMfa.satisfy(entity.id, enforcements, credentials, unsatisfied)
  if (refusal) return { reply: {}, parts: used, landed: () => undefined, refusal }
  loginMfa.drop(requestId)
  const made = granted(parts, letIn, draft, entity)
  return { ...made, parts: [...made.parts, ...used] }
}

/**
 * What the auth method says today. Addresses that the first step bound, as those of a secret ID, stay bound: the method may say them
 * of the login alone. Throws a Rejection (400) where the user or the role is gone, or its credentials are others.
 */
function standingOf({ order }: PendingLogin, mount: Mount): Pick<LoginOrder, 'groups' | 'terms'> {
  try {
    const standing = mount.engine.renewLogin?.(order.subject, mount, order.mark)
    if (!standing) return order
    const boundCidrs = rangesInBoth(order.terms.boundCidrs, standing.terms.boundCidrs)
    if (standing.alias !== order.alias.name || !boundCidrs) throw new Rejection(400)
    return { groups: standing.groups, terms: { ...standing.terms, boundCidrs } }
  } catch (error) {
    // Its text is about a token.
    if (error instanceof Rejection) throw new Rejection(400, 'invalid request ID')
    throw error
  }
}

function enabledEntityOf(draft: IdentityDraft, { login, mount }: LetIn): Entity {
  const entity = entityOf(draft, login, mount)
  // With a text of its own, a right password of a disabled entity could be told from a wrong one.
  if (entity.disabled) throw login.refusal()
  return entity
}

function factsOf({ identity }: LoginParts, { mount }: LetIn, entity: Entity): LoginFacts {
  const { accessor, type } = mount.record
  const groupIds = () => {
    const { direct, inherited } = identity.groupsOf(entity)
    return [...direct, ...inherited].map(({ id }) => id)
  }
  return { entityIds: [entity.id, ...entity.mergedIds], mountAccessor: accessor, mountType: type, groupIds }
}

/** The block of an answer that asks for a code. */
function withoutToken(requirement: MfaRequirement): AuthBlock {
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

function granted(parts: LoginParts, { login, mount, path }: LetIn, draft: IdentityDraft, entity: Entity): Login {
  const { identity, tokens } = parts
  const type = typeOf(login, mount)
  const barred = barOf(login, type)
  if (barred !== undefined) {
    parts.onBarred(mount.record.path, barred)
    throw login.refusal()
  }
  const { entry, token, warnings } = tokenOf(parts, { mount, path, login, entityId: entity.id, type })
  const { landed, part } = identity.part(draft)
  const isKept = entry.type === 'service'
  const shown = isKept ? token : tokens.sealBatch(entry)
  const all = [
    ...(draft.touched.size > 0 ? [part] : []),
    ...(isKept ? [tokens.newPart(entry, { isChosen: false })] : []),
  ]
  login.accepted?.()
  // What is kept of its rights is of before this login; without a change they are read from nowhere.
  const policies = draft.touched.size > 0 ? identity.policiesOf(entity) : identity.rights(entity.id)?.policies
  const auth = authBlock(entry, shown, policies)
  return { reply: { auth, warnings }, parts: all, landed }
}

/** The entity of the alias, with what the auth method says of it today. */
function entityOf(draft: IdentityDraft, { alias, groups }: LoginOrder, { record }: Mount): Entity {
  const name = checkedName(alias.name, 'alias')
  const metadata = alias.metadata && (checkedMetadata(new Map(Object.entries(alias.metadata))) ?? null)
  const known = draft.entityOfAlias(record.accessor, name)
  if (!known) {
    const entity = draft.newEntity('')
    const made = {
      ...entity,
      aliases: [draft.newAlias({ name, mountAccessor: record.accessor, metadata, groups: [...groups] })],
    }
    draft.putEntity(made)
    return made
  }
  const aliases = known.aliases.map((each) => {
    const isIt = each.mountAccessor === record.accessor && each.name === name
    if (!isIt || (isSame(each.metadata, metadata) && isSame(each.groups, groups))) return each
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

interface Order {
  readonly mount: Mount
  readonly path: string
  readonly login: LoginOrder
  readonly entityId: string
  readonly type: TokenEntry['type']
}

/** Why such a login gets no token. What is written today is refused where it is written, but a mount can be tuned later. */
function barOf({ terms }: LoginOrder, type: TokenEntry['type']): string | undefined {
  if (canonicalNames(terms.policies).includes('root')) return 'auth methods cannot create root tokens'
  // Nothing counts the uses of a batch token: the limit would be none.
  return type === 'batch' && terms.numUses > 0 ? 'batch tokens cannot have a limited number of uses' : undefined
}

function tokenOf({ now, tokens }: LoginParts, { entityId, login, mount, path, type }: Order) {
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

/** The mount's tuning says it, unless it leaves it to the role. */
function typeOf({ terms }: LoginOrder, { record }: Mount): TokenEntry['type'] {
  const { tokenType = 'default-service' } = record.config
  const byMount = tokenType === 'service' || tokenType === 'batch'
  const type = byMount || terms.type === 'default' ? tokenType : terms.type
  return type === 'batch' || type === 'default-batch' ? 'batch' : 'service'
}

function displayName({ record }: Mount, login: LoginOrder): string {
  const source = record.path.slice(AUTH.length).replaceAll('/', '-')
  return (source + login.displayName).replace(/-$/, '')
}
