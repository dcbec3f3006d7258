/**
 * Admits the caller of a request and checks its policies: before the engine acts, and again before each chunk of a stream.
 */
import { canonicalAt } from '../../engines/framework/path-table.ts'
import { shapeBelow } from '../../engines/framework/name-fold.ts'
import { denied, type EngineVerb, type Path, Rejection } from '../../engines/framework/engine.ts'
import type { Call } from '../../platform/operation.ts'
import type { Decision } from '../policies/acl.ts'
import type { RequestBody } from './parse-request.ts'
import type { CallerAdmission, Core, Request } from './request-states.ts'
import type { AdmittedCaller } from '../tokens/token-admission.ts'

const NO_RULE: Decision = { allowed: false, reason: 'no rule', sudo: false, rules: [], mfaMethods: [] }

/** A caller without a token. It has no permissions. */
export const ANONYMOUS: AdmittedCaller = {
  caller: {
    accessor: '',
    tokenHash: '',
    tokenType: 'batch',
    displayName: '',
    policies: [],
    isRoot: false,
    entityId: '',
  },
  leaseOwner: '',
  decide: () => NO_RULE,
  reaches: () => false,
  isValid: () => true,
}

/** Authenticates the caller. Throws a Rejection for a caller that is not admitted at all. */
export function admitCaller(core: Core, path: Path | undefined, call: Call): CallerAdmission {
  const anonymous = { admitted: core.anonymous, isOpen: true }
  // A core that is not active cannot read tokens, so it serves only the paths that are declared for that state.
  if (!core.isActive || path?.unauthenticated) return anonymous
  if (path?.tokenOptional) {
    return call.token === undefined ? anonymous : { admitted: core.admit(call.token, call.remote), isOpen: true }
  }
  const { withoutToken } = path ?? {}
  if (withoutToken && call.token === undefined && !withoutToken.isAllowed()) {
    throw new Rejection(405, withoutToken.refusal)
  }
  try {
    if (!withoutToken || call.token !== undefined)
      return { admitted: core.admit(call.token, call.remote), isOpen: false }
  } catch (error) {
    // A client that sends an expired token is admitted like one without a token.
    if (!withoutToken?.isAllowed() || !(error instanceof Rejection)) throw error
  }
  return anonymous
}

/** What the policies add to the permission itself. */
export interface Grant extends Pick<Decision, 'sudo' | 'keeps' | 'limit'> {
  /** MFA methods whose codes the caller's policies require. */
  readonly mfaMethods?: readonly string[]
}

const OPEN: Grant = { sudo: true }
const OPEN_WITHOUT_SUDO: Grant = { sudo: false }

/** Throws a Rejection (403) for what the caller's policies do not allow. */
export function grantOf(request: Request, verb: EngineVerb, body: RequestBody): Grant {
  const { isOpen, match } = request
  const { withoutToken } = match?.path ?? {}
  if (isOpen) return withoutToken ? OPEN_WITHOUT_SUDO : OPEN
  if (!withoutToken?.isAllowed()) return checkPolicies(request, verb, body)
  try {
    return checkPolicies(request, verb, body)
  } catch (error) {
    if (!(error instanceof Rejection)) throw error
    return OPEN_WITHOUT_SUDO
  }
}

function checkPolicies(request: Request, operation: EngineVerb, { data }: RequestBody): Grant {
  const { admitted, canonical, head } = request
  const wrapTtlSeconds = head.wrapping?.ttlSeconds
  const ask = (path: string) => admitted.decide({ ...canonical, path, operation, data, wrapTtlSeconds })
  const decision = restrictByReads(request, operation, data, requireAllowed(ask(head.path)))
  if (!request.head.path.endsWith('/') || !isSlashIgnored(request)) return decision
  // The path without the slash has the same meaning, so a rule that denies either of them applies.
  const bare = requireAllowed(ask(head.path.slice(0, -1)))
  return { ...addMfaMethods(decision, bare), sudo: decision.sudo && bare.sudo }
}

/**
 * Reasons that also refuse a request which reads the path through another path. A missing grant does not refuse it. Codes are
 * required for the request itself. The handler checks parameters, because only it knows the requested version.
 */
const REFUSED_WITH: ReadonlySet<Decision['reason']> = new Set(['deny', 'template', 'limit', 'wrapping'])

/** Restricts the decision by the other paths that the response reveals. Throws a Rejection (403) if one of them is denied. */
function restrictByReads(request: Request, verb: EngineVerb, data: RequestBody['data'], decision: Decision): Decision {
  const { admitted, head, match, resolved } = request
  const reads = match?.path.reads?.(match.params, verb) ?? []
  if (reads.length === 0 || !resolved) return decision
  const front = head.path.slice(0, head.path.length - resolved.rest.length)
  const wrapTtlSeconds = head.wrapping?.ttlSeconds
  const depth = front.split('/').length - 1
  return reads.reduce((before, { folds, operation, path }) => {
    if (folds) {
      const same = { path: front + path, folds: shapeBelow(folds, depth), fields: match?.path.fields }
      const decided = requireAllowed(admitted.decide({ ...same, operation, data, wrapTtlSeconds }))
      return intersectLists({ ...before, sudo: before.sudo && decided.sudo }, decided)
    }
    const canonical = canonicalAt(front + path, { mount: resolved.mount, rest: path })
    const isList = operation === 'list' || operation === 'scan'
    const other = admitted.decide({ ...canonical, operation, data: isList ? data : {}, wrapTtlSeconds })
    if (REFUSED_WITH.has(other.reason)) throw denied()
    return isList ? intersectLists(before, other) : addMfaMethods(before, other)
  }, decision)
}

function addMfaMethods(decision: Decision, { mfaMethods }: Decision): Decision {
  return mfaMethods.length === 0
    ? decision
    : { ...decision, mfaMethods: [...new Set([...decision.mfaMethods, ...mfaMethods])] }
}

/** Restricts a list to the names that both decisions show. */
function intersectLists(decision: Decision, other: Decision): Decision {
  const filters = [decision.keeps, other.keeps].filter((keeps) => keeps !== undefined)
  const limits = [decision.limit, other.limit].filter((limit) => limit !== undefined && limit > 0)
  return {
    ...addMfaMethods(decision, other),
    ...(filters.length > 0 && { keeps: (key: string) => filters.every((keeps) => keeps(key)) }),
    ...(limits.length > 0 && { limit: Math.min(...limits.map(Number)) }),
  }
}

/** True if a rule denies the access, not if a grant is missing. `coded`: methods whose codes came with the request. */
export function isForbidden({ allowed, mfaMethods, reason }: Decision, coded: readonly string[]): boolean {
  if (allowed) return false
  if (mfaMethods.some((name) => !coded.includes(name))) return true
  return reason !== 'no rule' && reason !== 'not granted' && reason !== 'second factor'
}

/** Throws a Rejection (403) if the access is not allowed even with a second factor. */
function requireAllowed(decision: Decision): Decision {
  if (!decision.allowed && decision.reason !== 'second factor') throw denied()
  return decision
}

/** The path of a list always ends with a slash. A pattern that captures the rest of the path interprets slashes itself. */
function isSlashIgnored({ head: { verb }, match, resolved }: Request): boolean {
  if (verb === 'list' || verb === 'scan' || !match) return false
  return resolved?.mount.isOwn === true || !/[*+]$/.test(match.path.pattern)
}

export function needsSudo({ sudo, withoutToken }: Path, verb: EngineVerb): boolean {
  if (withoutToken) return !withoutToken.isAllowed()
  return typeof sudo === 'function' ? sudo(verb) : sudo === true
}
