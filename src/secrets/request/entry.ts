/** Who calls: the token of a request is looked at before anything else of it. */
import { type Path, Rejection } from '../../engines/framework/engine.ts'
import type { Call } from '../../platform/operation.ts'
import type { Core, Entry } from './request-states.ts'

/** Who calls, and whether policies are asked. Throws a Rejection for a caller who is not let in at all. */
export function admission(core: Core, path: Path | undefined, call: Call): Entry {
  const nobody = { admitted: core.nobody, isOpen: true }
  // While nothing can be read nobody can be told apart, and only what is meant for that state answers.
  if (!core.isActive || path?.unauthenticated) return nobody
  if (path?.tokenOptional) {
    return call.token === undefined ? nobody : { admitted: core.admit(call.token, call.remote), isOpen: true }
  }
  const { withoutToken } = path ?? {}
  if (withoutToken && call.token === undefined && !withoutToken.isAllowed()) {
    throw new Rejection(405, withoutToken.refusal)
  }
  try {
    if (!withoutToken || call.token !== undefined)
      return { admitted: core.admit(call.token, call.remote), isOpen: false }
  } catch (error) {
    // A client that sends a token which has expired is let in as one without.
    if (!withoutToken?.isAllowed() || !(error instanceof Rejection)) throw error
  }
  return nobody
}
