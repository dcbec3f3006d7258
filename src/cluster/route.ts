/**
 * The cluster module: several processes as one. A *server* keeps the roster of nodes and their allocations; a *node* reports its
 * state and serves calls; a call that arrives at another process is forwarded to the right one.
 *
 * Path of a call. `routed` (this file) wraps each operation of nodes. A call for this process's node runs here. Otherwise
 * `forwarder` sends input and request ID to the node, with an assertion in place of the token (`assertion-issuer`, `assertion`): the
 * caller and its permissions, authenticated by this server. There `node-admission` verifies it, and `call-server` finds the same
 * operation, parses, authorizes and runs it, and sends the answer as the caller takes it. A process without a roster asks any
 * server. Messages of nodes about themselves are in `node-messages` (signed), `node-announcer` (on the node), `roster-listener` and
 * `roster` (on the server). All messages use a `message-bus`: NATS between machines, memory within a process. Tokens are
 * resolved by `authorizer`, and by asking a server if they are unknown here (`remote-authorizer`).
 *
 * Promises. Permissions are checked at every hop, and never less strictly than at the first one. An answer that lost a part, its
 * node or its connection breaks; it never looks complete. A caller can make a process buffer at most the window of its call.
 * Each message from the bus, of any sender, is parsed into a narrow type or dropped. Failures that are known are reported at
 * once.
 *
 * Assumptions. The bus delivers messages of one sender in order or not at all, and its permissions keep a node from reading
 * messages for another one (docs/decisions/014). Calls to servers are sealed to one server, so only that one can read the tokens and
 * secrets in them (`sealed-call-sender`, `sealed-call-receiver`, docs/decisions/027). `server-trust` knows the keys of servers.
 *
 * Failure modes. Without the bus, calls to other nodes are refused, and each process continues to serve its own. The calls of
 * a silent node break after seven seconds, and it is `down` after three missed heartbeats. Of two processes with one node ID the
 * second key is rejected with an error in the log. A server that was disconnected is complete again after one heartbeat.
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
  type StreamedAnswer,
  unknownAllocation,
  unknownNode,
  type WholeAnswer,
} from '../platform/operation.ts'
import { isUuid } from '../platform/schema.ts'
import { ANY, type ServerGroup } from './nats/subjects.ts'
import type { NodeStatus } from './roster/node-status.ts'
import { HOPS_MAX } from './rpc/call-message.ts'
import type { ForwardedRequest } from './rpc/forwarder.ts'

/** Locations of nodes and allocations, as far as this process knows them. */
export interface NodeDirectory {
  /** Node of this process; undefined on a server without one. */
  readonly ownNodeId: string | undefined
  hasAllocation(allocationId: string): boolean
  /** Location of an allocation of another node. */
  allocation(allocationId: string): { readonly nodeId: string; readonly namespace: string } | undefined
  /** Undefined for an unknown node. */
  nodeState(nodeId: string): NodeStatus | undefined
  /** True for a process without a roster that can ask a server. */
  readonly canAsk: boolean
}

/** Destination of a call to another process: a node, or any server. Serves as the target of the call for `authorize`. */
class Destination {
  /** Undefined: any server. */
  readonly nodeId: string | undefined
  /** Namespace of the target allocation. */
  readonly namespace: string | undefined

  constructor(nodeId: string | undefined, namespace?: string) {
    this.nodeId = nodeId
    this.namespace = namespace
  }
}

const ANY_SERVER = new Destination(undefined)

/** The calls of a `Forwarder` that routing needs. */
export interface CallForwarder {
  answer(request: ForwardedRequest): Promise<JsonText | undefined>
  wholeOrStreamed(request: ForwardedRequest): Promise<WholeAnswer | StreamedAnswer>
  stream(request: ForwardedRequest): AsyncIterable<Chunk>
}

/**
 * Wraps an operation with the target `node`: a call for this process's node runs here, any other is forwarded. Other operations
 * are returned unchanged.
 */
