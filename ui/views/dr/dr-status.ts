/** The status of DR replication. */
import { ANY_STATE } from '../../api/any-state.ts'
import { secrets, sendJson } from '../../api/client.ts'
import { counted } from '../../components/plural.ts'

export const DR = 'sys/replication/dr'

/** A secondary in the status of its primary, or the primary in the status of a secondary. Times are strings, as stock clients decode them. */
export interface Peer {
  readonly node_id?: string
  readonly api_address: string
  readonly cluster_address: string
  readonly connection_status: string
  readonly clock_skew_ms: string
  readonly last_heartbeat: string
  readonly last_heartbeat_duration_ms: string
  readonly replication_primary_canary_age_ms: string
  readonly disconnected_seconds?: number
  readonly disconnect_reason?: string
  readonly last_acknowledged_wal?: number
  readonly lag_entries?: number
  readonly lag_seconds?: number
  readonly is_whole?: boolean
  readonly authenticated?: boolean
  readonly sealed?: boolean | null
}

export interface DrStatus {
  readonly mode: string
  readonly state?: string
  readonly cluster_id?: string
  readonly epoch?: number
  readonly position?: number
  readonly merkle_root?: string
  readonly sync?: string
  readonly corrupted_merkle_tree?: boolean
  readonly conflict_report?: string
  readonly warnings?: readonly string[]
  readonly fence_reason?: string
  readonly fence_detail?: string
  readonly fence_notice?: string
  /** API address of the new primary. */
  readonly replaced_by?: string
  /** ID of the secondary that was promoted, or that reported the promotion. */
  readonly fenced_by?: string
  readonly known_secondaries?: readonly string[]
  readonly secondaries?: readonly Peer[]
  readonly primaries?: readonly Peer[]
  readonly primary_cluster_addr?: string
  readonly secondary_id?: string
  readonly lag_entries?: number | null
  readonly lag_seconds?: number | null
  readonly trouble?: string
  readonly merkle_sync_progress?: { readonly sync_total_keys: number; readonly sync_progress: number }
}

export interface Health {
  readonly sealed: boolean
  readonly version: string
}

export interface DrReport {
  readonly status: DrStatus
  readonly health: Health
  readonly readAtMs: number
}

export async function readDrStatus(signal?: AbortSignal): Promise<DrStatus> {
  return (await secrets<DrStatus>(`${DR}/status`, { signal })).data
}

export async function readReport(signal?: AbortSignal): Promise<DrReport> {
  const [status, health] = await Promise.all([
    readDrStatus(signal),
    sendJson<{ sealed?: boolean; outpost_version?: string }>('/v1/sys/health', { query: ANY_STATE, signal }),
  ])
  const version = health.outpost_version ?? ''
  return { status, health: { sealed: health.sealed === true, version }, readAtMs: Date.now() }
}

/** The secondaries of a primary, or the primary of a secondary. */
export function peersOf({ primaries, secondaries }: DrStatus): readonly Peer[] {
  return secondaries ?? primaries ?? []
}

export function isConnected({ connection_status: status }: Peer): boolean {
  return status === 'connected'
}

export function isSecondary({ mode }: DrStatus): boolean {
  return mode === 'secondary' || mode === 'bootstrapping'
}

/** A primary that was demoted, and has not joined another one. */
export function isDemoted(status: DrStatus): boolean {
  return isSecondary(status) && peersOf(status).length === 0
}

/** A primary that serves nothing: it was replaced, or it is isolated. */
export function isFenced({ mode, state }: DrStatus): boolean {
  return mode === 'primary' && state === 'fenced'
}

/** Another cluster was promoted in place of this fenced primary. */
export function isReplaced(status: DrStatus): boolean {
  return isFenced(status) && ((status.replaced_by ?? '') !== '' || status.fence_reason === 'replaced')
}

export function entriesText(count: number): string {
  return counted(count, 'entry', 'entries')
}

/** Milliseconds below one second, whole seconds, from a minute on minutes: `35 ms`, `-12 s`, `5m 20s`. */
export function shortDuration(ms: number): string {
  const size = Math.abs(ms)
  if (size < 1000) return `${Math.round(ms)} ms`
  const sign = ms < 0 ? '-' : ''
  const seconds = Math.round(size / 1000)
  if (seconds < 60) return `${sign}${seconds} s`
  if (seconds < 3600) return `${sign}${Math.floor(seconds / 60)}m ${seconds % 60}s`
  if (seconds < 86_400) return `${sign}${Math.floor(seconds / 3600)}h ${Math.floor(seconds / 60) % 60}m`
  return `${sign}${Math.floor(seconds / 86_400)}d ${Math.floor(seconds / 3600) % 24}h`
}

/** `http` and `https` only: the address is a text of another server. */
export function webAddress(address: string): string | undefined {
  const url = URL.parse(address)
  return url && /^https?:$/.test(url.protocol) ? `${url.origin}/ui/dr` : undefined
}
