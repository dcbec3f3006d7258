/**
 * Which node a call is for, and the way there. An operation that belongs to a node is wrapped: for this process's own
 * node it runs as it is, for another one it is handed on, with the same input and the same token, which the other end
 * judges again. What is known to be gone is said at once, not after a timeout.
 */
import { Refusal } from '../kit/errors.ts'
import { type AnyOperation, type Call, type Chunk, type Identity, JsonText, type Place } from '../kit/operation.ts'
import { isUuid } from '../kit/schema.ts'
import type { ForwardedRequest } from './forward.ts'
import { HOPS_MAX } from './wire.ts'

/** Who has what, as far as this process knows. */
export interface Directory {
  /** This process's node; undefined on a server that is none. */
  readonly ownNodeId: string | undefined
  hasAllocation(allocationId: string): boolean
  /** The node of an allocation that is elsewhere. */
  nodeOf(allocationId: string): string | undefined
  /** Undefined for a node that nobody has heard of. */
  nodeState(nodeId: string): 'ready' | 'down' | undefined
  /** True for a process that keeps no such list and can ask one that does. */
  readonly canAsk: boolean
}

/** Where a call goes: a node, or any server; undefined when it is for this process, or for nobody, as it will say itself. */
type Destination = { readonly nodeId: string | undefined } | undefined

/** What hands calls on; see `forward.ts`. */
export interface Forwarding {
  value(request: ForwardedRequest): Promise<string | undefined>
  stream(request: ForwardedRequest): AsyncIterable<Chunk>
}

/** The operation as it is served where several nodes can be reached. Only those with the target `node` are changed. */
export function routed(operation: AnyOperation, directory: Directory, forwarding: Forwarding): AnyOperation {
  if (operation.target !== 'node' || !operation.locate) return operation
  const destinationOf = (input: unknown): Destination => {
    const place = operation.locate?.(input)
    return place && destination(place, directory)
  }
  return {
    ...operation,
    authorize(input: unknown, identity: Identity) {
      const to = destinationOf(input)
      // A process that does not know the place cannot judge; both that it asks will.
      if (to && to.nodeId === undefined) return
      // The permission is a matter of the call; whose node it is, is settled.
      operation.authorize(to ? withoutNode(input) : input, identity)
    },
    run(input: unknown, call: Call) {
      const to = destinationOf(input)
      if (!to) return operation.run(input, call)
      const request = requestFor(operation, to.nodeId, call)
      if (operation.output === 'stream') return forwarding.stream(request)
      return forwarding.value(request).then((json) => (json === undefined ? undefined : new JsonText(json)))
    },
  }
}

function destination(place: Place, directory: Directory): Destination {
  if ('allocationId' in place) {
    const { allocationId } = place
    if (directory.hasAllocation(allocationId)) return undefined
    const nodeId = directory.nodeOf(allocationId)
    if (nodeId !== undefined) return reachable(nodeId, directory)
    return directory.canAsk && isUuid(allocationId) ? { nodeId: undefined } : undefined
  }
  const { nodeId } = place
  if (nodeId === undefined) {
    if (directory.ownNodeId !== undefined) return undefined
    throw new Refusal('invalid_request', 'No local Node and node_id not provided')
  }
  if (nodeId === directory.ownNodeId) return undefined
  if (!isUuid(nodeId)) {
    const shown = nodeId.length > 64 ? `${nodeId.slice(0, 61)}...` : nodeId
    const text = `node lookup failed: ${JSON.stringify(shown)} is not a full node ID, give all 36 characters of the UUID`
    throw new Refusal('invalid_request', text)
  }
  return directory.canAsk ? { nodeId: undefined } : reachable(nodeId, directory)
}

function reachable(nodeId: string, directory: Directory): Destination {
  const state = directory.nodeState(nodeId)
  if (state === undefined) throw new Refusal('not_found', `Unknown node ${nodeId}`)
  if (state === 'down') throw new Refusal('not_found', 'No path to node')
  return { nodeId }
}

function withoutNode(input: unknown): unknown {
  return typeof input === 'object' && input !== null ? { ...input, node_id: undefined } : input
}

function requestFor(operation: AnyOperation, nodeId: string | undefined, call: Call): ForwardedRequest {
  if (call.hops + 1 >= HOPS_MAX) throw new Refusal('not_found', 'No path to node')
  const { raw, token, requestId, hops, signal } = call
  return { nodeId, operation: operation.name, input: raw, token, requestId, hops, signal }
}
