/** Names of what a tail shows, from the allocations of the server. */
import { read } from '../../../api/client.ts'
import type { ServerAllocations } from '../../../api/types.ts'
import type { LogTarget } from '../stream/log-target.ts'
import type { LogName } from '../stream/line-splitter.ts'

export type Allocation = ServerAllocations[number]

/** The allocations of a target; none if the server does not know them or the token may not list them. */
export async function allocationsOf(target: LogTarget, signal: AbortSignal): Promise<readonly Allocation[]> {
  try {
    if (target.kind === 'job') {
      const all = await read('/v1/allocations', { query: { namespace: target.namespace }, signal })
      return all.filter(({ JobID }) => JobID === target.job)
    }
    return [await read('/v1/allocation/{id}', { params: { id: target.allocation }, signal })]
  } catch (error) {
    if (signal.aborted) throw error
    return []
  }
}

export function shortId(id: string): string {
  return id.slice(0, 8)
}

export function titleOf(target: LogTarget, allocations: readonly Allocation[]): string {
  if (target.kind === 'job') return target.job
  const name = allocations[0]?.Name ?? shortId(target.allocation)
  return target.kind === 'task' ? `${target.task} · ${name}` : name
}

/** The names of allocations by ID. An agent numbers its own only, so those of several hosts can have one name: then the host is before it. */
export function namesOf(allocations: readonly Allocation[]): ReadonlyMap<string, string> {
  const counts = new Map<string, number>()
  const count = (text: string) => counts.set(text, (counts.get(text) ?? 0) + 1)
  const onHost = ({ Name, NodeName }: Allocation) => `${NodeName} ${Name}`
  for (const allocation of allocations) {
    count(`name ${allocation.Name}`)
    count(`host ${onHost(allocation)}`)
  }
  const nameOf = (allocation: Allocation) => {
    if (counts.get(`name ${allocation.Name}`) === 1) return allocation.Name
    const name = onHost(allocation)
    return counts.get(`host ${name}`) === 1 ? name : `${name} ${shortId(allocation.ID)}`
  }
  return new Map(allocations.map((allocation) => [allocation.ID, nameOf(allocation)]))
}

/** For remarks: the allocation with its host and short ID, by ID. */
export function remarkNamesOf(allocations: readonly Allocation[]): ReadonlyMap<string, string> {
  return new Map(allocations.map(({ ID, Name, NodeName }) => [ID, `${Name} on ${NodeName} (${shortId(ID)})`]))
}

/** The name of a source in a tail of several. */
export function sourceLabel({ allocationId, task, type }: LogName, names: ReadonlyMap<string, string>): string {
  const of = allocationId === '' ? '' : `${names.get(allocationId) ?? shortId(allocationId)} `
  return `${of}${task}${type === 'stderr' ? '!' : ''}`
}

export function fileNameOf(target: LogTarget): string {
  const name = target.kind === 'job' ? target.job : shortId(target.allocation)
  const task = target.kind === 'task' ? `-${target.task}` : ''
  return `${`${name}${task}`.replaceAll(/[^\w.-]+/g, '_')}.log`
}
