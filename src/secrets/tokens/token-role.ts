/** Token roles: `auth/token/roles`. A role limits the tokens that are created from it. */
import * as v from 'valibot'
import type { Path, Reply } from '../../engines/framework/engine.ts'
import { path, Rejection } from '../../engines/framework/engine.ts'
import {
  aliasField,
  boolean,
  commaList,
  duration,
  foldedField,
  inPath,
  integer,
  text,
} from '../../engines/framework/fields.ts'
import { parseRecord } from '../../platform/stored-record.ts'
import { canonicalNames } from '../policies/policy-name.ts'
import { CidrRanges } from '../../engines/framework/cidr.ts'
import { tokenPaths } from './token-entry.ts'
import { tokenMountTtlLimits, type TokenServices } from './token-services.ts'

const TOKEN_TYPES = ['service', 'batch', 'default-service', 'default-batch'] as const
const NAME_LENGTH_MAX = 256
const ROLE_BYTES_MAX = 256 << 10
const PATH_SUFFIX = /^\w(?:[\w.-]*\w)?$/

const roleSchema = v.object({
  name: v.string(),
  allowedPolicies: v.array(v.string()),
  disallowedPolicies: v.array(v.string()),
  allowedPoliciesGlob: v.array(v.string()),
  disallowedPoliciesGlob: v.array(v.string()),
  allowedEntityAliases: v.array(v.string()),
  orphan: v.boolean(),
  renewable: v.boolean(),
  pathSuffix: v.string(),
  periodSeconds: v.number(),
  explicitMaxTtlSeconds: v.number(),
  noDefaultPolicy: v.boolean(),
  boundCidrs: v.array(v.string()),
  /** 0 for unlimited. */
  numUses: v.number(),
  tokenType: v.picklist(TOKEN_TYPES),
})

export type TokenRole = v.InferOutput<typeof roleSchema>

const FIELDS = {
  role_name: inPath('Name of the role'),
  allowed_policies: foldedField(
    commaList('Policies that tokens may have, instead of those of the calling token'),
    'case and spaces',
  ),
  disallowed_policies: foldedField(commaList('Policies that tokens cannot have'), 'case and spaces'),
  allowed_policies_glob: foldedField(commaList('As allowed_policies, with `*` as wildcard'), 'case and spaces'),
  disallowed_policies_glob: foldedField(commaList('As disallowed_policies, with `*` as wildcard'), 'case and spaces'),
  allowed_entity_aliases: foldedField(
    commaList('Entity aliases that tokens can be created with, with `*` as wildcard'),
    'case and spaces',
  ),
  orphan: boolean('Whether tokens have no parent'),
  renewable: boolean('Whether tokens can be renewed. Default: true'),
  path_suffix: text('Suffix of the creation path of tokens'),
  token_period: duration('Period of periodic tokens: no maximum TTL, but they must be renewed within each period'),
  period: aliasField(duration('Deprecated: use token_period'), 'token_period'),
  token_explicit_max_ttl: duration('Maximum TTL of tokens, renewals included'),
  explicit_max_ttl: aliasField(duration('Deprecated: use token_explicit_max_ttl'), 'token_explicit_max_ttl'),
  token_no_default_policy: boolean('Whether tokens omit the policy `default`'),
  token_bound_cidrs: commaList('Addresses and CIDR ranges from which tokens can be used'),
  bound_cidrs: aliasField(commaList('Deprecated: use token_bound_cidrs'), 'token_bound_cidrs'),
  token_num_uses: integer('Maximum number of uses of tokens; 0 for unlimited'),
  token_type: text('`service`, `batch`, `default-service` or `default-batch`'),
}

export function findRole(core: TokenServices, name: string): TokenRole | undefined {
  return parseRole(core.open.storage.get(tokenPaths.role(name)))
}

function parseRole(bytes: Buffer | undefined): TokenRole | undefined {
  return bytes && parseRecord(roleSchema, bytes, 'a token role')
}

const DEFAULT_ROLE: Omit<TokenRole, 'name'> = {
  allowedPolicies: [],
  disallowedPolicies: [],
  allowedPoliciesGlob: [],
  disallowedPoliciesGlob: [],
  allowedEntityAliases: [],
  orphan: false,
  renewable: true,
  pathSuffix: '',
  periodSeconds: 0,
  explicitMaxTtlSeconds: 0,
  noDefaultPolicy: false,
  boundCidrs: [],
  numUses: 0,
  tokenType: 'default-service',
}

type RoleInput = Parameters<NonNullable<Parameters<typeof path<typeof FIELDS>>[0]['update']>>[0]

export function rolePaths(core: TokenServices): Path[] {
  return [
    path({
      pattern: 'roles',
      summary: 'List the token roles',
      fields: {},
      list: () => ({ data: { keys: core.open.storage.list(tokenPaths.roles).map(decodeURIComponent) } }),
    }),
    path({
      pattern: 'roles/:role_name',
      summary: 'Read, write or delete a token role',
      fields: FIELDS,
      exists: ({ role_name: name }) => core.open.storage.pending(tokenPaths.role(name)) !== undefined,
      read({ role_name: name }) {
        const role = findRole(core, name)
        return role && { data: roleData(role) }
      },
      update: (input) => writeRole(core, input),
      async delete({ role_name: name }) {
        if (name.length > NAME_LENGTH_MAX) return undefined
        await core.open.storage.commit({ puts: [], deletes: [tokenPaths.role(name)] })
        return undefined
      },
    }),
  ]
}

