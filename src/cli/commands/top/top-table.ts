/** The table of `outpost top`: order, cells, JSON. */
import { shortIdsOf } from '../../client/id-prefix.ts'
import { escapeLine } from '../../framework/terminal-escapes.ts'
import { formatTable, humanBytes } from '../../output/table.ts'
import type { FleetKind, SampledRow } from './fleet-sampler.ts'

export const SORT_KEYS = ['cpu', 'memory', 'disk', 'name'] as const
export type SortKey = (typeof SORT_KEYS)[number]

export interface RowOrder {
  readonly key: SortKey
  /** Reverses the order: ascending for values, descending for names. */
  readonly isReversed: boolean
}

/** Sort keys of a table. Tasks have no disk usage of their own. */
export function sortKeysOf(kind: FleetKind): readonly SortKey[] {
  return kind === 'nodes' ? SORT_KEYS : SORT_KEYS.filter((key) => key !== 'disk')
}

/** The largest first, names in alphabetical order. Rows without a sample are last in any order. */
export function sortRows(rows: readonly SampledRow[], { isReversed, key }: RowOrder): SampledRow[] {
  const sign = isReversed ? -1 : 1
  return rows.toSorted((a, b) => {
    const [left, right] = [valueOf(a, key), valueOf(b, key)]
    if (key !== 'name' && (left === undefined || right === undefined)) {
      if (left !== right) return left === undefined ? 1 : -1
      return byName(a, b)
    }
    if (key === 'name' || left === right) return sign * byName(a, b)
    return sign * ((right ?? 0) - (left ?? 0))
  })
}

function valueOf(row: SampledRow, key: SortKey): number | undefined {
  if (key === 'cpu') return row.cpuPercent
  if (key === 'disk') return fractionOf(row.diskBytes, row.diskTotalBytes)
  // Nodes differ in size, so their memory is compared as a fraction.
  return row.memoryTotalBytes === undefined ? row.memoryBytes : fractionOf(row.memoryBytes, row.memoryTotalBytes)
}

function byName(a: SampledRow, b: SampledRow): number {
  const [left, right] = [nameOf(a), nameOf(b)]
  return left < right ? -1 : Number(left > right)
}

function nameOf({ id, job, node, task }: SampledRow): string {
  return `${job}\0${node}\0${task}\0${id}`
}

function fractionOf(used: number | undefined, total: number | undefined): number | undefined {
  return used === undefined || total === undefined || total === 0 ? undefined : used / total
}

function percent(value: number | undefined): string {
  return value === undefined ? '-' : `${value.toFixed(1)} %`
}

function bytes(value: number | undefined): string {
  return value === undefined ? '-' : humanBytes(value)
}

function percentOf(used: number | undefined, total: number | undefined): string {
  const value = fractionOf(used, total)
  return percent(value === undefined ? undefined : value * 100)
}

const LEFT = 'left' as const
const RIGHT = 'right' as const

export function topTable(kind: FleetKind, rows: readonly SampledRow[], isVerbose: boolean): string {
  const idOf = isVerbose ? (id: string) => id : shortIdsOf([...new Set(rows.map(({ id }) => id))])
  if (kind === 'nodes') {
    const cells = rows.map((row) => [
      escapeLine(idOf(row.id)),
      escapeLine(row.node),
      escapeLine(row.status),
      percent(row.cpuPercent),
      bytes(row.memoryBytes),
      percentOf(row.memoryBytes, row.memoryTotalBytes),
      bytes(row.diskBytes),
      percentOf(row.diskBytes, row.diskTotalBytes),
    ])
    const columns = ['ID', 'Name', 'Status', 'CPU', 'Memory', 'Mem %', 'Disk', 'Disk %']
    return formatTable(columns, cells, [LEFT, LEFT, LEFT, RIGHT, RIGHT, RIGHT, RIGHT, RIGHT])
  }
  const cells = rows.map((row) => [
    escapeLine(idOf(row.id)),
    escapeLine(row.job),
    escapeLine(row.task),
    escapeLine(row.node),
    escapeLine(row.status),
    percent(row.cpuPercent),
    bytes(row.memoryBytes),
    row.processes === undefined ? '-' : String(row.processes),
  ])
  const columns = ['Alloc', 'Job', 'Task', 'Node', 'Status', 'CPU', 'Memory', 'Processes']
  return formatTable(columns, cells, [LEFT, LEFT, LEFT, LEFT, LEFT, RIGHT, RIGHT, RIGHT])
}

/** With the names of the API. Values without a sample are null. */
export function topJson(kind: FleetKind, row: SampledRow): object {
  const usage = { CPUPercent: row.cpuPercent ?? null, MemoryBytes: row.memoryBytes ?? null }
  if (kind === 'tasks') {
    const { id, job, node, status, task } = row
    return {
      AllocID: id,
      JobID: job,
      Task: task,
      NodeName: node,
      Status: status,
      ...usage,
      Processes: row.processes ?? null,
    }
  }
  return {
    ID: row.id,
    Name: row.node,
    Status: row.status,
    ...usage,
    MemoryTotalBytes: row.memoryTotalBytes ?? null,
    DiskBytes: row.diskBytes ?? null,
    DiskTotalBytes: row.diskTotalBytes ?? null,
  }
}
