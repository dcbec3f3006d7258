/** The two endpoints of garbage collection: one allocation, waiting for it, and all that have ended, without waiting. */
import { Refusal } from '../kit/errors.ts'
import type { AnyOperation, Operation } from '../kit/operation.ts'
import { queryText, schema } from '../kit/schema.ts'
import { type AllocationTable, requireOwnNode } from './allocation.ts'
import { allocationOperation, allocIdParam } from './allocation-operation.ts'

/** What the endpoints need of `GarbageCollector`. */
export interface Collector {
  collect(id: string): Promise<void>
  collectAll(): number
}

const allocationInput = schema({ alloc_id: allocIdParam })
const nodeInput = schema({
  node_id: queryText({
    description: 'Node to collect on; absent means the node that gets the call',
    fallback: undefined,
  }),
})

/** Both answer 200 with an empty body. `nodeId` is this host's. */
export function gcOperations(host: {
  collector: Collector
  allocations: AllocationTable
  nodeId: string
}): AnyOperation[] {
  const one = allocationOperation(host.allocations, {
    name: 'host.allocation_gc',
    summary: 'Remove the directory of an allocation that has ended',
    path: 'allocation/:alloc_id/gc',
    input: allocationInput,
    output: 'empty',
    changesOnGet: true,
    needs: ['submit-job', 'gc-allocation'],
    run: (allocation) => host.collector.collect(allocation.id),
  })
  const all: Operation<{ node_id: string | undefined }, void> = {
    name: 'host.gc',
    summary: 'Start to remove the directories of all allocations of a node that have ended',
    http: ['* /v1/client/gc'],
    target: 'node',
    input: nodeInput,
    output: 'empty',
    changesOnGet: true,
    errorFormat: 'plain',
    locate: (input) => ({ nodeId: input.node_id }),
    authorize(input, identity) {
      requireOwnNode(input.node_id, host.nodeId)
      if (!identity.allowsNode('write')) throw new Refusal('permission_denied', 'Permission denied')
    },
    run: async () => void host.collector.collectAll(),
  }
  return [one, all]
}
