/**
 * Common part of the endpoints of one allocation. They run on the host that has it, look it up before the permission check
 * (unknown is 404 for every caller), and need one of some capabilities in the allocation's namespace.
 */
import { Refusal } from '../../platform/errors.ts'
import {
  type Access,
  type Call,
  type Chunk,
  type Endpoint,
  handle,
  type Identity,
  type JsonSchema,
  type NamespaceCapability,
  type EndpointBinding,
} from '../../platform/operation.ts'
import { pathParam, queryText, type Schema } from '../../platform/schema.ts'
import { type Allocation, type AllocationTable, findAllocation } from './allocation.ts'

export const nodeIdQuery = queryText({
  description: 'ID of the node; defaults to the node that receives the request',
  fallback: undefined,
})
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

/** `authorize` of the endpoints of the node. */
export function authorizeNode(access: Access): (input: unknown, identity: Identity) => void {
  return (_input, identity) => {
    if (!identity.allowsNode(access)) throw new Refusal('permission_denied', 'Permission denied')
  }
}

interface AllocationEndpoint<In> {
  readonly name: string
  readonly summary: string
  /** Below `/v1/client/`, contains `:alloc_id`. All HTTP methods, as in Nomad. */
  readonly path: string
  readonly input: Schema<In>
  readonly output: 'json' | 'empty' | 'stream'
  readonly produces?: 'application/json' | 'text/plain'
  readonly result?: JsonSchema
  /** One of them is sufficient. */
  readonly needs: readonly NamespaceCapability[]
  readonly changesOnGet?: true
  endless?(input: In): boolean
}

interface AllocationOwner {
  readonly allocations: AllocationTable
}

/** An endpoint of one allocation. `bind` returns the handler, which gets the allocation. */
export function handleAllocation<Owner extends AllocationOwner, In extends { readonly alloc_id: string }, Out>(
  { path, needs, ...rest }: AllocationEndpoint<In>,
  bind: (owner: Owner) => (allocation: Allocation, input: In, call: Call) => Promise<Out> | AsyncIterable<Chunk>,
): EndpointBinding<Owner> {
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
  return handle(endpoint, (owner: Owner) => {
    const run = bind(owner)
    return {
      find: (input: In) => findAllocation(owner.allocations, input.alloc_id),
      run: (input: In, call: Call, allocation: Allocation) => run(allocation, input, call),
    }
  })
}
