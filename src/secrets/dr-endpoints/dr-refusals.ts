/**
 * What a DR secondary and a fenced primary refuse: every path, except those whose declaration says otherwise (`onSecondary`,
 * `whileFenced` and `whileSealed` of `PathDeclaration`).
 */
import { type Path, Rejection } from '../../engines/framework/engine.ts'
import { Refusal } from '../../platform/errors.ts'
import type { DrFence, DrReplication } from './dr-replication.ts'

/** `path` is undefined for a path without an endpoint. `isRead`: the request changes nothing by its verb. */
export function isServedOnSecondary(path: Path | undefined, isRead: boolean): boolean {
  const { onSecondary = false } = path ?? {}
  return onSecondary === 'read' ? isRead : onSecondary
}

export function isServedWhileFenced(path: Path | undefined): boolean {
  return path?.whileFenced === true || path?.whileSealed === true || Boolean(path?.onSecondary)
}

/** For a request that a fenced primary does not serve, because its data may be stale. */
export function fencedPrimary({ reason, text }: DrFence): Refusal {
  const next =
    reason === 'replaced' ? 'send requests there' : 'it serves again when a secondary connects and is unsealed'
  return new Refusal('unavailable', `this DR primary is fenced and serves no requests: ${text}; ${next}`)
}

/** Load balancers, monitoring tools and stock commands match this text. */
const DISABLED_ON_SECONDARY = 'path disabled in replication DR secondary mode'

/** For a request that a secondary does not serve. */
export function disabledOnSecondary({ primaryAddress }: Pick<DrReplication, 'primaryAddress'>): Rejection {
  const where = primaryAddress ? [`send the request to the primary, ${primaryAddress}`] : []
  return new Rejection(400, [DISABLED_ON_SECONDARY, ...where])
}
