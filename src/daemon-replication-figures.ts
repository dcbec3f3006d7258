/** How replication stands, as figures and as a line of readiness: both from the status as it was last asked for. */
import type { Check, Outcome } from './agent/readiness.ts'
import { type Family, single } from './agent/metric.ts'
import type { ReplicationPart } from './daemon-replication.ts'

type Status = Readonly<Record<string, unknown>>

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

export function replicationFamilies({ last, mode }: ReplicationPart): Family[] {
  const connectedRows = otherSide(last).filter((row) => row['connection_status'] === 'connected')
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
    gauge('lag_entries', 'Changes that the slowest secondary has not acknowledged, or this one not applied.', entries),
    gauge('lag_seconds', 'For how long the slowest secondary, or this one, has not had everything.', lagSeconds(last)),
    gauge(
      'sync_degraded',
      '1 while commits do not wait for a secondary that is away.',
      last['sync'] === 'degraded' ? 1 : 0,
    ),
    gauge('fenced', '1 while this primary takes no writes.', last['state'] === 'fenced' ? 1 : 0),
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

/** None where the cluster does not replicate. */
export function replicationChecks(part: ReplicationPart | undefined): Check[] {
  if (!part || part.mode === 'disabled') return []
  return [
    { name: 'replication', now: () => (part.mode === 'primary' ? primaryState(part.last) : secondaryState(part.last)) },
  ]
}

function primaryState(status: Status): Outcome {
  if (status['state'] === 'fenced') {
    const why =
      status['fence_reason'] === 'replaced'
        ? `${String(status['replaced_by'])} was promoted (proven by the secondary ${String(status['fenced_by'])})`
        : 'no secondary was heard for fence_after'
    return { ok: false, reason: `this DR primary takes no writes: ${why}` }
  }
  const rows = otherSide(status)
  const connected = rows.filter((row) => row['connection_status'] === 'connected').length
  const degraded = status['sync'] === 'degraded' ? ', commits do not wait for them' : ''
  return { ok: true, reason: `DR primary, ${connected} of ${rows.length} secondaries connected${degraded}` }
}

function secondaryState(status: Status): Outcome {
  const lag = `${numberIn(status['lag_entries'])} changes behind`
  const sealed = otherSide(status).some((row) => row['sealed'] === true) ? ', its primary is sealed' : ''
  if (status['state'] === 'stream-wals') return { ok: true, reason: `DR secondary, ${lag}${sealed}` }
  const trouble = typeof status['trouble'] === 'string' && status['trouble'] !== '' ? `: ${status['trouble']}` : ''
  return { ok: false, reason: `DR secondary, not following its primary (${String(status['state'])})${trouble}` }
}
