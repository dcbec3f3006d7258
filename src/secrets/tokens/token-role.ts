/** Token roles: what tokens that are created by their name may and must be. */
import * as v from 'valibot'
import { type EngineCall, type Path, path, Rejection, type Reply } from '../../engines/framework/engine.ts'
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
import { Fault } from '../../platform/errors.ts'
import type { TokenParts } from './token-parts.ts'
import { canonicalNames } from '../policies/policy-name.ts'
import { AddressRanges } from '../../engines/framework/addresses.ts'
import { tokenPaths } from './token-entry.ts'
import { tokenMountRules } from './token-mount.ts'

const TOKEN_TYPES = ['service', 'batch', 'default-service', 'default-batch'] as const
const NAME_LENGTH_MAX = 256
const SUFFIX = /^\w(?:[\w.-]*\w)?$/

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
  /** 0: as often as one likes. */
  numUses: v.number(),
  tokenType: v.picklist(TOKEN_TYPES),
})

export type TokenRole = v.InferOutput<typeof roleSchema>

const FIELDS = {
  role_name: inPath('Name of the role'),
  allowed_policies: foldedField(
    commaList('Policies that tokens may have, instead of a part of their maker’s'),
    'case and spaces',
  ),
  disallowed_policies: foldedField(commaList('Policies that tokens must not have'), 'case and spaces'),
  allowed_policies_glob: foldedField(commaList('As allowed_policies, with `*` for anything'), 'case and spaces'),
  disallowed_policies_glob: foldedField(commaList('As disallowed_policies, with `*` for anything'), 'case and spaces'),
  allowed_entity_aliases: foldedField(
    commaList('Names of entity aliases that tokens may be made for, with `*` for anything'),
    'case and spaces',
  ),
  orphan: boolean('Whether tokens have no parent'),
  renewable: boolean('Whether tokens can be renewed; true unless given'),
  path_suffix: text('What is appended to the path that tokens say they were made at'),
  token_period: duration('Tokens have no last day, but must be renewed this often'),
  period: aliasField(duration('Old name of token_period'), 'token_period'),
  token_explicit_max_ttl: duration('The longest that tokens live, whatever is renewed'),
  explicit_max_ttl: aliasField(duration('Old name of token_explicit_max_ttl'), 'token_explicit_max_ttl'),
  token_no_default_policy: boolean('Whether tokens do not get the policy `default` by themselves'),
  token_bound_cidrs: commaList('Addresses and ranges that tokens may be used from'),
  bound_cidrs: aliasField(commaList('Old name of token_bound_cidrs'), 'token_bound_cidrs'),
  token_num_uses: integer('How often tokens may be used; 0 for as often as one likes'),
  token_type: text('service, batch, default-service or default-batch'),
}

export function findRole(core: TokenParts, name: string): TokenRole | undefined {
  return parseRole(core.open.storage.get(tokenPaths.role(name)))
}

function parseRole(bytes: Buffer | undefined): TokenRole | undefined {
  if (!bytes) return undefined
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), roleSchema), bytes.toString('utf8'))
  if (!parsed.success) throw new Fault('the entry of a token role is damaged')
  return parsed.output
}

const FRESH: Omit<TokenRole, 'name'> = {
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

export function rolePaths(core: TokenParts): Path[] {
  return [
    path({
      pattern: 'roles',
      summary: 'Names of the token roles',
      fields: {},
      list: () => ({ data: { keys: core.open.storage.list(tokenPaths.roles).map(decodeURIComponent) } }),
    }),
    path({
      pattern: 'roles/:role_name',
      summary: 'A role that tokens are made by',
      fields: FIELDS,
      exists: ({ role_name: name }) => core.open.storage.pending(tokenPaths.role(name)) !== undefined,
      read({ role_name: name }) {
        const role = findRole(core, name)
        return role && { data: shown(role) }
      },
      update: (input, call) => write(core, input, call),
      async delete({ role_name: name }) {
        if (name.length > NAME_LENGTH_MAX) return undefined
        await core.open.storage.commit({ puts: [], deletes: [tokenPaths.role(name)] })
        return undefined
      },
    }),
  ]
}

async function write(core: TokenParts, input: RoleInput, _call: EngineCall): Promise<Reply | undefined> {
  const name = input.role_name
  if (name.length > NAME_LENGTH_MAX) throw new Rejection(400, `a role's name has at most ${NAME_LENGTH_MAX} characters`)
  const before = parseRole(core.open.storage.pending(tokenPaths.role(name))) ?? { ...FRESH, name }
  const role = changed(before, input)
  check(role)
  const { maxSeconds } = tokenMountRules(core)
  const value = Buffer.from(JSON.stringify(role))
  if (value.length > ROLE_BYTES_MAX) throw new Rejection(400, 'the role would be too large: name fewer policies')
  await core.open.storage.commit({ puts: [{ path: tokenPaths.role(name), value }], deletes: [] })
  if (role.explicitMaxTtlSeconds <= maxSeconds) return undefined
  const warning = `Given explicit max TTL of ${role.explicitMaxTtlSeconds} is greater than system/mount allowed value of ${maxSeconds} seconds; tokens of this role live no longer than that`
  return { warnings: [warning] }
}

const ROLE_BYTES_MAX = 256 << 10

/** What is not given stays. */
function changed(before: TokenRole, input: RoleInput): TokenRole {
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
  const known = TOKEN_TYPES.find((type) => type === (given === '' ? FRESH.tokenType : given))
  if (!known) throw new Rejection(400, `invalid 'token_type' value ${JSON.stringify(given.slice(0, 64))}`)
  return known
}

function check(role: TokenRole): void {
  if (role.numUses < 0) throw new Rejection(400, 'token_num_uses cannot be negative')
  if (role.pathSuffix !== '' && (!SUFFIX.test(role.pathSuffix) || role.pathSuffix.includes('..'))) {
    throw new Rejection(400, `given role path suffix contains invalid characters; must match ${SUFFIX.source}`)
  }
  // Throws for a range that is none.
  void new AddressRanges(role.boundCidrs)
  if (role.tokenType !== 'batch') return
  const unfit = [
    [!role.orphan, 'non-orphan tokens'],
    [role.periodSeconds !== 0, 'periodic tokens'],
    [role.renewable, 'renewable tokens'],
    [role.explicitMaxTtlSeconds !== 0, 'tokens with an explicit max TTL'],
    [role.numUses !== 0, 'tokens with limited use count'],
  ].find(([isSo]) => isSo)
  if (unfit) throw new Rejection(400, `'token_type' cannot be 'batch' when role is set to generate ${String(unfit[1])}`)
}

function shown(role: TokenRole): Record<string, unknown> {
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
