/** Whether a server of a highly available core can serve, and why not: for `sys/health` and for readiness. */
import type { HaSide } from './ha-side.ts'

/** Longer than any takeover, so load balancers keep the servers meanwhile: their requests are held until a server is active. */
export const TAKEOVER_MAX_MS = 15_000

type HaState = Pick<HaSide, 'active' | 'trouble'>

/** Since when a server has known no active one, by the monotonic clock. */
const inactiveSince = new WeakMap<HaState, number>()

/** Undefined for a server that can serve requests or forward them. An absence counts from the first call that notices it. */
export function haFault(ha: HaState, nowMs = performance.now()): string | undefined {
  const sinceMs = ha.active ? undefined : (inactiveSince.get(ha) ?? nowMs)
  if (sinceMs === undefined) inactiveSince.delete(ha)
  else inactiveSince.set(ha, sinceMs)
  if (ha.trouble !== undefined) return ha.trouble
  if (sinceMs === undefined || nowMs - sinceMs < TAKEOVER_MAX_MS) return undefined
  const seconds = Math.floor((nowMs - sinceMs) / 1000)
  return `no server has been active for ${seconds} s: check that the other servers are unsealed and that a majority of the NATS servers runs`
}
