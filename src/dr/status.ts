/** The response of `sys/replication/dr/status`, in the types that stock clients decode: times in seconds are strings. */
import type { TreeReport } from '../storage/store/replica.ts'
import { noticeWarning } from './notice-warning.ts'
import { fenceStateOf } from './primary/fencing.ts'
import type { Primary } from './primary/primary.ts'
import type { HeartbeatStatus } from './primary/secondary-presence.ts'
import type { Secondary } from './secondary/secondary.ts'
import type { ReplicationContext } from './state/replication-context.ts'
import type { ReplicationRecord } from './state/replication-state.ts'

export type DrStatus = Readonly<Record<string, unknown>>

/** The zero time of Go in seconds: never. */
const NEVER = '-62135596800'

interface StatusContext {
  readonly context: Pick<ReplicationContext, 'store' | 'settings'>
  readonly state: ReplicationRecord
  readonly root: Buffer
  readonly reindex: ReindexProgress | undefined
}

export interface ReindexProgress {
  readonly done: number
  readonly total: number
}

function commonOf({ context, state, root, reindex }: StatusContext) {
  const { store } = context
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

/** The fields of the status that need no tree. */
export function primaryBrief(primary: Primary) {
  return { mode: 'primary', sync: primary.sync.state }
}

export function secondaryBrief({ context, state }: Pick<StatusContext, 'context' | 'state'>, secondary: Secondary) {
  const isBootstrapping = state.upstream !== undefined && !context.store.isWhole
  return { mode: isBootstrapping ? 'bootstrapping' : 'secondary', sync: secondary.lastHeartbeat?.sync ?? 'off' }
}

interface PrimaryStatusContext extends StatusContext {
  readonly warnings: readonly string[]
}

export function primaryStatus(about: PrimaryStatusContext, primary: Primary): DrStatus {
  const { context, state } = about
  const { store } = context
  const head = store.position().sequence
  const fence = fenceStateOf(about, primary)
  const secondaries = primary.active.map((one) => {
    const connected = primary.connected.get(one.id)
    const acknowledged = connected?.acknowledged ?? one.acknowledged ?? 0
    const isConnected = primary.presence.isConnected(one.id, connected)
    return {
      node_id: one.id,
      api_address: one.api,
      cluster_address: withScheme(one.cluster),
      connection_status: isConnected ? 'connected' : 'disconnected',
      disconnected_seconds: isConnected ? 0 : Math.round(primary.presence.absentSeconds(one.id)),
      disconnect_reason: isConnected ? '' : primary.presence.disconnectReason(one.id),
      ...heartbeatOf(connected ?? primary.presence.lastHeartbeat(one.id)),
      last_acknowledged_wal: acknowledged,
      lag_entries: Math.max(0, head - acknowledged),
      // Grows while it is disconnected, also when nothing is committed.
      lag_seconds: Number(primary.presence.lagSeconds(one, connected).toFixed(3)),
      is_whole: connected?.isWhole ?? one.wasWhole,
      // False also for a sealed secondary: synchronous commits do not wait for it.
      authenticated: connected?.isAuthenticated ?? false,
      duplicate_connections: primary.alarms.count('duplicate', one.id),
      rejected_proofs: primary.alarms.count('proof', one.id),
    }
  })
  const lags = secondaries.map(({ lag_entries: entries }) => entries)
  return {
    ...commonOf(about),
    ...primaryBrief(primary),
    state: store.role === 'own' ? 'running' : 'fenced',
    trouble: state.deposed ? '' : (primary.claims.unverified ?? ''),
    warnings: [...about.warnings, ...noticeWarnings(state)],
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
    fence_notice_address: replacedAddress(state),
    replaced_by: state.deposed ? state.deposed.api || state.deposed.addresses.join(', ') : '',
  }
}

/** Address of the replaced primary that has not acknowledged the notice; empty without one. */
function replacedAddress({ notice }: ReplicationRecord): string {
  return notice ? notice.upstream.api || notice.upstream.address : ''
}

function noticeWarnings(state: ReplicationRecord): readonly string[] {
  return state.notice ? [noticeWarning(replacedAddress(state))] : []
}

export function secondaryStatus(about: StatusContext, secondary: Secondary): DrStatus {
  const { context, state } = about
  const { upstream } = state
  const { lastHeartbeat, progress } = secondary
  const known = upstream ? [...new Set([upstream.address, ...upstream.known])].map(withScheme) : []
  const primaries = upstream && {
    api_address: lastHeartbeat?.api ?? upstream.api,
    cluster_address: withScheme(upstream.address),
    connection_status: secondary.isConnected ? 'connected' : 'disconnected',
    /** Null while disconnected. */
    sealed: secondary.isConnected ? (lastHeartbeat?.isSealed ?? null) : null,
    // The primary measures the clock of the secondary against its own.
    clock_skew_ms: String(lastHeartbeat ? 0 - lastHeartbeat.skewMs : 0),
    last_heartbeat: lastHeartbeat ? rfc3339(lastHeartbeat.receivedAtMs) : '',
    last_heartbeat_duration_ms: String(lastHeartbeat?.durationMs ?? 0),
    replication_primary_canary_age_ms: String(
      lastHeartbeat ? Math.round(performance.now() - lastHeartbeat.monotonicMs) : 0,
    ),
  }
  return {
    ...commonOf(about),
    ...secondaryBrief(about, secondary),
    state: secondary.phase,
    connection_state: secondary.connectionState,
    known_primary_cluster_addrs: known,
    last_remote_wal: context.store.position().sequence,
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

/** Last measurement, also of a secondary that disconnected since the start. */
function heartbeatOf(heartbeat: HeartbeatStatus | undefined) {
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

function rfc3339(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`
}

function withScheme(address: string): string {
  return address === '' || address.includes('://') ? address : `https://${address}`
}

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[?::1\]?)$/i
const WILDCARD = /^(?:0\.0\.0\.0|\[?::\]?)$/
const LISTEN_NEXT =
  'set addresses.cluster (or bind_addr) to an address of this host that secondaries reach, and restart this server'

/**
 * Warnings for a cluster address that secondaries on other hosts cannot reach. `announced`: the address in activation tokens.
 * `given`: primary_cluster_addr; empty if the configuration decides. `listenHost`: host of the cluster port.
 */
export function clusterAddressWarnings(announced: string, given: string, listenHost: string): readonly string[] {
  const host = hostOf(announced)
  const change =
    given === ''
      ? `${LISTEN_NEXT}; set advertise.cluster if secondaries use another address`
      : 'it was set with primary_cluster_addr: enable the primary again with an address that secondaries reach'
  if (LOOPBACK.test(host))
    return [
      `the cluster address ${announced} is on loopback and cannot be reached by a secondary on another host: ${change}`,
    ]
  if (WILDCARD.test(host)) {
    return [
      `the cluster address ${announced} is a wildcard and cannot be reached by a secondary on another host: set advertise.cluster to the address that secondaries use, and restart this server`,
    ]
  }
  if (!LOOPBACK.test(listenHost)) return []
  return [
    `the cluster port listens on ${listenHost} only, a secondary on another host reaches ${announced} only through a proxy on this host: ${LISTEN_NEXT}`,
  ]
}

/** Warnings for an API address, which activation tokens contain, that a secondary cannot use. */
export function apiAddressWarnings(announced: string): readonly string[] {
  if (!WILDCARD.test(hostOf(announced))) return []
  return [
    `the API address ${announced} is a wildcard and cannot be reached by a secondary on another host: set advertise.http to the address that secondaries use, and restart this server`,
  ]
}

function hostOf(address: string): string {
  return address.replace(/^https?:\/\//, '').replace(/:\d+\/?$/, '')
}

export type MerkleReport = ReturnType<typeof merkleReport>

/** The format of reference clients: pages and trees by number. */
export function merkleReport(report: TreeReport) {
  const { replicated, local } = report.trees
  return {
    merkle_corruption_report: {
      corrupted_root: report.isRootCorrupted,
      corrupted_tree_map: { '1': subtree(replicated, 'replicated'), '2': subtree(local, 'local') },
      last_corruption_check_epoch: new Date(report.checkedAtMs).toISOString(),
      damaged_entries: report.damagedCount,
      checked_entries: report.entries,
    },
  }
}

function subtree({ root, isRootCorrupted, pages }: TreeReport['trees']['local'], type: string) {
  const map = Object.fromEntries(
    [...pages].map(([page, { isCorrupted: corrupted, subpages }]) => [String(page), { corrupted, subpages }]),
  )
  return {
    corrupted_index_tuples_map: pages.size === 0 ? null : map,
    corrupted_subtree_root: isRootCorrupted,
    root_hash: root.toString('base64'),
    tree_type: type,
  }
}
