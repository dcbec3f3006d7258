/** The two endpoints that tell statistics: of the host, and of one allocation. */
import { Refusal } from '../kit/errors.ts'
import type { AnyOperation, Operation } from '../kit/operation.ts'
import { queryText, schema, type InputOf } from '../kit/schema.ts'
import { requireOwnNode, type AllocationTable } from './allocation.ts'
import { allocationOperation, allocIdParam } from './allocation-operation.ts'
import { ALLOCATION_STATS, HOST_STATS } from './result-schemas.ts'
import type { HostStats } from './host-stats.ts'
import type { StatsSampler } from './sampler.ts'

export interface StatsOperationsOptions {
  readonly sampler: Pick<StatsSampler, 'hostStats' | 'allocationStats'>
  readonly allocations: AllocationTable
  readonly nodeId: string
}

const hostFields = {
  node_id: queryText({ description: 'Node to ask; the one the request reaches when absent', fallback: undefined }),
}

const allocationFields = {
  alloc_id: allocIdParam,
  task: queryText({ description: 'Only this task; one that is not there gives an empty answer', fallback: undefined }),
}

/** `host.stats` and `host.alloc_stats`. */
export function statsOperations(options: StatsOperationsOptions): AnyOperation[] {
  const { sampler, allocations, nodeId } = options
  const hostStats: Operation<InputOf<typeof hostFields>, HostStats> = {
    name: 'host.stats',
    summary: 'Memory, processors, disks and uptime of a host',
    http: ['* /v1/client/stats'],
    target: 'node',
    input: schema(hostFields),
    output: 'json',
    result: HOST_STATS,
    produces: 'application/json',
    errorFormat: 'plain',
    crossOrigin: ['GET', 'HEAD'],
    locate: (input) => ({ nodeId: input.node_id }),
    authorize(_input, identity) {
      if (!identity.allowsNode('read')) throw new Refusal('permission_denied', 'Permission denied')
    },
    async run(input) {
      requireOwnNode(input.node_id, nodeId)
      return sampler.hostStats()
    },
  }
  const allocationStats = allocationOperation(allocations, {
    name: 'host.alloc_stats',
    summary: 'What the tasks of an allocation use',
    path: 'allocation/:alloc_id/stats',
    input: schema(allocationFields),
    output: 'json',
    result: ALLOCATION_STATS,
    needs: ['read-job'],
    run: (allocation, input) => sampler.allocationStats(allocation, input.task),
  })
  return [hostStats, allocationStats]
}
