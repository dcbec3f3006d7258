/** What the policies of a request's caller allow: asked before its engine acts, and again while a stream lasts. */
import { canonicalAt } from '../../engines/framework/path-table.ts'
import { shapeBelow } from '../../engines/framework/name-fold.ts'
import { denied, type EngineVerb, type Path, Rejection } from '../../engines/framework/engine.ts'
import type { Decision } from '../policies/acl.ts'
import type { RequestBody } from './request.ts'
import type { Request } from './request-states.ts'

/** What a caller that is let in may do besides. */
export interface Grant extends Pick<Decision, 'sudo' | 'keeps' | 'limit'> {
  /** MFA methods that the caller's policies ask for a code of. */
  readonly mfaMethods?: readonly string[]
}

const OPEN: Grant = { sudo: true }
const OPEN_WITHOUT_SUDO: Grant = { sudo: false }

/** Throws a Rejection (403) for what the caller's policies do not allow. */
export function grantOf(request: Request, verb: EngineVerb, body: RequestBody): Grant {
  const { isOpen, match } = request
  const { withoutToken } = match?.path ?? {}
  if (isOpen) return withoutToken ? OPEN_WITHOUT_SUDO : OPEN
  if (!withoutToken?.isAllowed()) return judged(request, verb, body)
  try {
    return judged(request, verb, body)
  } catch (error) {
    if (!(error instanceof Rejection)) throw error
    return OPEN_WITHOUT_SUDO
  }
}

function judged(request: Request, operation: EngineVerb, { data }: RequestBody): Grant {
  const { admitted, canonical, head } = request
  const wrapTtlSeconds = head.wrapping?.ttlSeconds
  const ask = (path: string) => admitted.decide({ ...canonical, path, operation, data, wrapTtlSeconds })
  const decision = withReads(request, operation, data, allowedOf(ask(head.path)))
  if (!request.head.path.endsWith('/') || !isSlashIgnored(request)) return decision
  // It means the same without the slash: a rule that denies the one must not be passed by writing the other.
  const bare = allowedOf(ask(head.path.slice(0, -1)))
  return { ...withCodesOf(decision, bare), sudo: decision.sudo && bare.sudo }
}

/**
 * Statements about a path that also hold for a request that reads it by another path. A missing grant is none; codes are
 * demanded with the request; the handler judges parameters, because it knows which version is meant.
 */
const REFUSED_WITH: ReadonlySet<Decision['reason']> = new Set(['deny', 'template', 'limit', 'wrapping'])

/** The decision about a path, restricted by what its answer reveals of others. Throws a Rejection (403) where that is denied. */
function withReads(request: Request, verb: EngineVerb, data: RequestBody['data'], decision: Decision): Decision {
  const { admitted, head, match, place } = request
  const reads = match?.path.reads?.(match.params, verb) ?? []
  if (reads.length === 0 || !place) return decision
  const front = head.path.slice(0, head.path.length - place.rest.length)
  const wrapTtlSeconds = head.wrapping?.ttlSeconds
  const depth = front.split('/').length - 1
  return reads.reduce((before, { folds, operation, path }) => {
    if (folds) {
      const same = { path: front + path, folds: shapeBelow(folds, depth), fields: match?.path.fields }
      const decided = allowedOf(admitted.decide({ ...same, operation, data, wrapTtlSeconds }))
      return narrower({ ...before, sudo: before.sudo && decided.sudo }, decided)
    }
    const canonical = canonicalAt(front + path, { mount: place.mount, rest: path })
    const isList = operation === 'list' || operation === 'scan'
    const other = admitted.decide({ ...canonical, operation, data: isList ? data : {}, wrapTtlSeconds })
    if (REFUSED_WITH.has(other.reason)) throw denied()
    return isList ? narrower(before, other) : withCodesOf(before, other)
  }, decision)
}

function withCodesOf(decision: Decision, { mfaMethods }: Decision): Decision {
  return mfaMethods.length === 0
    ? decision
    : { ...decision, mfaMethods: [...new Set([...decision.mfaMethods, ...mfaMethods])] }
}

/** A list that shows no more names than another one. */
function narrower(decision: Decision, other: Decision): Decision {
  const filters = [decision.keeps, other.keeps].filter((keeps) => keeps !== undefined)
  const limits = [decision.limit, other.limit].filter((limit) => limit !== undefined && limit > 0)
  return {
    ...withCodesOf(decision, other),
    ...(filters.length > 0 && { keeps: (key: string) => filters.every((keeps) => keeps(key)) }),
    ...(limits.length > 0 && { limit: Math.min(...limits.map(Number)) }),
  }
}

/** Whether a rule forbids it, other than by granting nothing; `coded`: methods of which the request brought a code. */
export function isForbidden({ allowed, mfaMethods, reason }: Decision, coded: readonly string[]): boolean {
  if (allowed) return false
  if (mfaMethods.some((name) => !coded.includes(name))) return true
  return reason !== 'no rule' && reason !== 'not granted' && reason !== 'second factor'
}

/** Throws a Rejection (403) for what is not allowed, with a second factor either. */
function allowedOf(decision: Decision): Decision {
  if (!decision.allowed && decision.reason !== 'second factor') throw denied()
  return decision
}

/** A list's path always ends with a slash, and rules know that; a path that takes the rest makes of it what it likes. */
function isSlashIgnored({ head: { verb }, match, place }: Request): boolean {
  if (verb === 'list' || verb === 'scan' || !match) return false
  return place?.mount.isOwn === true || !/[*+]$/.test(match.path.pattern)
}

export function needsSudo({ sudo, withoutToken }: Path, verb: EngineVerb): boolean {
  if (withoutToken) return !withoutToken.isAllowed()
  return typeof sudo === 'function' ? sudo(verb) : sudo === true
}
