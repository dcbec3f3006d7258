/** What the roles and users of an auth method say about the tokens that logins get: the fields `token_*`, which all methods share. */
import * as v from 'valibot'
import { AddressRanges } from './address-ranges.ts'
import { Rejection } from './engine.ts'
import {
  aliasField,
  boolean,
  commaList,
  duration,
  foldedField,
  type InputOf,
  integer,
  text,
  UNPRINTABLE,
} from './fields.ts'
import { TOKEN_TYPES, type TokenTerms } from './login-order.ts'
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
  policies: aliasField(foldedField(commaList('Old name of token_policies'), 'case and spaces'), 'token_policies'),
  token_no_default_policy: boolean('Whether its tokens do not get the policy `default` by themselves'),
  token_ttl: duration('How long its tokens live; what the mount gives unless set'),
  ttl: aliasField(duration('Old name of token_ttl'), 'token_ttl'),
  token_max_ttl: duration('The longest that renewals reach'),
  max_ttl: aliasField(duration('Old name of token_max_ttl'), 'token_max_ttl'),
  token_explicit_max_ttl: duration('The longest that its tokens live, whatever is renewed'),
  token_period: duration('Its tokens have no last day, but must be renewed this often'),
  period: aliasField(duration('Old name of token_period'), 'token_period'),
  token_num_uses: integer('How often a token may be used; 0 for as often as one likes'),
  token_bound_cidrs: commaList('Addresses and ranges that logins may come from, and that tokens may be used from'),
  bound_cidrs: aliasField(commaList('Old name of token_bound_cidrs'), 'token_bound_cidrs'),
  token_type: text('service, batch, default-service, default-batch or default'),
}

/** What is not given stays. Throws a Rejection (400). */
export function changedTerms(before: TokenTerms, given: InputOf<typeof TOKEN_FIELDS>): TokenTerms {
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
  // Its right password would be of no use, and would be told by what its login is refused with.
  if (names.includes('root'))
    throw new Rejection(400, 'policies cannot contain root: auth methods cannot create root tokens')
  if (names.length > POLICIES_MAX) throw new Rejection(400, `at most ${POLICIES_MAX} policies can be named`)
  if (names.some((name) => name.length > POLICY_LENGTH_MAX || UNPRINTABLE.test(name))) {
    throw new Rejection(400, `the name of a policy has at most ${POLICY_LENGTH_MAX} characters, all of them printable`)
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
    throw new Rejection(400, `at most ${CIDRS_MAX} addresses and ranges can be bound`)
  // Throws for a range that is none.
  void new AddressRanges(terms.boundCidrs)
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

export function shownTerms(terms: TokenTerms): Record<string, unknown> {
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

/** Whether a login may come from an address: from any where none are bound, and from none that is not known. */
export function mayLogInFrom(cidrs: readonly string[], remote: string | undefined): boolean {
  return cidrs.length === 0 || new AddressRanges(cidrs).includes(remote)
}
