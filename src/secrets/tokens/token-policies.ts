/** The policies of a new token: the requested ones, within those of its parent or those that its role allows. */
import { Rejection } from '../../engines/framework/engine.ts'
import { canonicalName, canonicalNames, isPolicyName, matchesGlob } from '../policies/policy-name.ts'
import type { TokenRole } from './token-role.ts'

/** Only the core itself assigns these. */
const UNASSIGNABLE = new Set(['response-wrapping', 'control-group'])

export interface PolicyGrantRequest {
  readonly requested: readonly string[]
  readonly noDefault: boolean
  readonly parentPolicies: readonly string[]
  readonly isSudo: boolean
  readonly role: TokenRole | undefined
}

/** Sorted. Throws a Rejection (400) for a policy that the caller may not assign. */
export function grantPolicies(request: PolicyGrantRequest): string[] {
  const allowed = policiesWithinLimits(request)
  const granted = request.noDefault ? allowed.filter((name) => name !== 'default') : allowed
  for (const name of granted) {
    if (!isPolicyName(name)) {
      throw new Rejection(400, 'a policy name can have at most 512 printable characters')
    }
    if (UNASSIGNABLE.has(name)) throw new Rejection(400, `cannot assign policy ${JSON.stringify(name)}`)
  }
  // A caller with sudo may assign policies that it does not have, but not `root`.
  if (granted.includes('root') && !request.parentPolicies.includes('root')) {
    throw new Rejection(400, 'root tokens may not be created without parent token being root')
  }
  return granted
}

function policiesWithinLimits(request: PolicyGrantRequest): string[] {
  const { isSudo, noDefault, parentPolicies, requested, role } = request
  if (role && hasPolicyRules(role)) return policiesWithinRole(request, role)
  if (requested.length === 0) return sanitize(parentPolicies, false)
  const policies = sanitize(requested, false)
  if (isSudo) return sanitize(policies, !noDefault)
  if (!policies.every((name) => parentPolicies.includes(name))) {
    throw new Rejection(400, 'child policies must be subset of parent')
  }
  return sanitize(policies, !noDefault && parentPolicies.includes('default'))
}

function hasPolicyRules(role: TokenRole): boolean {
  const { allowedPolicies, allowedPoliciesGlob, disallowedPolicies, disallowedPoliciesGlob } = role
  return [allowedPolicies, allowedPoliciesGlob, disallowedPolicies, disallowedPoliciesGlob].some(({ length }) => length)
}

function policiesWithinRole({ noDefault, parentPolicies, requested }: PolicyGrantRequest, role: TokenRole): string[] {
  const disallowed = new Set(role.disallowedPolicies.map(canonicalName))
  const disallowedGlobs = role.disallowedPoliciesGlob.map(canonicalName)
  const isDisallowed = (name: string) => disallowed.has(name) || disallowedGlobs.some((glob) => matchesGlob(name, glob))
  const addDefault = !noDefault && !isDisallowed('default')
  const allowed = sanitize(role.allowedPolicies, addDefault)
  const globs = role.allowedPoliciesGlob.map(canonicalName)
  const isLimited = role.allowedPolicies.length > 0 || globs.length > 0
  let policies = requested.length > 0 ? sanitize(requested, addDefault) : []
  if (policies.length === 0) policies = isLimited ? allowed : sanitize(parentPolicies, addDefault)
  else if (isLimited && !policies.every((name) => allowed.includes(name) || globs.some((g) => matchesGlob(name, g)))) {
    throw new Rejection(
      400,
      `token policies (${listText(policies)}) must be subset of the role's allowed policies (${listText(allowed)}) or glob policies (${listText(globs)})`,
    )
  }
  const rejected = policies.find(isDisallowed)
  if (rejected === undefined) return policies
  throw new Rejection(400, `token policy ${JSON.stringify(rejected)} is disallowed by this role`)
}

function listText(names: readonly string[]): string {
  return `[${names.map((name) => JSON.stringify(name)).join(' ')}]`
}

/** Canonical, sorted, without duplicates. `root` replaces all others. */
function sanitize(names: readonly string[], addDefault: boolean): string[] {
  const clean = canonicalNames(addDefault ? [...names, 'default'] : names)
  return clean.includes('root') ? ['root'] : clean
}
