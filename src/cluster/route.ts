/**
 * The cluster room: several processes as one. A *server* keeps the roster of nodes and their allocations; a *node* says
 * what it has and serves calls; a call that reaches the wrong process is handed on to the right one.
 *
 * The way of a call. `route` (this file) wraps each operation that belongs to a node: for this process's own it runs as it
 * is, otherwise `forward` sends input and request ID to the node, with an assertion in place of the token (`call-to-node`,
 * `assertion`): who calls and with which rights, signed by this server. There `node-admission` checks it, and `serve` looks
 * up the very same operation, parses, authorises and runs it, and sends back what it gives as the caller takes it. A process without a roster asks
 * any server. Who speaks about a node is in `description` (signed messages), `announce` (the node's side), `listen` and
 * `roster` (the server's). Everything crosses a `link`: NATS between machines, memory within a process. Tokens are
 * resolved by `authorizer`, and by asking a server where they are not known (`asking-authorizer`).
 *
 * Promises. Permission is judged at every hop by what that hop knows, and never less strictly than where the call came in.
 * An answer that lost a part, its node or its connection breaks; it never looks whole. No caller makes anybody hold more
 * than the window of its call. Whatever arrives on the bus, from whomever, is parsed into a narrow type or dropped. What
 * is known to be gone is said at once.
 *
 * Assumes that the bus delivers messages of one sender in order or not at all, and that its permissions keep a node from
 * reading what is meant for another (docs/decisions/014). Calls to servers are sealed to the one that is asked, so that only
 * it reads the tokens and secrets in them (`call-to-server`, `sealed-calls`, docs/decisions/027); whose keys are servers' is
 * known to `server-trust`.
 *
 * What can go wrong. The bus is down: calls to other nodes are refused, each process goes on with what is its own. A node
 * is silent: its calls break after seven seconds, its record is `down` after three beats. Two processes with one node
 * ID: the second key is refused, loudly. A server that was away: complete again within one beat, from what nodes say.
 */
import { Fault, Refusal } from '../platform/errors.ts'
import {
  type AnyEndpoint,
  type AnyOperation,
  type Call,
  type Chunk,
  type Handler,
  type JsonText,
  type CallTarget,
  unknownAllocation,
  unknownNode,
  type WholeAnswer,
} from '../platform/operation.ts'
import { isUuid } from '../platform/schema.ts'
import type { ForwardedRequest } from './rpc/forwarder.ts'
import type { NodeStatus } from './roster/roster-records.ts'
import { ANY, type ServerGroup } from './nats/subjects.ts'
import { HOPS_MAX } from './rpc/call-message.ts'

/** Who has what, as far as this process knows. */
export interface Directory {
  /** This process's node; undefined on a server that is none. */
  readonly ownNodeId: string | undefined
  hasAllocation(allocationId: string): boolean
  /** Where an allocation is that is elsewhere. */
  allocation(allocationId: string): { readonly nodeId: string; readonly namespace: string } | undefined
  /** Undefined for a node that nobody has heard of. */
  nodeState(nodeId: string): NodeStatus | undefined
  /** True for a process that keeps no such list and can ask one that does. */
  readonly canAsk: boolean
}

/** Where a call goes that is not for this process: to a node, or to any server. What it is about, as far as is known here. */
class Destination {
  /** Undefined: any server. */
  readonly nodeId: string | undefined
  /** Of the allocation that the call is about. */
  readonly namespace: string | undefined

  constructor(nodeId: string | undefined, namespace?: string) {
    this.nodeId = nodeId
    this.namespace = namespace
  }
}

const ANY_SERVER = new Destination(undefined)

/** What hands calls on; see `forward.ts`. */
export interface Forwarding {
  answer(request: ForwardedRequest): Promise<JsonText | undefined>
  whole(request: ForwardedRequest): Promise<WholeAnswer>
  stream(request: ForwardedRequest): AsyncIterable<Chunk>
}

/**
 * An operation as it is served where several nodes can be reached: here for what is here, otherwise where it belongs. Only
 * those with the target `node` are changed.
 */
