/** What the list of logs contains: tasks, allocations and jobs, from the allocations of all hosts. */
import type { ServerAllocations } from '../../../api/types.ts'

export type TargetKind = 'tasks' | 'allocations' | 'jobs'
export type StateFilter = 'all' | 'running' | 'failed'

export interface LogRowData {
  readonly key: string
  /** Path below `/logs`. */
  readonly path: string
  readonly name: string
  /** What it belongs to. */
  readonly of: string
  readonly job: string
  readonly namespace: string
  readonly host: string
  readonly state: string
  readonly isFailed: boolean
  readonly event: string
  readonly eventMs: number
}

type Allocation = ServerAllocations[number]
type TaskState = NonNullable<Allocation['TaskStates']>[string]

const NS_PER_MS = 1e6

export function rowsOf(allocations: ServerAllocations, kind: TargetKind): readonly LogRowData[] {
  const rows =
    kind === 'tasks'
      ? allocations.flatMap(taskRows)
      : kind === 'allocations'
        ? allocations.map(allocationRow)
        : [...jobsIn(allocations).values()].map(jobRow)
  return rows.toSorted((one, other) => other.eventMs - one.eventMs)
}

function jobsIn(allocations: ServerAllocations): ReadonlyMap<string, readonly Allocation[]> {
  const jobs = new Map<string, Allocation[]>()
  for (const allocation of allocations) {
    const key = `${allocation.Namespace}\0${allocation.JobID}`
    const known = jobs.get(key)
    if (known) known.push(allocation)
    else jobs.set(key, [allocation])
  }
  return jobs
}

/** `search` is words that must all occur. */
export function filterRows(rows: readonly LogRowData[], search: string, state: StateFilter): readonly LogRowData[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean)
  return rows.filter((row) => {
    if (state === 'failed' && !row.isFailed) return false
    if (state === 'running' && row.state !== 'running') return false
    const text = `${row.name} ${row.of} ${row.job} ${row.host} ${row.state} ${row.path} ${row.event}`.toLowerCase()
    return words.every((word) => text.includes(word))
  })
}

/** One word in the list and above the log: a task that has ended is `complete` or `failed`. */
export function taskState({ Failed, State }: Pick<TaskState, 'Failed' | 'State'>): string {
  if (Failed) return 'failed'
  return State === 'dead' ? 'complete' : State
}

function taskRows(allocation: Allocation): LogRowData[] {
  return Object.entries(allocation.TaskStates ?? {}).map(([task, state]) => {
    const { atMs, text } = eventOf(state)
    return {
      ...common(allocation),
      key: `${allocation.ID}/${task}`,
      path: `${encodeURIComponent(allocation.ID)}/${encodeURIComponent(task)}`,
      name: task,
      of: allocation.Name,
      state: taskState(state),
      isFailed: state.Failed,
      event: text,
      eventMs: atMs || allocation.ModifyTime / NS_PER_MS,
    }
  })
}

function allocationRow(allocation: Allocation): LogRowData {
  const states = Object.values(allocation.TaskStates ?? {})
  const last = states.map(eventOf).toSorted((one, other) => other.atMs - one.atMs)[0]
  return {
    ...common(allocation),
    key: allocation.ID,
    path: encodeURIComponent(allocation.ID),
    name: allocation.Name,
    of: allocation.JobID,
    state: allocation.ClientStatus,
    isFailed: isFailed(allocation),
    event: last?.text ?? allocation.ClientDescription,
    eventMs: last && last.atMs > 0 ? last.atMs : allocation.ModifyTime / NS_PER_MS,
  }
}

function jobRow(allocations: readonly Allocation[]): LogRowData {
  const rows = allocations.map(allocationRow).toSorted((one, other) => other.eventMs - one.eventMs)
  const failed = rows.filter((row) => row.isFailed).length
  const running = rows.filter(({ state }) => state === 'running').length
  const hosts = new Set(rows.map(({ host }) => host))
  const [last] = rows
  const [job, namespace] = [last?.job ?? '', last?.namespace ?? '']
  return {
    key: `${namespace}/${job}`,
    path: `job/${encodeURIComponent(namespace)}/${encodeURIComponent(job)}`,
    name: job,
    of: `${running} of ${rows.length} running${failed > 0 ? `, ${failed} failed` : ''}`,
    job,
    namespace,
    host: hosts.size === 1 ? (last?.host ?? '') : `${hosts.size} hosts`,
    state: running > 0 ? 'running' : failed > 0 ? 'failed' : (last?.state ?? ''),
    isFailed: failed > 0,
    event: last?.event ?? '',
    eventMs: last?.eventMs ?? 0,
  }
}

function common({ JobID, Namespace, NodeName }: Allocation) {
  return { job: JobID, namespace: Namespace, host: NodeName }
}

function isFailed({ ClientStatus, TaskStates }: Allocation): boolean {
  return (
    ClientStatus === 'failed' || ClientStatus === 'lost' || Object.values(TaskStates ?? {}).some(({ Failed }) => Failed)
  )
}

function eventOf({ Events, Failed, FinishedAt, StartedAt, State }: TaskState): { atMs: number; text: string } {
  const last = Events?.at(-1)
  const finishedMs = FinishedAt === null ? 0 : Date.parse(FinishedAt)
  if (last && last.Time / NS_PER_MS >= finishedMs) {
    return { atMs: last.Time / NS_PER_MS, text: last.DisplayMessage || last.Type }
  }
  if (finishedMs > 0) return { atMs: finishedMs, text: Failed ? 'Task failed' : 'Task finished' }
  return { atMs: StartedAt === null ? 0 : Date.parse(StartedAt), text: State }
}
