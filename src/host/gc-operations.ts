/** The two endpoints of garbage collection: one allocation, waiting for it, and all that have ended, without waiting. */
import { Refusal } from '../kit/errors.ts'
import type { AnyOperation, Operation } from '../kit/operation.ts'
import { pathParam, queryText, schema } from '../kit/schema.ts'
import { type AllocationTable, findAllocation, requireOwnNode } from './allocation.ts'

/** What the endpoints need of `GarbageCollector`. */
export interface Collector {
  collect(id: string): Promise<void>
  collectAll(): number
}

const allocationInput = schema({ alloc_id: pathParam('Full ID of the allocation') })
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
  const one: Operation<{ alloc_id: string }, void> = {
    name: 'host.allocation_gc',
    summary: 'Remove the directory of an allocation that has ended',
    http: ['* /v1/client/allocation/:alloc_id/gc', '* /client/allocation/:alloc_id/gc'],
    target: 'node',
    input: allocationInput,
    output: 'empty',
    errorFormat: 'plain',
    crossOrigin: ['GET', 'HEAD'],
    authorize(input, identity) {
      const { namespace } = findAllocation(host.allocations, input.alloc_id)
      if (identity.allowsNamespace(namespace, 'submit-job')) return
      if (identity.allowsNamespace(namespace, 'gc-allocation')) return
      throw new Refusal('permission_denied', 'Permission denied')
    },
    run: (input) => host.collector.collect(findAllocation(host.allocations, input.alloc_id).id),
  }
  const all: Operation<{ node_id: string | undefined }, void> = {
    name: 'host.gc',
    summary: 'Start to remove the directories of all allocations of a node that have ended',
    http: ['* /v1/client/gc', '* /client/gc'],
    target: 'node',
    input: nodeInput,
    output: 'empty',
    errorFormat: 'plain',
    authorize(input, identity) {
      requireOwnNode(input.node_id, host.nodeId)
      if (!identity.allowsNode('write')) throw new Refusal('permission_denied', 'Permission denied')
    },
    run: async () => void host.collector.collectAll(),
  }
  return [one, all]
}