async function writeRole(core: TokenServices, input: RoleInput): Promise<Reply | undefined> {
  const name = input.role_name
  if (name.length > NAME_LENGTH_MAX)
    throw new Rejection(400, `a role name can have at most ${NAME_LENGTH_MAX} characters`)
  const before = parseRole(core.open.storage.pending(tokenPaths.role(name))) ?? { ...DEFAULT_ROLE, name }
  const role = changedRole(before, input)
  checkRole(role)
  const { maxTtlSeconds } = tokenMountTtlLimits(core)
  const value = Buffer.from(JSON.stringify(role))
  if (value.length > ROLE_BYTES_MAX)
    throw new Rejection(400, `the role is larger than ${ROLE_BYTES_MAX} bytes: use fewer policies`)
  await core.open.storage.commit({ puts: [{ path: tokenPaths.role(name), value }], deletes: [] })
  if (role.explicitMaxTtlSeconds <= maxTtlSeconds) return undefined
  const warning = `Given explicit max TTL of ${role.explicitMaxTtlSeconds} is greater than system/mount allowed value of ${maxTtlSeconds} seconds; it caps the tokens of this role`
  return { warnings: [warning] }
}

/** EngineFields that were not given keep their values. */
function changedRole(before: TokenRole, input: RoleInput): TokenRole {
  const type = input.token_type
  return {
    name: before.name,
    allowedPolicies: names(input.allowed_policies) ?? before.allowedPolicies,
    disallowedPolicies: names(input.disallowed_policies) ?? before.disallowedPolicies,
    allowedPoliciesGlob: names(input.allowed_policies_glob) ?? before.allowedPoliciesGlob,
    disallowedPoliciesGlob: names(input.disallowed_policies_glob) ?? before.disallowedPoliciesGlob,
    allowedEntityAliases: names(input.allowed_entity_aliases) ?? before.allowedEntityAliases,
    orphan: input.orphan ?? before.orphan,
    renewable: input.renewable ?? before.renewable,
    pathSuffix: input.path_suffix ?? before.pathSuffix,
    periodSeconds: input.token_period ?? input.period ?? before.periodSeconds,
    explicitMaxTtlSeconds: input.token_explicit_max_ttl ?? input.explicit_max_ttl ?? before.explicitMaxTtlSeconds,
    noDefaultPolicy: input.token_no_default_policy ?? before.noDefaultPolicy,
    boundCidrs: [...(input.token_bound_cidrs ?? input.bound_cidrs ?? before.boundCidrs)],
    numUses: input.token_num_uses ?? before.numUses,
    tokenType: type === undefined ? before.tokenType : typeNamed(type),
  }
}

function names(given: readonly string[] | undefined): string[] | undefined {
  return given && canonicalNames(given)
}

function typeNamed(given: string): TokenRole['tokenType'] {
  const known = TOKEN_TYPES.find((type) => type === (given === '' ? DEFAULT_ROLE.tokenType : given))
  if (!known) throw new Rejection(400, `invalid 'token_type' value ${JSON.stringify(given.slice(0, 64))}`)
  return known
}

function checkRole(role: TokenRole): void {
  if (role.numUses < 0) throw new Rejection(400, 'token_num_uses cannot be negative')
  if (role.pathSuffix !== '' && (!PATH_SUFFIX.test(role.pathSuffix) || role.pathSuffix.includes('..'))) {
    throw new Rejection(400, `given role path suffix contains invalid characters; must match ${PATH_SUFFIX.source}`)
  }
  // Throws a Rejection for a malformed range.
  void new CidrRanges(role.boundCidrs)
  if (role.tokenType !== 'batch') return
  const unsupported = [
    [!role.orphan, 'non-orphan tokens'],
    [role.periodSeconds !== 0, 'periodic tokens'],
    [role.renewable, 'renewable tokens'],
    [role.explicitMaxTtlSeconds !== 0, 'tokens with an explicit max TTL'],
    [role.numUses !== 0, 'tokens with limited use count'],
  ].find(([isSet]) => isSet)
  if (unsupported)
    throw new Rejection(400, `'token_type' cannot be 'batch' when role is set to generate ${String(unsupported[1])}`)
}

function roleData(role: TokenRole): Record<string, unknown> {
  const { allowedEntityAliases: aliases, boundCidrs, explicitMaxTtlSeconds, numUses, periodSeconds } = role
  return {
    allowed_entity_aliases: aliases.length > 0 ? aliases : null,
    allowed_policies: role.allowedPolicies,
    allowed_policies_glob: role.allowedPoliciesGlob,
    ...(boundCidrs.length > 0 && { bound_cidrs: boundCidrs }),
    disallowed_policies: role.disallowedPolicies,
    disallowed_policies_glob: role.disallowedPoliciesGlob,
    explicit_max_ttl: explicitMaxTtlSeconds,
    name: role.name,
    orphan: role.orphan,
    path_suffix: role.pathSuffix,
    period: periodSeconds,
    renewable: role.renewable,
    ...(boundCidrs.length > 0 && { token_bound_cidrs: boundCidrs }),
    token_explicit_max_ttl: explicitMaxTtlSeconds,
    token_no_default_policy: role.noDefaultPolicy,
    ...(numUses > 0 && { token_num_uses: numUses }),
    token_period: periodSeconds,
    token_type: role.tokenType,
  }
}
