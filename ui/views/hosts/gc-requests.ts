/** Garbage collection of a host: what it would remove, and what it has removed. */
import { ApiError, read, send } from '../../api/client.ts'
import { type CollectionResult, type DirectoryState, endedAtMs, type HostAllocation, isEnded } from './gc-rules.ts'
import type { MayInNamespace } from './namespace-permissions.ts'

export interface Candidate {
  readonly allocation: HostAllocation
  readonly state: DirectoryState
}

const CONCURRENT = 4
const CONFIRM_MS = 20_000
const POLL_MS = 500

async function inParallel<T, R>(values: readonly T[], run: (value: T) => Promise<R>): Promise<readonly R[]> {
  const results: R[] = []
  const queue = values.entries()
  const worker = async () => {
    for (const [index, value] of queue) results[index] = await run(value)
  }
  await Promise.all(Array.from({ length: CONCURRENT }, worker))
  return results
}

/** A host answers 404 for the directory of an allocation that was collected. */
async function directoryState(id: string, signal: AbortSignal): Promise<DirectoryState> {
  try {
    await read('/v1/client/fs/stat/{alloc_id}', { params: { alloc_id: id }, query: { path: '/' }, signal })
    return 'present'
  } catch (error) {
    if (error instanceof ApiError) return error.status === 404 ? 'removed' : 'unknown'
    throw error
  }
}

/** The ended allocations of a host whose directories exist, oldest first. */
export async function findCandidates(nodeId: string, signal: AbortSignal): Promise<readonly Candidate[]> {
  const allocations = await read('/v1/node/{id}/allocations', { params: { id: nodeId }, signal })
  const ended = allocations.filter(isEnded).toSorted((one, other) => endedAtMs(one) - endedAtMs(other))
  const found = await inParallel(ended, async (allocation) => ({
    allocation,
    state: await directoryState(allocation.ID, signal),
  }))
  return found.filter(({ state }) => state !== 'removed')
}

/** Waits for the removal, so a response confirms it. */
async function collectOne(id: string, signal: AbortSignal): Promise<CollectionResult> {
  try {
    await send(`/v1/client/allocation/${encodeURIComponent(id)}/gc`, { method: 'PUT', signal })
    return { id, state: 'removed' }
  } catch (error) {
    if (signal.aborted) throw error
    return { id, state: 'kept', error: error instanceof Error ? error.message : String(error) }
  }
}

/** Starts the collection of all ended allocations, and waits until their directories are gone. */
async function collectNode(
  nodeId: string,
  candidates: readonly Candidate[],
  signal: AbortSignal,
): Promise<readonly CollectionResult[]> {
  await send('/v1/client/gc', { method: 'PUT', query: { node_id: nodeId }, signal })
  const until = performance.now() + CONFIRM_MS
  for (;;) {
    const results = await inParallel(candidates, async ({ allocation: { ID: id } }) => ({
      id,
      state: await directoryState(id, signal),
    }))
    const isOver = performance.now() > until || !results.some(({ state }) => state === 'present')
    if (!isOver) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS))
      continue
    }
    return results.map(({ id, state }) =>
      state === 'present' ? { id, state: 'kept', error: 'The log of the agent has the reason.' } : { id, state },
    )
  }
}

/**
 * Collects these allocations. Those that the token may collect one by one are; for others the whole host is collected, which needs
 * permission to change hosts.
 */
export async function collect(
  nodeId: string,
  candidates: readonly Candidate[],
  may: MayInNamespace,
  signal: AbortSignal,
): Promise<readonly CollectionResult[]> {
  const isPermitted = ({ allocation }: Candidate) => may(allocation.Namespace, 'submit-job', 'gc-allocation')
  const [single, others] = [candidates.filter(isPermitted), candidates.filter((each) => !isPermitted(each))]
  const results = await inParallel(single, ({ allocation }) => collectOne(allocation.ID, signal))
  return others.length === 0 ? results : [...results, ...(await collectNode(nodeId, others, signal))]
}
