/** Tables of nodes, allocations and jobs. */
import { type JsonFields, fieldsOf } from '../output/json.ts'
import { shortIdsOf } from './id-prefix.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { formatPairs, formatTable, humanAge, isoSeconds } from '../output/table.ts'

const NANOSECONDS_PER_MS = 1e6

/** `3d4h ago`; a dash for an unknown time. */
export function ageOf(nanoseconds: number, nowMs = Date.now()): string {
  return nanoseconds > 0 ? humanAge(nanoseconds / NANOSECONDS_PER_MS, nowMs) : '-'
}

/** Newest first, each with its node and job. */
export function allocationsTable(allocations: readonly JsonFields[], isVerbose: boolean): string {
  const nowMs = Date.now()
  const idOf = isVerbose ? (id: string) => id : shortIdsOf(allocations.map((allocation) => allocation.text('ID')))
  const newest = allocations.toSorted((a, b) => b.number('CreateTime') - a.number('CreateTime'))
  const rows = newest.map((allocation) => [
    escapeLine(idOf(allocation.text('ID'))),
    nodeOf(allocation),
    escapeLine(allocation.text('JobID')),
    escapeLine(allocation.text('Namespace')),
    escapeLine(allocation.names('TaskStates').sort().join(',')) || '-',
    escapeLine(allocation.text('DesiredStatus')),
    clientStatusOf(allocation),
    ageOf(allocation.number('CreateTime'), nowMs),
  ])
  return formatTable(['ID', 'Node', 'Job', 'Namespace', 'Tasks', 'Desired', 'Status', 'Created'], rows)
}

/** `unknown (node down since 2026-11-21T10:00:00Z)`; the last change of an unknown allocation is that of its node. */
function clientStatusOf(allocation: JsonFields): string {
  const status = escapeLine(allocation.text('ClientStatus'))
  const atMs = allocation.number('ModifyTime') / NANOSECONDS_PER_MS
  return status === 'unknown' && atMs > 0 ? `${status} (node down since ${isoSeconds(atMs)})` : status
}

/** The name, or the ID of a node without one. */
function nodeOf(allocation: JsonFields): string {
  return escapeLine(allocation.text('NodeName') || allocation.text('NodeID')) || '-'
}

/** `node`: the record of its node; undefined without permission. */
export function allocationText(allocation: JsonFields, node: JsonFields | undefined): string {
  const head = formatPairs(
    (
      [
        ['ID', allocation.text('ID')],
        ['Name', allocation.text('Name')],
        ['Namespace', allocation.text('Namespace')],
        ['Job ID', allocation.text('JobID')],
        ['Task Group', allocation.text('TaskGroup')],
        ['Node ID', allocation.text('NodeID')],
        ['Node Name', allocation.text('NodeName')],
        ...(node ? [['Node Status', statusOf(node)] as const] : []),
        ['Desired Status', allocation.text('DesiredStatus')],
        ['Client Status', clientStatusOf(allocation)],
        ['Created', ageOf(allocation.number('CreateTime'))],
        ['Modified', ageOf(allocation.number('ModifyTime'))],
      ] as const
    ).map(([key, value]) => [key, escapeLine(value)] as const),
  )
  const states = allocation.under('TaskStates')
  const rows = allocation
    .names('TaskStates')
    .sort()
    .map((name) => taskCells(name, states.under(name)))
  const columns = ['Task', 'State', 'Failed', 'Started At', 'Finished At']
  return rows.length === 0 ? head : `${head}\n${formatTable(columns, rows)}`
}

function taskCells(name: string, state: JsonFields): string[] {
  return [
    escapeLine(name),
    escapeLine(state.text('State')),
    state.boolean('Failed') ? 'yes' : 'no',
    escapeLine(state.text('StartedAt')) || '-',
    escapeLine(state.text('FinishedAt')) || '-',
  ]
}

/** `down since 2026-11-21T10:00:00Z (3m2s ago): Node heartbeat missed`; `ready`. */
export function statusOf(node: JsonFields): string {
  const status = node.text('Status')
  if (status === 'ready') return status
  const since = sinceOf(node)
  const reason = node.text('StatusDescription')
  return `${status}${since === '' ? '' : ` since ${since}`}${reason === '' ? '' : `: ${reason}`}`
}

/** Time of the last status change; empty if the server does not report it. */
function sinceOf(node: JsonFields): string {
  const atMs = node.number('StatusUpdatedAt') * 1000
  if (atMs <= 0) return ''
  return `${isoSeconds(atMs)} (${humanAge(atMs, Date.now())})`
}

export function nodesTable(records: readonly unknown[], isVerbose: boolean): string {
  const nodes = records.map(fieldsOf)
  const idOf = isVerbose ? (id: string) => id : shortIdsOf(nodes.map((node) => node.text('ID')))
  const rows = nodes
    .toSorted((a, b) => (a.text('Name') < b.text('Name') ? -1 : 1))
    .map((node) => [
      escapeLine(idOf(node.text('ID'))),
      escapeLine(node.text('Name')),
      escapeLine(node.text('Status')),
      (node.text('Status') === 'ready' ? '' : sinceOf(node)) || '-',
      escapeLine(node.text('Address')) || '-',
      escapeLine(node.text('Datacenter')) || '-',
      escapeLine(node.text('Version')) || '-',
    ])
  return formatTable(['ID', 'Name', 'Status', 'Not Ready Since', 'Address', 'Datacenter', 'Version'], rows)
}