export function routed(operation: AnyOperation, directory: Directory, forwarding: Forwarding): AnyOperation {
  const isPlaced = operation.target === 'node' && 'locate' in operation
  return isPlaced ? placed(operation, operation, directory, forwarding) : operation
}

/** An endpoint of nodes on a server that is none: all of its calls are handed on. */
export function forwarded(endpoint: AnyEndpoint, directory: Directory, forwarding: Forwarding): AnyOperation {
  return placed(endpoint, undefined, directory, forwarding)
}

/** `handler` runs what is here. What a call is about is its destination, or what the handler finds. */
function placed(
  endpoint: AnyEndpoint,
  handler: Handler<unknown, unknown> | undefined,
  directory: Directory,
  forwarding: Forwarding,
): AnyOperation {
  return {
    ...endpoint,
    find(input) {
      const place = endpoint.locate?.(input)
      const to = place && destination(place, directory)
      if (to) return to
      if (!handler && place && 'allocationId' in place) throw unknownAllocation(place.allocationId)
      return handler?.find?.(input)
    },
    authorize(input, identity, about) {
      // A process that does not know the place cannot judge; both that it asks will.
      if (about !== ANY_SERVER) endpoint.authorize(input, identity, about)
    },
    run(input, call, about) {
      if (about instanceof Destination) return handOn(endpoint, about, { input, call }, forwarding)
      if (handler) return handler.run(input, call, about)
      throw new Fault(`this process can only hand ${endpoint.name} on`)
    },
  }
}

/** A server's endpoint as a process without a roster or a core serves it: by asking any server that has it, which also judges. */
export function relayed(endpoint: AnyEndpoint, forwarding: Forwarding, group: ServerGroup = ANY): AnyOperation {
  return {
    ...endpoint,
    authorize: () => undefined,
    run: (input: unknown, call: Call) => handOn(endpoint, ANY_SERVER, { input, call }, forwarding, group),
  }
}

function handOn(
  endpoint: AnyEndpoint,
  to: Destination,
  { input, call }: { input: unknown; call: Call },
  forwarding: Forwarding,
  group: ServerGroup = ANY,
) {
  const isEndless = (endpoint.endless?.(input) || endpoint.longPoll?.(input)) ?? false
  const request = { ...requestFor(endpoint, to, call, group), isEndless }
  if (endpoint.output === 'stream') return forwarding.stream(request)
  return endpoint.output === 'answer' ? forwarding.whole(request) : forwarding.answer(request)
}

function destination(place: CallTarget, directory: Directory): Destination | undefined {
  if ('allocationId' in place) {
    const { allocationId } = place
    if (directory.hasAllocation(allocationId)) return undefined
    const known = directory.allocation(allocationId)
    if (known) return reachable(known.nodeId, directory, known.namespace)
    return directory.canAsk && isUuid(allocationId) ? ANY_SERVER : undefined
  }
  const { nodeId } = place
  if (nodeId === undefined) {
    if (directory.ownNodeId !== undefined) return undefined
    throw new Refusal('invalid_request', 'No local Node and node_id not provided')
  }
  if (nodeId === directory.ownNodeId) return undefined
  if (!isUuid(nodeId)) throw unknownNode(nodeId)
  return directory.canAsk ? ANY_SERVER : reachable(nodeId, directory)
}

function reachable(nodeId: string, directory: Directory, namespace?: string): Destination {
  const state = directory.nodeState(nodeId)
  if (state === undefined) throw unknownNode(nodeId)
  if (state === 'down') throw new Refusal('not_found', 'No path to node')
  return new Destination(nodeId, namespace)
}

function requestFor(endpoint: AnyEndpoint, to: Destination, call: Call, group: ServerGroup): ForwardedRequest {
  if (call.hops + 1 >= HOPS_MAX) throw new Refusal('not_found', 'No path to node')
  const { raw: input, requestId, hops, signal } = call
  const { nodeId, namespace } = to
  const request = { operation: endpoint.name, input, requestId, hops, signal }
  // The token goes to servers only; a node gets what this server vouches for.
  if (nodeId === undefined) {
    return { ...request, nodeId, group, token: call.token, remote: call.remote, draining: call.draining }
  }
  return { ...request, nodeId, identity: call.identity, namespaces: namespace === undefined ? [] : [namespace] }
}
