/** Which policies a new token gets: what was asked for, within what its maker has or its role allows. */
import { Rejection } from '../../engines/framework/engine.ts'
import { canonicalName, canonicalNames } from '../policies/policy-name.ts'
import { isPolicyName } from '../policies/policy-store.ts'
import type { TokenRole } from './token-role.ts'

/** Only the core itself gives these. */
const NOT_FOR_TOKENS = new Set(['response-wrapping', 'control-group'])

export interface PolicyWish {
  readonly asked: readonly string[]
  readonly noDefault: boolean
  readonly parents: readonly string[]
  readonly isSudo: boolean
  readonly role: TokenRole | undefined
}

/** In order. Throws a Rejection (400) for more than the maker may give. */
export function grantedPolicies(wish: PolicyWish): string[] {
  const granted = withinRules(wish)
  const kept = wish.noDefault ? granted.filter((name) => name !== 'default') : granted
  for (const name of kept) {
    if (!isPolicyName(name)) {
      throw new Rejection(400, 'the name of a policy has at most 512 characters, all of them printable')
    }
    if (NOT_FOR_TOKENS.has(name)) throw new Rejection(400, `cannot assign policy ${JSON.stringify(name)}`)
  }
  // Whoever has sudo may give away what it does not have, but not everything.
  if (kept.includes('root') && !wish.parents.includes('root')) {
    throw new Rejection(400, 'root tokens may not be created without parent token being root')
  }
  return kept
}

function withinRules(wish: PolicyWish): string[] {
  const { asked, isSudo, noDefault, parents, role } = wish
  if (role && hasPolicyRules(role)) return withinRole(wish, role)
  if (asked.length === 0) return sanitized(parents, false)
  const policies = sanitized(asked, false)
  if (isSudo) return sanitized(policies, !noDefault)
  if (!policies.every((name) => parents.includes(name))) {
    throw new Rejection(400, 'child policies must be subset of parent')
  }
  return sanitized(policies, !noDefault && parents.includes('default'))
}

function hasPolicyRules(role: TokenRole): boolean {
  const { allowedPolicies, allowedPoliciesGlob, disallowedPolicies, disallowedPoliciesGlob } = role
  return [allowedPolicies, allowedPoliciesGlob, disallowedPolicies, disallowedPoliciesGlob].some(({ length }) => length)
}

function withinRole({ asked, noDefault, parents }: PolicyWish, role: TokenRole): string[] {
  const disallowed = new Set(role.disallowedPolicies.map(canonicalName))
  const disallowedGlobs = role.disallowedPoliciesGlob.map(canonicalName)
  const isDisallowed = (name: string) => disallowed.has(name) || disallowedGlobs.some((glob) => matchesGlob(name, glob))
  const addDefault = !noDefault && !isDisallowed('default')
  const allowed = sanitized(role.allowedPolicies, addDefault)
  const globs = role.allowedPoliciesGlob.map(canonicalName)
  const isLimited = role.allowedPolicies.length > 0 || globs.length > 0
  let policies = asked.length > 0 ? sanitized(asked, addDefault) : []
  if (policies.length === 0) policies = isLimited ? allowed : sanitized(parents, addDefault)
  else if (isLimited && !policies.every((name) => allowed.includes(name) || globs.some((g) => matchesGlob(name, g)))) {
    throw new Rejection(
      400,
      `token policies (${listed(policies)}) must be subset of the role's allowed policies (${listed(allowed)}) or glob policies (${listed(globs)})`,
    )
  }
  const refused = policies.find(isDisallowed)
  if (refused === undefined) return policies
  throw new Rejection(400, `token policy ${JSON.stringify(refused)} is disallowed by this role`)
}

function listed(names: readonly string[]): string {
  return `[${names.map((name) => JSON.stringify(name)).join(' ')}]`
}

/** In canonical form, in order, each once; `root` stands alone. */
function sanitized(names: readonly string[], addDefault: boolean): string[] {
  const clean = canonicalNames(addDefault ? [...names, 'default'] : names)
  return clean.includes('root') ? ['root'] : clean
}

/** `*` stands for anything, also for nothing. Takes time in proportion to the lengths. */
export function matchesGlob(name: string, glob: string): boolean {
  const [first = '', ...rest] = glob.split('*')
  const last = rest.pop()
  if (last === undefined) return name === glob
  if (!name.startsWith(first)) return false
  let at = first.length
  for (const part of rest) {
    const found = name.indexOf(part, at)
    if (found < 0) return false
    at = found + part.length
  }
  return name.length - last.length >= at && name.endsWith(last)
}
