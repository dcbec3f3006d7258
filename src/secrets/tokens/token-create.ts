/** Making a token: everything that a maker may ask for, and what it gets. */
import type { AuthBlock, EngineCall, Reply } from '../../engines/framework/engine.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import type { CommitPart } from '../../storage/barrier/storage.ts'
import {
  aliasField,
  boolean,
  FieldError,
  foldedField,
  integer,
  secondsOf,
  text,
  textList,
  textMap,
} from '../../engines/framework/fields.ts'
import { foldName } from '../../engines/framework/name-fold.ts'
import type { IdentityDraft } from '../identity/identity-draft.ts'
import { checkedName } from '../identity/identity-limits.ts'
import { canonicalNames } from '../policies/policy-name.ts'
import type { TokenParts } from './token-parts.ts'
import { randomName, type TokenEntry } from './token-entry.ts'
import { tokenMountRules } from './token-mount.ts'
import { grantedPolicies, matchesGlob } from './token-policies.ts'
import type { TokenRole } from './token-role.ts'
import { newTokenText } from './token-store.ts'
import { lifeOf } from './token-ttl.ts'

export const CREATE_FIELDS = {
  id: text('The token itself, for who has sudo; made by the server unless given', { fallback: '' }),
  policies: foldedField(textList('Names of policies; those of the calling token unless given'), 'case and spaces'),
  meta: textMap('Texts by name, to be shown with the token and in the audit log'),
  no_parent: boolean('Make an orphan, for who has sudo', { fallback: false }),
  no_default_policy: boolean('Without the policy `default`', { fallback: false }),
  renewable: boolean('Whether it can be renewed', { fallback: true }),
  ttl: text('How long it lives, in seconds or as a duration', { fallback: '' }),
  lease: aliasField(text('Old name of ttl', { fallback: '' }), 'ttl'),
  explicit_max_ttl: text('The longest that it lives, whatever is renewed', { fallback: '' }),
  period: text('It has no last day, but must be renewed this often; for who has sudo', { fallback: '' }),
  display_name: text('A name for people', { fallback: '' }),
  num_uses: integer('How often it may be used; 0 for as often as one likes', { fallback: 0 }),
  type: text('service or batch', { fallback: '' }),
  entity_alias: foldedField(
    text('Name of the entity alias that it is made for, with a role that allows it', { fallback: '' }),
    'case',
  ),
}

export type CreateInput = Readonly<{
  [K in keyof typeof CREATE_FIELDS]: ReturnType<(typeof CREATE_FIELDS)[K]['read']>
}>

const NAME_PARTS = /[^a-zA-Z0-9-]/g
const TAKEN_PREFIXES = ['s.', 'b.', 'r.', 'hvs.', 'hvb.', 'hvr.']
const ID_LENGTH_MAX = 512

interface Order {
  readonly input: CreateInput
  readonly call: EngineCall
  readonly parent: TokenEntry
  readonly role: TokenRole | undefined
  readonly orphan: boolean
  /** ID of the entity that it was asked for. */
  readonly aliasOwner: string | undefined
}

/** A token for a caller, and what makes it durable. Throws what the caller got wrong; then there is none. */
export function createToken(
  core: TokenParts,
  input: CreateInput,
  call: EngineCall,
  how: { readonly orphan: boolean; readonly role?: TokenRole },
): Reply {
  const parent = parentOf(core, call)
  const { identity, mounts, tokens } = core.open
  const draft = identity.draft(call.nowMs)
  const aliasOwner = ownerOfAlias(draft, input.entity_alias, how.role, mounts.get('auth/token/')?.record.accessor ?? '')
  const order: Order = { input, call, parent, role: how.role, orphan: how.orphan, aliasOwner }
  const { entry, token, warnings } = entryOf(core, order)
  const isKept = entry.type === 'service'
  const shown = isKept ? token : tokens.sealBatch(entry)
  const { landed, part } = identity.part(draft)
  const parts: CommitPart[] = isKept ? [tokens.part(entry, { isChosen: input.id !== '' })] : []
  if (part.batch.puts.length > 0 && aliasOwner !== undefined) parts.push(part)
  // Durable together with the token that the answer may be wrapped below.
  return { auth: authBlock(entry, shown, identity.rights(entry.entityId)?.policies), warnings, parts, landed }
}

