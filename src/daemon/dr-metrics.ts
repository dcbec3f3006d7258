/** How replication stands, as figures and as a line of readiness: both from the status as it was last asked for. */
import type { Check, CheckResult } from '../telemetry/readiness.ts'
import { type Family, single } from '../telemetry/metric.ts'
import { clockWarning, SKEW_WARNING_MS } from './clock-warning.ts'
import type { ReplicationPart } from './dr.ts'

type Status = Readonly<Record<string, unknown>>

const FENCE_REASONS = ['isolated', 'replaced'] as const
const ROLES = ['disabled', 'primary', 'secondary'] as const

/** The secondaries of a primary; of a secondary, its primary. */
function otherSide({ primaries, secondaries }: Status): readonly Status[] {
  const rows = secondaries ?? primaries
  return Array.isArray(rows) ? rows.filter((row): row is Status => typeof row === 'object' && row !== null) : []
}

function numberIn(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : 0
}

/** Seconds that the side which is behind the most is behind. */
function lagSeconds(status: Status): number {
  return Math.max(numberIn(status['lag_seconds']), ...otherSide(status).map((row) => numberIn(row['lag_seconds'])))
}

/** Of a secondary that has not heard its primary since its start: 0 would say that it has everything. */
function isLagUnknown(status: Status): boolean {
  return status['lag_seconds'] === null
}

function gauge(name: string, help: string, value: number): Family {
  return single('gauge', `outpost.replication.${name}`, help, value)
}

function counter(name: string, help: string, value: number): Family {
  return single('counter', `outpost.replication.${name}`, help, value)
}

/** Over all rows of the other side. */
function sumOf(status: Status, member: string): number {
  return otherSide(status).reduce((sum, row) => sum + numberIn(row[member]), 0)
}

export function replicationFamilies({ last, mode }: Pick<ReplicationPart, 'last' | 'mode'>): Family[] {
  const connectedRows = otherSide(last).filter(isConnected)
  const connected = connectedRows.length
  const entries = numberIn(last['lag_entries'])
  const role = 'Role of this cluster in replication for disaster recovery: 1 for the one that it has.'
  return [
    {
      name: 'outpost.replication.role',
      kind: 'gauge',
      help: role,
      points: ROLES.map((each) => ({ labels: { role: each }, value: each === mode ? 1 : 0 })),
    },
    gauge('connected', 'Secondaries that are connected; on a secondary 1 while its primary is.', connected),
    ...namedFamilies(last),
    ...(isLagUnknown(last)
      ? []
      : [
          gauge(
            'lag_entries',
            'Changes that the slowest secondary has not acknowledged, or this one not applied.',
            entries,
          ),
          gauge(
            'lag_seconds',
            'Since the slowest secondary, or this one, last had everything; grows while it is disconnected.',
            lagSeconds(last),
          ),
        ]),
    gauge(
      'sync_degraded',
      '1 while commits do not wait for a secondary that is away.',
      last['sync'] === 'degraded' ? 1 : 0,
    ),
    gauge('fenced', '1 while this primary takes no writes.', last['state'] === 'fenced' ? 1 : 0),
    {
      name: 'outpost.replication.fence_reason',
      kind: 'gauge',
      help: 'Why this primary is fenced: 1 for the reason, 0 while it is not.',
      points: FENCE_REASONS.map((reason) => ({ labels: { reason }, value: Number(last['fence_reason'] === reason) })),
    },
    gauge(
      'unauthenticated',
      'Connected secondaries without a valid proof of membership, as sealed ones are; commits do not wait for them.',
      connectedRows.filter((row) => row['authenticated'] === false).length,
    ),
    counter(
      'duplicate_connections',
      'Connections with the certificate of a secondary that was connected already.',
      sumOf(last, 'duplicate_connections'),
    ),
    counter('rejected_proofs', 'Proofs of membership that were missing or not valid.', sumOf(last, 'rejected_proofs')),
    gauge('epoch', 'Rises with each promotion.', numberIn(last['epoch'])),
  ]
}

