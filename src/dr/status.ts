/** What `sys/replication/dr/status` tells, in the types that stock clients decode: numbers of times are strings. */
import { fenceStateOf } from './primary/fence-state.ts'
import type { Heartbeat } from './primary/presence.ts'
import type { Primary } from './primary/primary.ts'
import type { Secondary } from './secondary/secondary.ts'
import type { ReplicationParts } from './state/parts.ts'
import type { State } from './state/state.ts'

export type DrStatus = Readonly<Record<string, unknown>>

/** The zero time of Go in seconds: never. */
const NEVER = '-62135596800'

interface StatusParts {
  readonly parts: Pick<ReplicationParts, 'store' | 'settings'>
  readonly state: State
  readonly root: Buffer
  readonly reindex: ReindexProgress | undefined
}

export interface ReindexProgress {
  readonly done: number
  readonly total: number
}

function commonOf({ parts, state, root, reindex }: StatusParts) {
  const { store } = parts
  const position = store.position()
  return {
    cluster_id: state.setId,
    corrupted_merkle_tree: state.isTreeCorrupted,
    last_corruption_check_epoch: state.lastCheckMs === undefined ? NEVER : seconds(state.lastCheckMs),
    last_reindex_epoch: seconds(state.lastReindexMs),
    merkle_root: root.toString('hex'),
    ssct_generation_counter: 0,
    epoch: store.epoch,
    position: position.sequence,
    ...(reindex && { reindex_progress: { ...reindex } }),
    conflict_reports: state.conflicts,
    conflict_report: state.conflicts.at(-1) ?? '',
  }
}

/** The same as the status says, without the tree. */
export function primaryBrief(primary: Primary) {
  return { mode: 'primary', sync: primary.sync.state }
}

export function secondaryBrief({ parts, state }: Pick<StatusParts, 'parts' | 'state'>, secondary: Secondary) {
  const isBootstrapping = state.upstream !== undefined && !parts.store.isWhole
  return { mode: isBootstrapping ? 'bootstrapping' : 'secondary', sync: secondary.lastBeat?.sync ?? 'off' }
}

interface PrimaryStatusParts extends StatusParts {
  readonly warnings: readonly string[]
}

export function primaryStatus(about: PrimaryStatusParts, primary: Primary): DrStatus {
  const { parts, state } = about
  const { store } = parts
  const head = store.position().sequence
  const fence = fenceStateOf(about, primary)
  const secondaries = primary.active.map((one) => {
    const follower = primary.followers.get(one.id)
    const acknowledged = follower?.acknowledged ?? one.acknowledged ?? 0
    const isConnected = primary.presence.isConnected(one.id, follower)
    return {
      node_id: one.id,
      api_address: one.api,
      cluster_address: withScheme(one.cluster),
      connection_status: isConnected ? 'connected' : 'disconnected',
      disconnected_seconds: isConnected ? 0 : Math.round(primary.presence.absentSeconds(one.id)),
      disconnect_reason: isConnected ? '' : primary.presence.reason(one.id),
      ...heartbeatOf(follower ?? primary.presence.lastHeartbeat(one.id)),
      last_acknowledged_wal: acknowledged,
      lag_entries: Math.max(0, head - acknowledged),
      // Grows while it is disconnected, also when nothing is committed.
      lag_seconds: Number(primary.presence.lagSeconds(one, follower).toFixed(3)),
      is_whole: follower?.isWhole ?? one.wasWhole,
      // False also for a sealed secondary: synchronous commits do not wait for it.
      authenticated: follower?.isAuthenticated ?? false,
      duplicate_connections: primary.alarms.count('duplicate', one.id),
      rejected_proofs: primary.alarms.count('proof', one.id),
    }
  })
  const lags = secondaries.map(({ lag_entries: entries }) => entries)
  return {
    ...commonOf(about),
    ...primaryBrief(primary),
    state: store.role === 'own' ? 'running' : 'fenced',
    warnings: about.warnings,
    fence_reason: fence?.reason ?? '',
    fence_detail: fence?.text ?? '',
    fenced_by: state.deposed?.provenBy ?? state.deposed?.heir ?? '',
    known_secondaries: state.secondaries.map(({ id }) => id),
    last_dr_wal: head,
    last_wal: head,
    primary_cluster_addr: state.primaryClusterAddr,
    secondaries,
    lag_entries: Math.max(0, ...lags),
    fence_notice: state.notice ? 'owed' : '',
    replaced_by: state.deposed ? state.deposed.api || state.deposed.addresses.join(', ') : '',
  }
}

export function secondaryStatus(about: StatusParts, secondary: Secondary): DrStatus {
  const { parts, state } = about
  const { upstream } = state
  const { lastBeat, progress } = secondary
  const known = upstream ? [...new Set([upstream.address, ...upstream.known])].map(withScheme) : []
  const primaries = upstream && {
    api_address: lastBeat?.api ?? upstream.api,
    cluster_address: withScheme(upstream.address),
    connection_status: secondary.isConnected ? 'connected' : 'disconnected',
    /** Unknown while it is not heard. */
    sealed: secondary.isConnected ? (lastBeat?.isSealed ?? null) : null,
    // The primary measures ours against its own.
    clock_skew_ms: String(lastBeat ? 0 - lastBeat.skewMs : 0),
    last_heartbeat: lastBeat ? rfc3339(lastBeat.heardAtMs) : '',
    last_heartbeat_duration_ms: String(lastBeat?.durationMs ?? 0),
    replication_primary_canary_age_ms: String(lastBeat ? Math.round(performance.now() - lastBeat.monotonicMs) : 0),
  }
  return {
    ...commonOf(about),
    ...secondaryBrief(about, secondary),
    state: secondary.phase,
    connection_state: secondary.connectionState,
    known_primary_cluster_addrs: known,
    last_remote_wal: parts.store.position().sequence,
    last_start: secondary.startedAtMs === 0 ? '' : rfc3339(secondary.startedAtMs),
    primaries: primaries ? [primaries] : [],
    primary_cluster_addr: upstream ? withScheme(upstream.address) : '',
    secondary_id: upstream?.id ?? '',
    lag_entries: secondary.lagEntries ?? null,
    lag_seconds: secondary.lagSeconds ?? null,
    trouble: secondary.trouble ?? '',
    ...(progress && { merkle_sync_progress: { sync_total_keys: progress.found, sync_progress: progress.done } }),
  }
}

/** As it was measured last, also of a secondary that has left since the start. */
function heartbeatOf(heartbeat: Heartbeat | undefined) {
  return {
    clock_skew_ms: String(heartbeat?.skewMs ?? 0),
    last_heartbeat: heartbeat?.heartbeatAtMs === undefined ? '' : rfc3339(heartbeat.heartbeatAtMs),
    last_heartbeat_duration_ms: String(heartbeat?.durationMs ?? 0),
    replication_primary_canary_age_ms: String(heartbeat?.heartbeatAgeMs ?? 0),
  }
}

function seconds(ms: number): string {
  return String(Math.floor(ms / 1000))
}

/** To the second. */
function rfc3339(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`
}

function withScheme(address: string): string {
  return address === '' || address.includes('://') ? address : `https://${address}`
}
