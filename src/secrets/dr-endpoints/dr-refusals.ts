/**
 * What a DR secondary and a fenced primary refuse: every path, except those whose declaration says otherwise (`onSecondary`,
 * `whileFenced` and `whileSealed` of `PathDeclaration`).
 */
import { type Path, Rejection } from '../../engines/framework/engine.ts'
import { Refusal } from '../../platform/errors.ts'
import type { DrFence, DrReplication } from './dr-side.ts'

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

type Primary = Pick<DrReplication, 'primaryAddress'>

/** For a request that a secondary does not serve. */
export function disabledOnSecondary(primary: Primary): Rejection {
  return new Rejection(400, [DISABLED_ON_SECONDARY, ...sendToPrimary(primary)])
}

/** For a request about hosts with a token of the core. */
export function noTokensOnSecondary(primary: Primary): Refusal {
  const text = 'this server is a DR secondary and cannot verify tokens of its primary'
  return new Refusal('unavailable', [text, ...sendToPrimary(primary)].join('; '))
}

function sendToPrimary({ primaryAddress }: Primary): string[] {
  return primaryAddress ? [`send the request to the primary, ${primaryAddress}`] : []
}
