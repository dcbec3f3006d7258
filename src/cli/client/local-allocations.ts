/** Lookup and output of allocations in the data directory of this host. */
import {
  DEFAULT_DATA_DIR,
  isSupervised,
  type LocalAllocation,
  matchAllocations,
} from '../../supervisor/alloc-directory.ts'
import type { CommandIo } from '../framework/define-command.ts'
import { CommandError } from '../framework/define-command.ts'
import type { Manifest } from '../../supervisor/manifest-file.ts'
import { text } from '../framework/options.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { formatPairs, formatTable, humanAge } from '../output/table.ts'

export const dataDirOption = text({
  placeholder: 'DIR',
  help: 'Data directory of this host',
  fallback: undefined,
  shownDefault: `OUTPOST_DATA_DIR, else ${DEFAULT_DATA_DIR}`,
})

/** The only allocation with the ID or ID prefix `id`; several are listed on stderr. Throws CommandError. */
export function findOne(root: string, id: string, io: CommandIo): LocalAllocation {
  const matches = matchAllocations(root, id)
  const exact = matches.find((match) => match.id === id.toLowerCase())
  const [first, ...others] = exact ? [exact] : matches
  if (!first) {
    throw new CommandError(`no allocation with ID prefix ${JSON.stringify(id)} in ${root}, check "outpost alloc list"`)
  }
  if (others.length === 0) return first
  io.err(allocationTable(matches))
  throw new CommandError(`${JSON.stringify(id)} matches ${matches.length} allocations: use a longer prefix`)
}

export function allocationTable(allocations: readonly LocalAllocation[]): string {
  const nowMs = Date.now()
  const rows = allocations.map(({ id, manifest, status }) => [
    id,
    escapeLine(manifest?.Name ?? '-'),
    escapeLine(manifest?.Namespace ?? '-'),
    escapeLine(Object.keys(manifest?.Tasks ?? {}).join(',')) || '-',
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
      ['Status', 'unknown: no manifest, owned by another supervisor'],
    ])
  }
  const head = formatPairs([
    ['ID', id],
    ['Name', escapeLine(manifest.Name)],
    ['Namespace', escapeLine(manifest.Namespace)],
    ['Job ID', escapeLine(manifest.JobID)],
    ['Task Group', escapeLine(manifest.TaskGroup)],
    ['Desired Status', manifest.DesiredStatus],
    ['Client Status', status],
    ['Created', humanAge(manifest.CreateTime / 1e6, Date.now())],
    ['Directory', directory],
    ['Supervisor', supervisorText(manifest)],
  ])
  const rows = Object.entries(manifest.Tasks).map(([name, task]) => [
    escapeLine(name),
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

/** The JSON of an allocation: its manifest with the current status and the directory. */
export function allocationJson({ id, directory, manifest, status }: LocalAllocation): object {
  return { ...(manifest ?? { ID: id }), ClientStatus: status, Directory: directory }
}

function supervisorText(manifest: Manifest): string {
  if (manifest.SupervisorPid === undefined) return 'not recorded'
  return `${manifest.SupervisorPid} (${isSupervised(manifest) ? 'running' : 'exited'})`
}
