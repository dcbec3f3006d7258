/** The members of a highly available core as its endpoints list them. */
import { isReporting, type MemberState } from '../../ha/lease/lease.ts'
import type { HaMember } from '../../secrets/ha-endpoints/ha-side.ts'

interface ListedBy {
  /** Newest row of the active server. */
  readonly activeRow: number
  /** ID of the server that holds the lease. */
  readonly holder: string | undefined
  readonly own: string | undefined
}

export function memberOf(
  { apiAddress, atMs, name, row, serverId, state, version }: MemberState,
  { activeRow, holder, own }: ListedBy,
): HaMember {
  // The lease says which one is active; a report may be two seconds old, or the last one of a server that was killed.
  const reported = state === 'active' && serverId !== holder ? 'standby' : state
  const current = serverId === holder && state === 'standby' ? 'active' : reported
  const role = isReporting({ atMs }, Date.now()) ? current : 'lost'
  const lag = Math.max(0, activeRow - row)
  return { name, serverId, apiAddress, version, role, position: row, lag, lastSeenMs: atMs, isSelf: serverId === own }
}
