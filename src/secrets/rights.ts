/** What the policies of a request's caller allow: asked before its engine acts, and again while a stream lasts. */
import { denied, type EngineVerb, type Path, Rejection } from '../engines/engine.ts'
import type { Decision } from './policies/acl.ts'
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
  const ask = (path: string) => admitted.judge({ ...canonical, path, operation, data, wrapTtlSeconds })
  const decision = allowedOf(ask(head.path))
  if (!request.head.path.endsWith('/') || !isSlashIgnored(request)) return decision
  // It means the same without the slash: a rule that denies the one must not be passed by writing the other.
  const bare = allowedOf(ask(head.path.slice(0, -1)))
  const mfaMethods = [...decision.mfaMethods, ...bare.mfaMethods]
  return { ...decision, sudo: decision.sudo && bare.sudo, mfaMethods }
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