/** A series for each secondary that a primary expects: also while it is disconnected. */
function namedFamilies(status: Status): Family[] {
  const rows = secondariesOf(status)
  const family = (name: string, help: string, read: (row: Status) => number): Family => ({
    name: `outpost.replication.secondary_${name}`,
    kind: 'gauge',
    help,
    points: rows.map((row) => ({ labels: { secondary: String(row['node_id']) }, value: read(row) })),
  })
  return [
    gauge('expected', 'Secondaries that this primary expects to be connected.', rows.length),
    family('connected', '1 while this secondary is connected, 0 while it is not.', (row) => Number(isConnected(row))),
    family(
      'clock_skew_seconds',
      'Clock of this secondary minus the clock of this primary.',
      (row) => skewMs(row) / 1000,
    ),
    family('lag_seconds', 'Since this secondary last had everything.', (row) => numberIn(row['lag_seconds'])),
  ]
}

/** None where the cluster does not replicate. */
export function replicationChecks(part: ReplicationPart | undefined): Check[] {
  if (!part || part.mode === 'disabled') return []
  return [
    { name: 'replication', now: () => (part.mode === 'primary' ? primaryState(part.last) : secondaryState(part.last)) },
  ]
}

function primaryState(status: Status): CheckResult {
  if (status['state'] === 'fenced') {
    const why = `DR primary, fenced: ${String(status['fence_detail'])}`
    return { ok: false, reason: [why, ...missingSecondaries(status)].join(', ') }
  }
  const rows = secondariesOf(status)
  const connected = rows.filter(isConnected).length
  const degraded = status['sync'] === 'degraded' ? ', commits do not wait for them' : ''
  const missing = missingSecondaries(status).map((text) => `, ${text}`)
  const reason = `DR primary, ${connected} of ${rows.length} secondaries connected${missing.join('')}${degraded}`
  return { ok: true, reason }
}

function secondariesOf(status: Status): readonly Status[] {
  return status['mode'] === 'primary' ? otherSide(status) : []
}

function isConnected(row: Status): boolean {
  return row['connection_status'] === 'connected'
}

/** Status has it as text, as stock clients decode it. */
function skewMs(row: Status): number {
  const skew = Number(row['clock_skew_ms'])
  return Number.isFinite(skew) ? skew : 0
}

/** Of each secondary that is not connected: its name, for how long, and why. */
function missingSecondaries(status: Status): string[] {
  return secondariesOf(status)
    .filter((row) => !isConnected(row))
    .map((row) => {
      const why = typeof row['disconnect_reason'] === 'string' ? row['disconnect_reason'] : ''
      const seconds = numberIn(row['disconnected_seconds'])
      return `secondary "${String(row['node_id'])}" disconnected for ${seconds} s${why === '' ? '' : ` (${why})`}`
    })
}

/** What keeps the cluster from a failover while it serves. */
export function replicationWarnings(part: ReplicationPart | undefined): string[] {
  if (part?.mode !== 'primary') return []
  const skewed = secondariesOf(part.last)
    .filter((row) => Math.abs(skewMs(row)) > SKEW_WARNING_MS)
    .map((row) => clockWarning(`DR secondary "${String(row['node_id'])}"`, skewMs(row)))
  return [
    ...missingSecondaries(part.last).map((text) => `DR ${text}: a failover to it would lose later writes`),
    ...skewed,
  ]
}

function secondaryState(status: Status): CheckResult {
  const lag = `${numberIn(status['lag_entries'])} changes behind`
  const sealed = otherSide(status).some((row) => row['sealed'] === true) ? ', its primary is sealed' : ''
  if (status['state'] === 'stream-wals') return { ok: true, reason: `DR secondary, ${lag}${sealed}` }
  const trouble = typeof status['trouble'] === 'string' && status['trouble'] !== '' ? `: ${status['trouble']}` : ''
  return { ok: false, reason: `DR secondary, not following its primary (${String(status['state'])})${trouble}` }
}
