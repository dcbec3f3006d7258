/**
 * What the endpoints of one allocation have in common: they run on the host that has it, look it up before they ask for
 * permission (unknown is 404, whoever asks), and need one of a few capabilities in the allocation's own namespace.
 */
import { Refusal } from '../../platform/errors.ts'
import {
  type Call,
  type Chunk,
  type Endpoint,
  handle,
  type JsonSchema,
  type NamespaceCapability,
  type RoomEndpoint,
} from '../../platform/operation.ts'
import { pathParam, queryText, type Schema } from '../../platform/schema.ts'
import { type Allocation, type AllocationTable, findAllocation } from './allocation.ts'

export const allocIdParam = pathParam('Full UUID of the allocation')
export const pathQuery = queryText({
  description: 'Path inside the allocation directory; a leading slash means its root',
  fallback: '/',
})

export const originQuery = queryText({
  description: 'Where the offset counts from',
  fallback: 'start',
  choices: ['start', 'end'],
  otherwise: 'origin must be start or end',
})

interface Definition<In> {
  readonly name: string
  readonly summary: string
  /** Below `/v1/client/`, with `:alloc_id` in it. Any verb, as in the compatible system. */
  readonly path: string
  readonly input: Schema<In>
  readonly output: 'json' | 'empty' | 'stream'
  readonly produces?: 'application/json' | 'text/plain'
  readonly result?: JsonSchema
  /** Any one of them is enough. */
  readonly needs: readonly NamespaceCapability[]
  readonly changesOnGet?: true
  endless?(input: In): boolean
}

/** The part of a host that knows its allocations. */
interface HasAllocations {
  readonly allocations: AllocationTable
}

/** An endpoint of one allocation, which `bind` runs with the allocation that was found. */
export function handleAllocation<Room extends HasAllocations, In extends { readonly alloc_id: string }, Out>(
  { path, needs, ...rest }: Definition<In>,
  bind: (room: Room) => (allocation: Allocation, input: In, call: Call) => Promise<Out> | AsyncIterable<Chunk>,
): RoomEndpoint<Room> {
  const endpoint: Endpoint<In, { readonly namespace: string }> = {
    ...rest,
    http: [`* /v1/client/${path}`],
    target: 'node',
    errorFormat: 'plain',
    ...(rest.changesOnGet ? {} : { crossOrigin: ['GET', 'HEAD'] as const }),
    locate: (input) => ({ allocationId: input.alloc_id }),
    authorize(_input, identity, { namespace }) {
      if (needs.some((capability) => identity.allowsNamespace(namespace, capability))) return
      throw new Refusal('permission_denied', 'Permission denied')
    },
  }
  return handle(endpoint, (room: Room) => {
    const run = bind(room)
    return {
      find: (input: In) => findAllocation(room.allocations, input.alloc_id),
      run: (input: In, call: Call, allocation: Allocation) => run(allocation, input, call),
    }
  })
}
