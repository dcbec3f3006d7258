/** The endpoints of statistics: of the host, and of one allocation. */
import { type Endpoint, handle } from '../../platform/operation.ts'
import { queryBoolean, queryText, schema, type InputOf } from '../../platform/schema.ts'
import { requireOwnNode, type AllocationTable } from '../allocations/allocation.ts'
import { allocIdParam, authorizeNode, handleAllocation, nodeIdQuery } from '../allocations/allocation-operation.ts'
import { ALLOCATION_STATS, HOST_STATS } from '../allocations/result-schemas.ts'
import type { StatsSampler } from './sampler.ts'

interface StatsHost {
  readonly sampler: Pick<StatsSampler, 'hostStats' | 'allocationStats'>
  readonly allocations: AllocationTable
  readonly nodeId: string
}

const hostFields = {
  node_id: nodeIdQuery,
  network: queryBoolean({
    description: 'Include NetworkStats, the counters of the network interfaces',
    fallback: false,
  }),
}

const allocationFields = {
  alloc_id: allocIdParam,
  task: queryText({ description: 'Only this task; empty result if it does not exist', fallback: undefined }),
}

const statsEndpoint: Endpoint<InputOf<typeof hostFields>> = {
  name: 'host.stats',
  summary: 'Read the statistics of a host: memory, processors, disks, uptime',
  http: ['* /v1/client/stats'],
  target: 'node',
  input: schema(hostFields),
  output: 'json',
  result: HOST_STATS,
  produces: 'application/json',
  errorFormat: 'plain',
  crossOrigin: ['GET', 'HEAD'],
  locate: (input) => ({ nodeId: input.node_id }),
  authorize: authorizeNode('read'),
}

export const hostStats = handle(statsEndpoint, ({ sampler, nodeId }: StatsHost) => ({
  async run(input) {
    requireOwnNode(input.node_id, nodeId)
    return sampler.hostStats({ network: input.network })
  },
}))

export const allocationStats = handleAllocation(
  {
    name: 'host.alloc_stats',
    summary: 'Read the resource usage of the tasks of an allocation',
    path: 'allocation/:alloc_id/stats',
    input: schema(allocationFields),
    output: 'json',
    result: ALLOCATION_STATS,
    needs: ['read-job'],
  },
  ({ sampler }: StatsHost) =>
    (allocation, input) =>
      sampler.allocationStats(allocation, input.task),
)
