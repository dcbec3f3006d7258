/**
 * What the endpoints of one allocation have in common: they run on the host that has it, look it up before they ask for
 * permission (unknown is 404, whoever asks), and need one of a few capabilities in the allocation's own namespace.
 */
import { Refusal } from '../kit/errors.ts'
import type { AnyOperation, Call, Chunk, JsonSchema, NamespaceCapability, Operation } from '../kit/operation.ts'
import { pathParam, queryText, type Schema } from '../kit/schema.ts'
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

interface Definition<In, Out> {
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
  readonly run: (allocation: Allocation, input: In, call: Call) => Promise<Out> | AsyncIterable<Chunk>
}

export function allocationOperation<In extends { readonly alloc_id: string }, Out>(
  allocations: AllocationTable,
  definition: Definition<In, Out>,
): AnyOperation {
  const { path, needs, run, ...rest } = definition
  const operation: Operation<In, Out> = {
    ...rest,
    http: [`* /v1/client/${path}`],
    target: 'node',
    errorFormat: 'plain',
    ...(definition.changesOnGet ? {} : { crossOrigin: ['GET', 'HEAD'] as const }),
    locate: (input) => ({ allocationId: input.alloc_id }),
    authorize(input, identity) {
      const { namespace } = findAllocation(allocations, input.alloc_id)
      if (needs.some((capability) => identity.allowsNamespace(namespace, capability))) return
      throw new Refusal('permission_denied', 'Permission denied')
    },
    run: (input, call) => run(findAllocation(allocations, input.alloc_id), input, call),
  }
  return operation
}
