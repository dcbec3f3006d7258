/** Metrics and readiness check of replication, from the last known status. */
import type { Check, CheckResult } from '../../telemetry/readiness.ts'
import { type Family, single } from '../../telemetry/metric.ts'
import type { MetricName } from '../../telemetry/metric-docs.ts'
import { SKEW_WARNING_MS } from '../../cluster/trust/clock-skews.ts'
import { noticeWarning } from '../../dr/notice-warning.ts'
import { clockWarning } from './clock-warning.ts'
import type { ReplicationPart } from '../modules/dr.ts'

type Status = Readonly<Record<string, unknown>>

const FENCE_REASONS = ['isolated', 'replaced'] as const
/** A fenced primary is not `primary`: after a failover two servers would have that role. */
const ROLES = ['disabled', 'primary', 'secondary', 'fenced'] as const

/** The secondaries of a primary, or the primary of a secondary. */
function otherSide({ primaries, secondaries }: Status): readonly Status[] {
  const rows = secondaries ?? primaries
  return Array.isArray(rows) ? rows.filter((row): row is Status => typeof row === 'object' && row !== null) : []
}

function numberIn(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : 0
}

/** The largest lag in seconds. */
function lagSeconds(status: Status): number {
  return Math.max(numberIn(status['lag_seconds']), ...otherSide(status).map((row) => numberIn(row['lag_seconds'])))
}

/**
 * True for a secondary without contact to its primary since its start: 0 would mean that it is up to date. Also true for a
 * replaced primary: nothing follows it.
 */
function isLagUnknown(status: Status): boolean {
  return status['lag_seconds'] === null || isReplaced(status)
}

function isReplaced(status: Status): boolean {
  return status['fence_reason'] === 'replaced'
}

/** Names of the catalog without a prefix that they share. */
type NameBelow<Prefix extends string> = MetricName extends infer Name
  ? Name extends `${Prefix}${infer Rest}`
    ? Rest
    : never
  : never
type ReplicationName = NameBelow<'outpost.replication.'>

function gauge(name: ReplicationName, help: string, value: number): Family {
  return single('gauge', `outpost.replication.${name}`, help, value)
}

function counter(name: ReplicationName, help: string, value: number): Family {
  return single('counter', `outpost.replication.${name}`, help, value)
}

/** Sum over the rows of the other side. */
function sumOf(status: Status, member: string): number {
  return otherSide(status).reduce((sum, row) => sum + numberIn(row[member]), 0)
}

export function replicationFamilies({ last, mode }: Pick<ReplicationPart, 'last' | 'mode'>): Family[] {
  const connectedRows = isReplaced(last) ? [] : otherSide(last).filter(isConnected)
  const connected = connectedRows.length
  const entries = numberIn(last['lag_entries'])
  const isFenced = last['state'] === 'fenced'
  const current = isFenced ? 'fenced' : mode
  return [
    {
      name: 'outpost.replication.role',
      kind: 'gauge',
      help: 'DR role of this cluster: 1 for the current role, else 0.',
      points: ROLES.map((role) => ({ labels: { role }, value: Number(role === current) })),
    },
    gauge('connected', 'Connected secondaries; on a secondary 1 if its primary is connected.', connected),
    ...namedFamilies(last),
    ...(isLagUnknown(last)
      ? []
      : [
          gauge(
            'lag_entries',
            'Entries that the slowest secondary has not acknowledged, or that this secondary has not applied.',
            entries,
          ),
          gauge(
            'lag_seconds',
            'Time since the slowest secondary, or this one, was last up to date; grows while disconnected.',
            lagSeconds(last),
          ),
        ]),
    gauge(
      'sync_degraded',
      '1 while commits do not wait for a disconnected secondary.',
      last['sync'] === 'degraded' ? 1 : 0,
    ),
    gauge(
      'notice_owed',
      '1 while a replaced primary has not acknowledged the notice of the promotion.',
      Number(last['fence_notice'] === 'owed'),
    ),
    gauge('fenced', '1 while this primary is fenced.', Number(isFenced)),
    {
      name: 'outpost.replication.fence_reason',
      kind: 'gauge',
      help: 'Reason of the fence: 1 for the current reason, else 0.',
      points: FENCE_REASONS.map((reason) => ({ labels: { reason }, value: Number(last['fence_reason'] === reason) })),
    },
    gauge(
      'unauthenticated',
      'Connected secondaries without a valid proof of membership (sealed ones included); commits do not wait for them.',
      connectedRows.filter((row) => row['authenticated'] === false).length,
    ),
    counter(
      'duplicate_connections',
      'Connections with the certificate of a connected secondary.',
      sumOf(last, 'duplicate_connections'),
    ),
    counter('rejected_proofs', 'Missing or invalid proofs of membership.', sumOf(last, 'rejected_proofs')),
    gauge('epoch', 'Epoch of the replication log; rises with each promotion.', numberIn(last['epoch'])),
  ]
}

/** A series for each expected secondary, also while it is disconnected. */
function namedFamilies(status: Status): Family[] {
  const rows = secondariesOf(status)
  const family = (
    name: NameBelow<'outpost.replication.secondary_'>,
    help: string,
    read: (row: Status) => number,
  ): Family => ({
    name: `outpost.replication.secondary_${name}`,
    kind: 'gauge',
    help,
    points: rows.map((row) => ({ labels: { secondary: String(row['node_id']) }, value: read(row) })),
  })
  return [
    gauge('expected', 'Expected secondaries.', rows.length),
    family('connected', '1 if this secondary is connected, else 0.', (row) => Number(isConnected(row))),
    family(
      'clock_skew_seconds',
      'Clock of this secondary minus the clock of this primary.',
      (row) => skewMs(row) / 1000,
    ),
    family('lag_seconds', 'Time since this secondary was last up to date.', (row) => numberIn(row['lag_seconds'])),
  ]
}

