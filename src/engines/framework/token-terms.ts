/** Settings that all auth methods share: the fields `token_*` of roles and users, and the groups that logins report to identity. */
import * as v from 'valibot'
import { CidrRanges } from './cidr.ts'
import { Rejection } from './engine.ts'
import {
  aliasField,
  boolean,
  commaList,
  duration,
  foldedField,
  type EngineInput,
  integer,
  text,
  UNPRINTABLE,
} from './fields.ts'
import { TOKEN_TYPES, type TokenTerms } from './login-grant.ts'
import { foldName } from './name-fold.ts'

const POLICIES_MAX = 256
const POLICY_LENGTH_MAX = 512
const CIDRS_MAX = 256

export const tokenTermsSchema = v.object({
  policies: v.array(v.string()),
  noDefaultPolicy: v.boolean(),
  ttlSeconds: v.number(),
  maxTtlSeconds: v.number(),
  explicitMaxTtlSeconds: v.number(),
  periodSeconds: v.number(),
  numUses: v.number(),
  boundCidrs: v.array(v.string()),
  type: v.picklist(TOKEN_TYPES),
})

export const NO_TERMS: TokenTerms = Object.freeze({
  policies: [],
  noDefaultPolicy: false,
  ttlSeconds: 0,
  maxTtlSeconds: 0,
  explicitMaxTtlSeconds: 0,
  periodSeconds: 0,
  numUses: 0,
  boundCidrs: [],
  type: 'default',
})

export const TOKEN_FIELDS = {
  token_policies: foldedField(commaList('Policies of its tokens'), 'case and spaces'),
  policies: aliasField(foldedField(commaList('Deprecated: use token_policies'), 'case and spaces'), 'token_policies'),
  token_no_default_policy: boolean('Do not add the policy `default` to its tokens'),
  token_ttl: duration('TTL of its tokens; the default of the mount unless set'),
  ttl: aliasField(duration('Deprecated: use token_ttl'), 'token_ttl'),
  token_max_ttl: duration('Maximum TTL of its tokens including renewals'),
  max_ttl: aliasField(duration('Deprecated: use token_max_ttl'), 'token_max_ttl'),
  token_explicit_max_ttl: duration('Maximum TTL of its tokens that no other setting can exceed'),
  token_period: duration('Period of its tokens: they have no maximum TTL but must be renewed within it'),
  period: aliasField(duration('Deprecated: use token_period'), 'token_period'),
  token_num_uses: integer('Number of uses of a token; 0 for unlimited'),
  token_bound_cidrs: commaList('Addresses and ranges from which logins and uses of tokens are allowed'),
  bound_cidrs: aliasField(commaList('Deprecated: use token_bound_cidrs'), 'token_bound_cidrs'),
  token_type: text('service, batch, default-service, default-batch or default'),
}

/** Fields that are not given keep their values. Throws a Rejection (400). */
export function changedTerms(before: TokenTerms, given: EngineInput<typeof TOKEN_FIELDS>): TokenTerms {
  const terms: TokenTerms = {
    policies: policiesOf(given.token_policies ?? given.policies) ?? before.policies,
    noDefaultPolicy: given.token_no_default_policy ?? before.noDefaultPolicy,
    ttlSeconds: given.token_ttl ?? given.ttl ?? before.ttlSeconds,
    maxTtlSeconds: given.token_max_ttl ?? given.max_ttl ?? before.maxTtlSeconds,
    explicitMaxTtlSeconds: given.token_explicit_max_ttl ?? before.explicitMaxTtlSeconds,
    periodSeconds: given.token_period ?? given.period ?? before.periodSeconds,
    numUses: given.token_num_uses ?? before.numUses,
    boundCidrs: [...(given.token_bound_cidrs ?? given.bound_cidrs ?? before.boundCidrs)],
    type: typeOf(given.token_type) ?? before.type,
  }
  checkTerms(terms)
  return terms
}

