/**
 * From a login to a token: the entity of the alias is found or made, the token gets its policies and its time, and both
 * become durable in one commit with what the auth method changes.
 *
 * Nothing is waited for between the auth method's decision and that commit, so what it decided upon is still so: of a
 * credential that is good for one login there is one.
 */
import type { Part } from '../../barrier/storage.ts'
import { Rejection, type Reply } from '../../engines/engine.ts'
import type { LoginOrder } from '../../engines/login-order.ts'
import type { IdentityDraft } from '../identity/identity-draft.ts'
import type { IdentityStore } from '../identity/identity.ts'
import { checkedMetadata, checkedName } from '../identity/identity-limits.ts'
import type { Entity } from '../identity/identity-record.ts'
import type { Mount } from '../mounts/mounts.ts'
import { leaseTerms } from '../mounts/mount-ttl.ts'
import { canonicalNames } from '../policies/policy-name.ts'
import { authBlock } from '../tokens/token-create.ts'
import { randomName, type TokenEntry } from '../tokens/token-entry.ts'
import { newTokenText, type TokenStore } from '../tokens/token-store.ts'
import { lifeOf, mostSeconds } from '../tokens/token-ttl.ts'

const AUTH = 'auth/'

export interface LoginParts {
  readonly identity: IdentityStore
  readonly tokens: TokenStore
  readonly now: () => number
}

/** A login that is to be answered once its parts are durable. */
export interface Login {
  readonly reply: Reply
  /** To be committed as one. */
  readonly parts: readonly Part[]
  /** To be called when that is over. */
  readonly landed: () => void
}

/** Throws the auth method's refusal where the entity is disabled. */
export function loginOf(parts: LoginParts, mount: Mount, path: string, login: LoginOrder): Login {
  const { identity, now, tokens } = parts
  const draft = identity.draft(now())
  const entity = entityOf(draft, login, mount)
  // With a text of its own, a right password of a disabled entity could be told from a wrong one.
  if (entity.disabled) throw login.refusal()
  const { entry, token, warnings } = tokenOf(parts, { mount, path, login, entityId: entity.id })
  const { landed, part } = identity.part(draft)
  const isKept = entry.type === 'service'
  const shown = isKept ? token : tokens.sealBatch(entry)
  const all = [...(draft.touched.size > 0 ? [part] : []), ...(isKept ? [tokens.part(entry, { isChosen: false })] : [])]
  login.accepted?.()
  const auth = authBlock(entry, shown, identity.policiesOf(entity))
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
}

function tokenOf({ now, tokens }: LoginParts, { entityId, login, mount, path }: Order) {
  const { metadata, subject, terms } = login
  const nowMs = now()
  const type = typeOf(login, mount)
  const policies = canonicalNames(terms.noDefaultPolicy ? terms.policies : [...terms.policies, 'default'])
  if (policies.includes('root')) throw new Rejection(400, 'auth methods cannot create root tokens')
  const { defaultSeconds, maxSeconds } = leaseTerms(mount.record.config)
  const life = lifeOf(
    {
      wishSeconds: terms.ttlSeconds,
      periodSeconds: terms.periodSeconds,
      explicitMaxSeconds: terms.explicitMaxTtlSeconds,
      defaultSeconds,
      maxSeconds: mostSeconds(terms, maxSeconds),
      createdAtMs: nowMs,
    },
    nowMs,
  )
  const token = newTokenText()
  const isBatch = type === 'batch'
  // Nothing counts the uses of a batch token: the limit would be none. The mount's tuning may come after the role.
  if (isBatch && terms.numUses > 0) throw new Rejection(400, 'batch tokens cannot have a limited number of uses')
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
    ttlSeconds: life.seconds,
    leaseSeconds: life.seconds,
    explicitMaxTtlSeconds: terms.explicitMaxTtlSeconds,
    periodSeconds: terms.periodSeconds,
    renewable: !isBatch,
    boundCidrs: [...terms.boundCidrs],
    expiresAtMs: nowMs + life.seconds * 1000,
    login: { mount: mount.record.uuid, subject, maxTtlSeconds: terms.maxTtlSeconds },
  }
  return { entry, token, warnings: life.warnings }
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