/** None without replication. */
export function replicationChecks(part: ReplicationPart | undefined, isSealed: () => boolean): Check[] {
  if (!part || part.mode === 'disabled') return []
  return [
    {
      name: 'replication',
      now: () => (part.mode === 'primary' ? primaryState(part.last) : secondaryState(part.last)),
      warnings: () => replicationWarnings(part, isSealed()),
    },
  ]
}

function primaryState(status: Status): CheckResult {
  if (status['state'] === 'fenced') {
    const why = `DR primary, fenced: ${String(status['fence_detail'])}`
    const next = isReplaced(status) ? ['next: outpost operator dr demote'] : []
    return { ok: false, reason: [why, ...missingSecondaries(status), ...next].join(', ') }
  }
  const rows = secondariesOf(status)
  const connected = rows.filter(isConnected).length
  const degraded = status['sync'] === 'degraded' ? ', commits do not wait for them' : ''
  const missing = missingSecondaries(status).map((text) => `, ${text}`)
  const reason = `DR primary, ${connected} of ${rows.length} secondaries connected${missing.join('')}${degraded}`
  return { ok: true, reason }
}

/** None of a replaced primary: one of them is its successor, the others are to join that one. */
function secondariesOf(status: Status): readonly Status[] {
  return status['mode'] === 'primary' && !isReplaced(status) ? otherSide(status) : []
}

function isConnected(row: Status): boolean {
  return row['connection_status'] === 'connected'
}

/** The status has it as text, as stock clients expect. */
function skewMs(row: Status): number {
  const skew = Number(row['clock_skew_ms'])
  return Number.isFinite(skew) ? skew : 0
}

/** Name, duration and reason of each disconnected secondary. */
function missingSecondaries(status: Status): string[] {
  return secondariesOf(status)
    .filter((row) => !isConnected(row))
    .map((row) => {
      const why = typeof row['disconnect_reason'] === 'string' ? row['disconnect_reason'] : ''
      const seconds = numberIn(row['disconnected_seconds'])
      return `secondary "${String(row['node_id'])}" disconnected for ${seconds} s${why === '' ? '' : ` (${why})`}`
    })
}

/** A sealed secondary cannot be promoted, commits do not wait for it, and it does not count for `fence_after`. */
function unauthenticatedSecondaries(status: Status): string[] {
  return secondariesOf(status)
    .filter((row) => isConnected(row) && row['is_whole'] === true && row['authenticated'] === false)
    .map((row) => `DR secondary "${String(row['node_id'])}" is connected and not authenticated (sealed?): unseal it`)
}

/** Conditions that would make a failover lose writes or fail. */
export function replicationWarnings(
  part: Pick<ReplicationPart, 'last' | 'mode'> | undefined,
  isSealed: boolean,
): string[] {
  if (part?.mode === 'secondary') return primaryClockWarnings(part.last)
  if (part?.mode !== 'primary') return []
  const skewed = secondariesOf(part.last)
    .filter(isSkewed)
    .map((row) => clockWarning(`DR secondary "${String(row['node_id'])}"`, skewMs(row)))
  const incomplete = [
    // While a cluster claims to have replaced this one, it is probably a missing secondary.
    ...(hasTrouble(part.last) ? [] : missingSecondaries(part.last)).map(
      (text) => `DR ${text}: a failover to it would lose later writes`,
    ),
    // A sealed primary cannot verify a secondary.
    ...(isSealed ? [] : unauthenticatedSecondaries(part.last)),
  ]
  return [
    ...claimOrNotice(part.last),
    ...incomplete,
    // The other warnings name the secondary that commits do not wait for.
    ...(incomplete.length === 0 ? degradedWarnings(part.last) : []),
    ...skewed,
  ]
}

function degradedWarnings(status: Status): string[] {
  if (status['sync'] !== 'degraded') return []
  const degraded = 'synchronous replication is degraded'
  return secondariesOf(status).length === 0
    ? [`${degraded}, there is no DR secondary: commits are acknowledged without one`]
    : [`${degraded}: commits are acknowledged without the DR secondaries until all have caught up`]
}

/** On a secondary: its own clock and that of its primary. */
function primaryClockWarnings(status: Status): string[] {
  return otherSide(status)
    .filter(isSkewed)
    .map((row) => clockWarning('this host', 0 - skewMs(row), `the DR primary at ${String(row['api_address'])}`))
}

function isSkewed(row: Status): boolean {
  return Math.abs(skewMs(row)) > SKEW_WARNING_MS
}

/** Another cluster claims to be the primary, or this one is and the old primary may still serve. */
function claimOrNotice({ fence_notice_address: address, trouble }: Status): string[] {
  return [
    ...(hasTrouble({ trouble }) ? [String(trouble)] : []),
    ...(typeof address === 'string' && address !== '' ? [noticeWarning(address)] : []),
  ]
}

function hasTrouble({ trouble }: Status): boolean {
  return typeof trouble === 'string' && trouble !== ''
}

function secondaryState(status: Status): CheckResult {
  const lag = `${numberIn(status['lag_entries'])} changes behind`
  const sealed = otherSide(status).some((row) => row['sealed'] === true) ? ', its primary is sealed' : ''
  if (otherSide(status).length === 0) {
    return { ok: false, reason: 'DR secondary without a primary, next: outpost operator dr join' }
  }
  if (status['state'] === 'stream-wals') return { ok: true, reason: `DR secondary, ${lag}${sealed}` }
  const trouble = typeof status['trouble'] === 'string' && status['trouble'] !== '' ? `: ${status['trouble']}` : ''
  return { ok: false, reason: `DR secondary, not following its primary (${String(status['state'])})${trouble}` }
}
