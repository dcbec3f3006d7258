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
import { Refusal } from '../kit/errors.ts'
import { type AnyOperation, type Call, type Chunk, type Identity, type JsonText, type Place } from '../kit/operation.ts'
import { isUuid } from '../kit/schema.ts'
import type { ForwardedRequest } from './forward.ts'
import type { NodeStatus } from './roster.ts'
import { ANY, type Group } from './subjects.ts'
import { HOPS_MAX, wholeAnswerOf } from './wire.ts'

/** Who has what, as far as this process knows. */
export interface Directory {
  /** This process's node; undefined on a server that is none. */
  readonly ownNodeId: string | undefined
  hasAllocation(allocationId: string): boolean
  /** The node of an allocation that is elsewhere. */
  nodeOf(allocationId: string): string | undefined
  /** The namespace of an allocation that is elsewhere. */
  namespaceOf(allocationId: string): string | undefined
  /** Undefined for a node that nobody has heard of. */
  nodeState(nodeId: string): NodeStatus | undefined
  /** True for a process that keeps no such list and can ask one that does. */
  readonly canAsk: boolean
}

/** Where a call goes: a node, or any server; undefined when it is for this process, or for nobody, as it will say itself. */
type Destination =
  | { readonly nodeId: undefined }
  /** With the namespaces that the call is about. */
  | { readonly nodeId: string; readonly namespaces: readonly string[] }
  | undefined

/** What hands calls on; see `forward.ts`. */
export interface Forwarding {
  answer(request: ForwardedRequest): Promise<JsonText | undefined>
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
      return to ? handOn(operation, to, call, forwarding) : operation.run(input, call)
    },
  }
}

/** A server's operation as a process without a roster serves it: by asking any server, which also judges. */
export function relayed(operation: AnyOperation, forwarding: Forwarding, group: Group = ANY): AnyOperation {
  return {
    ...operation,
    authorize: () => undefined,
    run: (_input: unknown, call: Call) => handOn(operation, { nodeId: undefined, group }, call, forwarding),
  }
}

type To = NonNullable<Destination> & { readonly group?: Group }

function handOn(operation: AnyOperation, to: To, call: Call, forwarding: Forwarding) {
  const request = requestFor(operation, to, call)
  if (operation.output === 'stream') return forwarding.stream(request)
  const answer = forwarding.answer(request)
  return operation.output === 'answer' ? answer.then(wholeAnswerOf) : answer
}

function destination(place: Place, directory: Directory): Destination {
  if ('allocationId' in place) {
    const { allocationId } = place
    if (directory.hasAllocation(allocationId)) return undefined
    const nodeId = directory.nodeOf(allocationId)
    if (nodeId !== undefined) return reachable(nodeId, directory, directory.namespaceOf(allocationId))
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

function reachable(nodeId: string, directory: Directory, namespace?: string): Destination {
  const state = directory.nodeState(nodeId)
  if (state === undefined) throw new Refusal('not_found', `Unknown node ${nodeId}`)
  if (state === 'down') throw new Refusal('not_found', 'No path to node')
  return { nodeId, namespaces: namespace === undefined ? [] : [namespace] }
}

function withoutNode(input: unknown): unknown {
  return typeof input === 'object' && input !== null ? { ...input, node_id: undefined } : input
}

function requestFor(operation: AnyOperation, to: To, call: Call): ForwardedRequest {
  if (call.hops + 1 >= HOPS_MAX) throw new Refusal('not_found', 'No path to node')
  const { raw, token, requestId, hops, identity, remote, signal } = call
  const request = { operation: operation.name, input: raw, requestId, hops, signal }
  // The token goes to servers only; a node gets what this server vouches for.
  return to.nodeId === undefined ? { ...to, ...request, token, remote } : { ...to, ...request, identity }
}