function policiesOf(given: readonly string[] | undefined): string[] | undefined {
  if (given === undefined) return undefined
  const names = [...new Set(given.map((name) => foldName(name, 'case and spaces')))]
    .filter((name) => name !== '')
    .sort()
  // Its logins would fail with an error of their own, which would confirm the password.
  if (names.includes('root'))
    throw new Rejection(400, 'policies cannot contain root: auth methods cannot create root tokens')
  if (names.length > POLICIES_MAX) throw new Rejection(400, `at most ${POLICIES_MAX} policies are allowed`)
  if (names.some((name) => name.length > POLICY_LENGTH_MAX || UNPRINTABLE.test(name))) {
    throw new Rejection(400, `a policy name can have at most ${POLICY_LENGTH_MAX} printable characters`)
  }
  return names
}

function typeOf(given: string | undefined): TokenTerms['type'] | undefined {
  if (given === undefined) return undefined
  const type = TOKEN_TYPES.find((each) => each === (given === '' ? 'default' : given))
  if (!type) throw new Rejection(400, `invalid 'token_type' value ${JSON.stringify(given.slice(0, 64))}`)
  return type
}

function checkTerms(terms: TokenTerms): void {
  if (terms.numUses < 0) throw new Rejection(400, "'token_num_uses' cannot be negative")
  if (terms.boundCidrs.length > CIDRS_MAX)
    throw new Rejection(400, `at most ${CIDRS_MAX} addresses and ranges are allowed`)
  // Throws for an invalid range.
  void new CidrRanges(terms.boundCidrs)
  if (terms.maxTtlSeconds > 0 && terms.ttlSeconds > terms.maxTtlSeconds) {
    throw new Rejection(400, "'token_ttl' cannot be greater than 'token_max_ttl'")
  }
  if (terms.type === 'batch' || terms.type === 'default-batch') {
    if (terms.periodSeconds > 0)
      throw new Rejection(400, "'token_type' cannot be 'batch' or 'default_batch' when set to generate periodic tokens")
    if (terms.numUses > 0)
      throw new Rejection(
        400,
        "'token_type' cannot be 'batch' or 'default_batch' when set to generate tokens with limited use count",
      )
  }
}

export function termsResponse(terms: TokenTerms): Record<string, unknown> {
  return {
    token_bound_cidrs: terms.boundCidrs,
    token_explicit_max_ttl: terms.explicitMaxTtlSeconds,
    token_max_ttl: terms.maxTtlSeconds,
    token_no_default_policy: terms.noDefaultPolicy,
    token_num_uses: terms.numUses,
    token_period: terms.periodSeconds,
    token_policies: terms.policies,
    token_ttl: terms.ttlSeconds,
    token_type: terms.type,
  }
}

/** Without bound ranges every address is allowed; with them an unknown address is not. */
export function mayLogInFrom(cidrs: readonly string[], remote: string | undefined): boolean {
  return cidrs.length === 0 || new CidrRanges(cidrs).includes(remote)
}

const GROUPS_MAX = 64
const NAME_LENGTH_MAX = 512

export const GROUPS_FIELD = {
  groups: foldedField(
    commaList('Groups reported to identity: external groups with an alias of that name and this mount'),
    'case and spaces',
  ),
}

/** Names without duplicates that differ in case only. Without new names the old ones are kept. Throws a Rejection (400). */
export function changedGroups(before: readonly string[], given: readonly string[] | undefined): string[] {
  if (given === undefined) return [...before]
  const byName = new Map(given.map((name) => [foldName(name, 'case and spaces'), name.trim()]))
  byName.delete('')
  if (byName.size > GROUPS_MAX) throw new Rejection(400, `at most ${GROUPS_MAX} groups are allowed`)
  const names = [...byName.values()].sort()
  if (names.some((name) => name.length > NAME_LENGTH_MAX || !name.isWellFormed() || UNPRINTABLE.test(name))) {
    throw new Rejection(400, `a group name can have at most ${NAME_LENGTH_MAX} printable characters`)
  }
  return names
}

/** Shown only if set: Vault has no such field. */
export function groupsResponse(groups: readonly string[]): { readonly groups?: readonly string[] } {
  return groups.length > 0 ? { groups } : {}
}
