/**
 * The two endpoints of garbage collection: one allocation, waiting for it, and all that have ended, without waiting. Both
 * answer 200 with an empty body.
 */
import { Refusal } from '../../platform/errors.ts'
import { type Endpoint, handle } from '../../platform/operation.ts'
import { queryText, schema } from '../../platform/schema.ts'
import { type AllocationTable, requireOwnNode } from '../allocations/allocation.ts'
import { allocIdParam, handleAllocation } from '../allocations/allocation-operation.ts'

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

interface Host {
  readonly collector: Collector
  readonly allocations: AllocationTable
  readonly nodeId: string
}

export const allocationGc = handleAllocation(
  {
    name: 'host.allocation_gc',
    summary: 'Remove the directory of an allocation that has ended',
    path: 'allocation/:alloc_id/gc',
    input: allocationInput,
    output: 'empty',
    changesOnGet: true,
    needs: ['submit-job', 'gc-allocation'],
  },
  ({ collector }: Host) =>
    (allocation) =>
      collector.collect(allocation.id),
)

const gcEndpoint: Endpoint<{ readonly node_id: string | undefined }> = {
  name: 'host.gc',
  summary: 'Start to remove the directories of all allocations of a node that have ended',
  http: ['* /v1/client/gc'],
  target: 'node',
  input: nodeInput,
  output: 'empty',
  changesOnGet: true,
  errorFormat: 'plain',
  locate: (input) => ({ nodeId: input.node_id }),
  authorize(_input, identity) {
    if (!identity.allowsNode('write')) throw new Refusal('permission_denied', 'Permission denied')
  },
}

export const nodeGc = handle(gcEndpoint, ({ collector, nodeId }: Host) => ({
  find: (input) => requireOwnNode(input.node_id, nodeId),
  run: async () => void collector.collectAll(),
}))
