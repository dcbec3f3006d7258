/** How `alloc list`, `alloc status` and `alloc stop` find and show allocations. */
import type { LocalAllocation } from '../../supervisor/alloc-directory.ts'
import { isSupervised, matchAllocations } from '../../supervisor/alloc-directory.ts'
import type { CommandIo } from '../framework/command-shape.ts'
import { CommandError } from '../framework/command-shape.ts'
import type { Manifest } from '../../supervisor/manifest.ts'
import { shownName } from '../framework/shown.ts'
import { humanAge } from '../output/quantities.ts'
import { formatPairs, formatTable } from '../output/table.ts'

/**
 * The one allocation whose ID is `id` or begins with it. When there are several, they are listed on stderr.
 * Throws CommandError.
 */
export function findOne(root: string, id: string, io: CommandIo): LocalAllocation {
  const matches = matchAllocations(root, id)
  const exact = matches.find((match) => match.id === id.toLowerCase())
  const [first, ...others] = exact ? [exact] : matches
  if (!first) {
    throw new CommandError(
      `no allocation ${JSON.stringify(id)} under ${root}, "outpost alloc list" shows what there is`,
    )
  }
  if (others.length === 0) return first
  io.err(allocationTable(matches))
  throw new CommandError(`${JSON.stringify(id)} is the beginning of ${matches.length} allocation IDs, give more of it`)
}

export function allocationTable(allocations: readonly LocalAllocation[]): string {
  const nowMs = Date.now()
  const rows = allocations.map(({ id, manifest, status }) => [
    id,
    shownName(manifest?.Name ?? '-'),
    shownName(manifest?.Namespace ?? '-'),
    shownName(Object.keys(manifest?.Tasks ?? {}).join(',')) || '-',
    manifest?.DesiredStatus ?? '-',
    status,
    manifest ? humanAge(manifest.CreateTime / 1e6, nowMs) : '-',
  ])
  return formatTable(['ID', 'Name', 'Namespace', 'Tasks', 'Desired', 'Status', 'Created'], rows)
}

export function allocationDetails(allocation: LocalAllocation): string {
  const { id, directory, manifest, status } = allocation
  if (!manifest) {
    return formatPairs([
      ['ID', id],
      ['Directory', directory],
      ['Status', 'unknown: it has no manifest, another supervisor owns it'],
    ])
  }
  const head = formatPairs([
    ['ID', id],
    ['Name', shownName(manifest.Name)],
    ['Namespace', shownName(manifest.Namespace)],
    ['Job ID', shownName(manifest.JobID)],
    ['Task Group', shownName(manifest.TaskGroup)],
    ['Desired Status', manifest.DesiredStatus],
    ['Client Status', status],
    ['Created', humanAge(manifest.CreateTime / 1e6, Date.now())],
    ['Directory', directory],
    ['Supervisor', supervisorText(manifest)],
  ])
  const rows = Object.entries(manifest.Tasks).map(([name, task]) => [
    shownName(name),
    task.State,
    task.Failed ? 'yes' : 'no',
    task.ExitCode?.toString() ?? '-',
    task.Pids.join(',') || '-',
    String(task.Restarts),
    task.StartedAt ?? '-',
    task.FinishedAt ?? '-',
  ])
  const columns = ['Task', 'State', 'Failed', 'Exit Code', 'PIDs', 'Restarts', 'Started At', 'Finished At']
  return `${head}\n${formatTable(columns, rows)}`
}

/** What `-json` prints for one allocation: its manifest, and what only a look at this host can tell. */
export function allocationJson({ id, directory, manifest, status }: LocalAllocation): object {
  return { ...(manifest ?? { ID: id }), ClientStatus: status, Directory: directory }
}

function supervisorText(manifest: Manifest): string {
  if (manifest.SupervisorPid === undefined) return 'not recorded'
  return `${manifest.SupervisorPid} (${isSupervised(manifest) ? 'running' : 'gone'})`
}
