/** The two endpoints that tell statistics: of the host, and of one allocation. */
import { Refusal } from '../kit/errors.ts'
import type { AnyOperation, Operation } from '../kit/operation.ts'
import { pathParam, queryText, schema, type InputOf } from '../kit/schema.ts'
import { findAllocation, requireOwnNode, type AllocationTable } from './allocation.ts'
import type { HostStats } from './host-stats.ts'
import type { AllocResourceUsage } from './resource-usage.ts'
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
  alloc_id: pathParam('Full ID of the allocation'),
  task: queryText({ description: 'Only this task; one that is not there gives an empty answer', fallback: undefined }),
}

/** `host.stats` and `host.alloc_stats`. */
export function statsOperations(options: StatsOperationsOptions): AnyOperation[] {
  const { sampler, allocations, nodeId } = options
  const hostStats: Operation<InputOf<typeof hostFields>, HostStats> = {
    name: 'host.stats',
    summary: 'Memory, processors, disks and uptime of a host',
    http: ['* /v1/client/stats', '* /client/stats'],
    target: 'node',
    input: schema(hostFields),
    output: 'json',
    produces: 'application/json',
    errorFormat: 'plain',
    crossOrigin: ['GET', 'HEAD'],
    authorize(_input, identity) {
      if (!identity.allowsNode('read')) throw new Refusal('permission_denied', 'Permission denied')
    },
    async run(input) {
      requireOwnNode(input.node_id, nodeId)
      return sampler.hostStats()
    },
  }
  const allocationStats: Operation<InputOf<typeof allocationFields>, AllocResourceUsage> = {
    name: 'host.alloc_stats',
    summary: 'What the tasks of an allocation use',
    http: ['* /v1/client/allocation/:alloc_id/stats', '* /client/allocation/:alloc_id/stats'],
    target: 'node',
    input: schema(allocationFields),
    output: 'json',
    produces: 'application/json',
    errorFormat: 'plain',
    crossOrigin: ['GET', 'HEAD'],
    authorize(input, identity) {
      const { namespace } = findAllocation(allocations, input.alloc_id)
      if (identity.allowsNamespace(namespace, 'read-job')) return
      throw new Refusal('permission_denied', 'Permission denied')
    },
    async run(input) {
      return sampler.allocationStats(findAllocation(allocations, input.alloc_id), input.task)
    },
  }
  return [hostStats, allocationStats]
}