/** The entity that a token is made for by the name of its alias. Throws a Rejection for one that the role does not allow. */
function ownerOfAlias(draft: IdentityDraft, alias: string, role: TokenRole | undefined, mountAccessor: string) {
  if (alias === '') return undefined
  if (!role) throw new Rejection(400, "'entity_alias' is only allowed in combination with token role")
  const name = foldName(alias, 'case')
  if (!role.allowedEntityAliases.some((glob) => matchesGlob(name, glob))) {
    throw new Rejection(400, "invalid 'entity_alias' value")
  }
  checkedName(name, 'alias')
  const known = draft.entityOfAlias(mountAccessor, name)
  if (known?.disabled) throw new Rejection(403, 'permission denied')
  if (known) return known.id
  const entity = draft.newEntity('')
  draft.putEntity({ ...entity, aliases: [draft.newAlias({ name, mountAccessor })] })
  return entity.id
}

function parentOf(core: TokenParts, { caller }: EngineCall): TokenEntry {
  if (caller.tokenType === 'batch') throw new Rejection(400, 'batch tokens cannot create more tokens')
  const parent = core.open.tokens.findByHash(caller.tokenHash, core.now())
  if (!parent) throw new Rejection(403, 'permission denied')
  // It could make itself as many uses as it likes.
  if (parent.usesLeft !== 0) throw new Rejection(400, 'restricted use token cannot generate child tokens')
  return parent
}

function entryOf(core: TokenParts, order: Order): { entry: TokenEntry; token: string; warnings: string[] } {
  const { aliasOwner, call, input, orphan, parent, role } = order
  const type = typeOf(input, role)
  if (input.num_uses < 0) throw new Rejection(400, 'number of uses cannot be negative')
  const token = idOf(input.id, call)
  const noDefault = input.no_default_policy || role?.noDefaultPolicy === true
  const asked = input.policies ?? []
  const policies = grantedPolicies({ asked, noDefault, parents: parent.policies, isSudo: call.sudo, role })
  if (policies.includes('root') && type === 'batch') throw new Rejection(400, 'batch tokens cannot be root tokens')
  const isOrphan = role ? role.orphan : orphan || noParent(input, call)
  const life = lifeFor(core, order, policies, type)
  const isRenewable = input.renewable && role?.renewable !== false && type === 'service' && life.ttlSeconds > 0
  const entry: TokenEntry = {
    hash: core.open.tokens.hashOf(token),
    accessor: type === 'batch' ? '' : randomName(24),
    type,
    policies,
    displayName: displayName(input.display_name),
    path: role?.pathSuffix ? `auth/token/${call.path}/${role.pathSuffix}` : `auth/token/${call.path}`,
    meta: input.meta && input.meta.size > 0 ? Object.fromEntries(input.meta) : null,
    parent: isOrphan ? '' : parent.hash,
    depth: isOrphan ? 0 : parent.depth + 1,
    entityId: aliasOwner ?? (isOrphan ? '' : parent.entityId),
    role: role?.name ?? '',
    usesLeft: usesOf(input.num_uses, role),
    createdAtMs: call.nowMs,
    ttlSeconds: life.ttlSeconds,
    leaseSeconds: life.ttlSeconds,
    explicitMaxTtlSeconds: life.explicitMaxSeconds,
    periodSeconds: life.periodSeconds,
    renewable: isRenewable,
    // Who makes one that is bound to nothing must be able to: a role is that permission.
    boundCidrs: life.ttlSeconds === 0 ? [] : [...(role ? role.boundCidrs : parent.boundCidrs)],
    ...(life.ttlSeconds > 0 && { expiresAtMs: call.nowMs + life.ttlSeconds * 1000 }),
  }
  return { entry, token, warnings: [...life.warnings, ...missing(core, policies, call.nowMs)] }
}

function typeOf(input: CreateInput, role: TokenRole | undefined): TokenEntry['type'] {
  const byRole = { service: 'service', batch: 'batch', 'default-service': undefined, 'default-batch': undefined }
  const fallback = role?.tokenType === 'default-batch' ? 'batch' : 'service'
  const wanted = (role && byRole[role.tokenType]) ?? (input.type === '' ? fallback : input.type)
  if (wanted === 'service') return 'service'
  if (wanted !== 'batch') throw new Rejection(400, "invalid 'token_type' value")
  const [unfit] = [
    secondsIn(input, 'explicit_max_ttl') > 0 ? 'explicit_max_ttl' : [],
    input.num_uses === 0 ? [] : 'num_uses',
    secondsIn(input, 'period') > 0 ? 'period' : [],
    input.id === '' ? [] : 'id',
  ].flat()
  if (unfit !== undefined) throw new Rejection(400, `batch tokens cannot have "${unfit}" set`)
  return 'batch'
}

/** Seconds of a field; 0 where it was not given. */
function secondsIn(input: CreateInput, name: 'ttl' | 'lease' | 'period' | 'explicit_max_ttl'): number {
  const given = input[name]
  if (given.startsWith('-')) throw new Rejection(400, `${name} must be positive`)
  try {
    return secondsOf(given)
  } catch (error) {
    if (!(error instanceof FieldError)) throw error
    throw new Rejection(400, `${name}: ${error.message}`)
  }
}

