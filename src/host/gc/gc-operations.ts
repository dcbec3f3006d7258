/**
 * The endpoints of garbage collection: of one allocation, which waits for the removal, and of all ended allocations, which
 * does not. Both respond with 200 and an empty body.
 */
import { type Endpoint, handle } from '../../platform/operation.ts'
import { schema } from '../../platform/schema.ts'
import { type AllocationTable, requireOwnNode } from '../allocations/allocation.ts'
import { allocIdParam, authorizeNode, handleAllocation, nodeIdQuery } from '../allocations/allocation-operation.ts'

/** The part of `GarbageCollector` that the endpoints use. */
export interface AllocationCollector {
  collect(id: string): Promise<void>
  collectAll(): number
}

const allocationInput = schema({ alloc_id: allocIdParam })
const nodeInput = schema({ node_id: nodeIdQuery })

interface GcHost {
  readonly collector: AllocationCollector
  readonly allocations: AllocationTable
  readonly nodeId: string
}

export const allocationGc = handleAllocation(
  {
    name: 'host.allocation_gc',
    summary: 'Garbage collect an allocation that has ended',
    path: 'allocation/:alloc_id/gc',
    input: allocationInput,
    output: 'empty',
    changesOnGet: true,
    needs: ['submit-job', 'gc-allocation'],
  },
  ({ collector }: GcHost) =>
    (allocation) =>
      collector.collect(allocation.id),
)

const gcEndpoint: Endpoint<{ readonly node_id: string | undefined }> = {
  name: 'host.gc',
  summary: 'Start garbage collection of all ended allocations of a node',
  http: ['* /v1/client/gc'],
  target: 'node',
  input: nodeInput,
  output: 'empty',
  changesOnGet: true,
  errorFormat: 'plain',
  locate: (input) => ({ nodeId: input.node_id }),
  authorize: authorizeNode('write'),
}

export const nodeGc = handle(gcEndpoint, ({ collector, nodeId }: GcHost) => ({
  find: (input) => requireOwnNode(input.node_id, nodeId),
  run: async () => void collector.collectAll(),
}))
