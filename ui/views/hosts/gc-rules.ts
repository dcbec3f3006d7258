/** Which allocations a garbage collection removes. */
import type { ServerNodeAllocations } from '../../api/types.ts'

export type HostAllocation = ServerNodeAllocations[number]

const ENDED_STATUSES: ReadonlySet<string> = new Set(['complete', 'failed', 'lost'])

/** As an agent decides, except for processes that still run: only the agent sees those, and then it does not collect. */
export function isEnded({ ClientStatus, DesiredStatus, TaskStates }: HostAllocation): boolean {
  if (ENDED_STATUSES.has(ClientStatus)) return true
  const tasks = Object.values(TaskStates ?? {})
  return DesiredStatus !== 'run' && tasks.length > 0 && tasks.every(({ State }) => State === 'dead')
}

/** Latest end of a task, else the last change; milliseconds. */
export function endedAtMs({ ModifyTime, TaskStates }: HostAllocation): number {
  const ends = Object.values(TaskStates ?? {}).map(({ FinishedAt }) => Date.parse(FinishedAt ?? '') || 0)
  return Math.max(0, ...ends) || ModifyTime / 1e6
}

/**
 * State of an allocation's directory. `unknown`: the token may not read files, or the host does not answer. `kept`: it was to be removed,
 * and exists.
 */
export type DirectoryState = 'present' | 'removed' | 'unknown' | 'kept'

export interface CollectionResult {
  readonly id: string
  readonly state: DirectoryState
  /** Why it was not removed. */
  readonly error?: string
}

/** One sentence about a finished collection. */
export function collectionSummary(results: readonly CollectionResult[]): string {
  const count = (state: DirectoryState) => results.filter((result) => result.state === state).length
  const [removed, unknown, total] = [count('removed'), count('unknown'), results.length]
  const kept = total - removed - unknown
  const parts = [`Removed ${removed} of ${total}`]
  if (kept > 0) parts.push(`${kept} not removed`)
  if (unknown > 0) parts.push(`${unknown} not confirmed`)
  return `${parts.join(', ')}.`
}