export function routed(operation: AnyOperation, directory: NodeDirectory, forwarding: CallForwarder): AnyOperation {
  const isLocated = operation.target === 'node' && 'locate' in operation
  return isLocated ? withRouting(operation, operation, directory, forwarding) : operation
}

/** An endpoint of nodes on a server without a node: all calls are forwarded. */
export function forwarded(endpoint: AnyEndpoint, directory: NodeDirectory, forwarding: CallForwarder): AnyOperation {
  return withRouting(endpoint, undefined, directory, forwarding)
}

/** `handler` runs calls for this process's node. The target of a call is its destination, or what the handler finds. */
function withRouting(
  endpoint: AnyEndpoint,
  handler: Handler<unknown, unknown> | undefined,
  directory: NodeDirectory,
  forwarding: CallForwarder,
): AnyOperation {
  return {
    ...endpoint,
    find(input) {
      const target = endpoint.locate?.(input)
      const destination = target && destinationOf(target, directory)
      if (destination) return destination
      if (!handler && target && 'allocationId' in target) throw unknownAllocation(target.allocationId)
      return handler?.find?.(input)
    },
    authorize(input, identity, about) {
      // Without the location the caller cannot be authorized here; the server and the node will do it.
      if (about !== ANY_SERVER) endpoint.authorize(input, identity, about)
    },
    run(input, call, about) {
      if (about instanceof Destination) return forward(endpoint, about, { input, call }, forwarding)
      if (handler) return handler.run(input, call, about)
      throw new Fault(`this process can only forward ${endpoint.name}`)
    },
  }
}

/** An endpoint of servers on a process without a roster or core: all calls are forwarded to any server, which authorizes them. */
export function relayed(endpoint: AnyEndpoint, forwarding: CallForwarder, group: ServerGroup = ANY): AnyOperation {
  return {
    ...endpoint,
    authorize: () => undefined,
    run: (input: unknown, call: Call) => forward(endpoint, ANY_SERVER, { input, call }, forwarding, group),
  }
}

function forward(
  endpoint: AnyEndpoint,
  to: Destination,
  { input, call }: { input: unknown; call: Call },
  forwarding: CallForwarder,
  group: ServerGroup = ANY,
) {
  const isEndless = (endpoint.endless?.(input) || endpoint.longPoll?.(input)) ?? false
  const request = { ...requestFor(endpoint, to, call, group), isEndless }
  if (endpoint.output === 'stream') return forwarding.stream(request)
  return endpoint.output === 'answer' ? forwarding.wholeOrStreamed(request) : forwarding.answer(request)
}

function destinationOf(target: CallTarget, directory: NodeDirectory): Destination | undefined {
  if ('allocationId' in target) {
    const { allocationId } = target
    if (directory.hasAllocation(allocationId)) return undefined
    const known = directory.allocation(allocationId)
    if (known) return reachable(known.nodeId, directory, known.namespace)
    return directory.canAsk && isUuid(allocationId) ? ANY_SERVER : undefined
  }
  const { nodeId } = target
  if (nodeId === undefined) {
    if (directory.ownNodeId !== undefined) return undefined
    throw new Refusal('invalid_request', 'No local Node and node_id not provided')
  }
  if (nodeId === directory.ownNodeId) return undefined
  if (!isUuid(nodeId)) throw unknownNode(nodeId)
  return directory.canAsk ? ANY_SERVER : reachable(nodeId, directory)
}

function reachable(nodeId: string, directory: NodeDirectory, namespace?: string): Destination {
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
  // Tokens are sent to servers only; a node receives what this server asserts.
  if (nodeId === undefined) {
    return { ...request, nodeId, group, token: call.token, remote: call.remote, draining: call.draining }
  }
  return { ...request, nodeId, identity: call.identity, namespaces: namespace === undefined ? [] : [namespace] }
}
