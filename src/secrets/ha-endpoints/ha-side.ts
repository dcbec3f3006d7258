/**
 * The interface between the endpoints of high availability and the module `ha`. That module knows no tokens and no policies, this
 * one no lease and no stream; the daemon connects both.
 */
export type HaRole = 'active' | 'standby'

/** The active server according to the lease. */
export interface HaActive {
  readonly name: string
  readonly apiAddress: string
  readonly clusterAddress: string
  readonly activeSinceMs: number
  readonly isSelf: boolean
}

export interface HaMember {
  readonly name: string
  readonly serverId: string
  readonly apiAddress: string
  readonly version: string
  /** `lost`: no report for 10 s. */
  readonly role: HaRole | 'sealed' | 'uninitialized' | 'lost'
  /** Sequence of its newest applied row of the log. */
  readonly position: number
  /** Rows behind the active server's. */
  readonly lag: number
  /** Since 1970. */
  readonly lastSeenMs: number
  readonly isSelf: boolean
}

export interface HaSide {
  readonly role: HaRole
  /** How often this server became active since its start. */
  readonly takeovers: number
  /** Undefined while no server is active. */
  readonly active: HaActive | undefined
  /** Positions of the commit stream: newest known message and newest applied one. */
  readonly committed: number
  readonly applied: number
  /** Why this server cannot become active or follow the stream, such as without NATS or after a failed takeover; undefined when healthy. */
  readonly trouble: string | undefined
  /** Other servers without a report for 10 s, by name. Empty while this server cannot read the reports. */
  readonly lostMembers: readonly Pick<HaMember, 'name' | 'lastSeenMs'>[]
  /** Other servers that cannot take over, because they are sealed. */
  readonly sealedMembers: readonly Pick<HaMember, 'name'>[]
  /** NATS servers that do not store the newest messages of the commit stream. Empty while that is not known. */
  readonly missingReplicas: readonly { readonly server: string; readonly reason: string }[]
  members(): Promise<readonly HaMember[]>
  /**
   * Requests a step-down, which happens before this request is answered (`ha/ha-routing.ts`). Rejects with a Refusal when this server is not
   * active.
   */
  stepDown(): Promise<void>
  /** Removes a lost member. Rejects with a Refusal for an unknown member, for one that is alive, and while NATS does not respond. */
  removeMember(name: string): Promise<void>
}

/** Longer than any takeover, so load balancers keep the servers meanwhile: their requests are held until a server is active. */
export const TAKEOVER_MAX_MS = 15_000

type HaState = Pick<HaSide, 'active' | 'trouble'>

/** Since when a server has known no active one, by the monotonic clock. */
const inactiveSince = new WeakMap<HaState, number>()

/** Why a server cannot serve, for `sys/health` and readiness. Undefined for a server that can serve requests or forward them. An absence counts from the first call that notices it. */
export function haFault(ha: HaState, nowMs = performance.now()): string | undefined {
  const sinceMs = ha.active ? undefined : (inactiveSince.get(ha) ?? nowMs)
  if (sinceMs === undefined) inactiveSince.delete(ha)
  else inactiveSince.set(ha, sinceMs)
  if (ha.trouble !== undefined) return ha.trouble
  if (sinceMs === undefined || nowMs - sinceMs < TAKEOVER_MAX_MS) return undefined
  const seconds = Math.floor((nowMs - sinceMs) / 1000)
  return `no server has been active for ${seconds} s: check that the other servers are unsealed and that a majority of the NATS servers runs`
}