function idOf(id: string, call: EngineCall): string {
  if (id === '') return newTokenText()
  if (!call.sudo) throw new Rejection(400, 'root or sudo privileges required to specify token id')
  const prefix = TAKEN_PREFIXES.find((each) => id.startsWith(each))
  if (prefix !== undefined) throw new Rejection(400, `custom token ID cannot have the '${prefix}' prefix`)
  if (id.includes('.')) throw new Rejection(400, "custom token ID cannot have a '.'")
  if (id.length > ID_LENGTH_MAX || !/^[\x21-\x7e]+$/.test(id)) {
    throw new Rejection(400, `custom token ID must have at most ${ID_LENGTH_MAX} ASCII characters and no spaces`)
  }
  return id
}

function displayName(given: string): string {
  return given === '' ? 'token' : `token-${given}`.replaceAll(NAME_PARTS, '-').replace(/-$/, '')
}

function usesOf(asked: number, role: TokenRole | undefined): number {
  const [least = 0] = [asked, role?.numUses ?? 0].filter((each) => each > 0).sort((a, b) => a - b)
  return least
}

function noParent({ no_parent: isAsked }: CreateInput, call: EngineCall): boolean {
  if (isAsked && !call.sudo) throw new Rejection(400, 'root or sudo privileges required to create orphan token')
  return isAsked
}

interface GivenLife {
  readonly ttlSeconds: number
  readonly periodSeconds: number
  readonly explicitMaxSeconds: number
  readonly warnings: string[]
}

function lifeFor(core: TokenParts, order: Order, policies: readonly string[], type: TokenEntry['type']): GivenLife {
  const { call, input, parent } = order
  const role = type === 'batch' ? undefined : order.role
  const asked = { period: secondsIn(input, 'period'), explicit: secondsIn(input, 'explicit_max_ttl') }
  if (asked.period > 0 && !call.sudo) {
    throw new Rejection(400, 'root or sudo privileges required to create periodic token')
  }
  const wishSeconds = secondsIn(input, input.ttl === '' ? 'lease' : 'ttl')
  const explicit = lesser('Explicit max TTL', asked.explicit, role?.explicitMaxTtlSeconds ?? 0)
  const period = lesser('Period', asked.period, role?.periodSeconds ?? 0)
  const warnings = [...explicit.warnings, ...period.warnings]
  const rules = { periodSeconds: period.seconds, explicitMaxSeconds: explicit.seconds }
  if (policies.includes('root') && period.seconds === 0 && wishSeconds === 0) {
    if (explicit.seconds === 0 && parent.expiresAtMs !== undefined) {
      throw new Rejection(400, 'expiring root tokens cannot create non-expiring root tokens')
    }
    return { ...rules, ttlSeconds: explicit.seconds, warnings }
  }
  const life = lifeOf({ ...tokenMountRules(core), ...rules, wishSeconds, createdAtMs: call.nowMs }, call.nowMs)
  return { ...rules, ttlSeconds: life.seconds, warnings: [...warnings, ...life.warnings] }
}

/** The smaller of what was asked for and what the role says, where both say something. */
function lesser(name: string, asked: number, byRole: number): { seconds: number; warnings: string[] } {
  if (asked === 0 || byRole === 0) return { seconds: asked + byRole, warnings: [] }
  const seconds = Math.min(asked, byRole)
  const warning = `${name} specified both during creation call and in role; using the lesser value of ${seconds} seconds`
  return { seconds, warnings: [warning] }
}

function missing(core: TokenParts, policies: readonly string[], nowMs: number): string[] {
  return policies
    .filter((name) => !core.open.policies.has(name, nowMs))
    .map((name) => `Policy ${JSON.stringify(name)} does not exist`)
}

/**
 * What a caller gets of a token that was made or renewed. `token` is empty where it must not be shown; `byEntity` are the
 * policies that its entity adds.
 */
export function authBlock(entry: TokenEntry, token: string, byEntity: readonly string[] = []): AuthBlock {
  return {
    client_token: token,
    accessor: entry.accessor,
    policies: byEntity.length > 0 ? canonicalNames([...entry.policies, ...byEntity]) : entry.policies,
    token_policies: entry.policies,
    ...(byEntity.length > 0 && { identity_policies: byEntity }),
    metadata: entry.meta,
    lease_duration: entry.leaseSeconds,
    renewable: entry.renewable,
    entity_id: entry.entityId,
    token_type: entry.type,
    orphan: entry.parent === '',
    mfa_requirement: null,
    num_uses: Math.max(0, entry.usesLeft),
  }
}
