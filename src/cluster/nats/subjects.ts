/**
 * All subjects of a cluster, without those of high availability (`ha-subjects.ts`).
 *
 *     outpost.<region>.node.<id>.call                      call to the node, from a server
 *     outpost.<region>.node.<id>.flow.<call>               its credit and cancellation
 *     outpost.<region>.node.<id>.describe                  request for the node's state
 *     outpost.<region>.node.<id>.reply.any.<call>          answer to a call of the node
 *     outpost.<region>.server.<id>.call.<caller>           call to the server, from a node or a server; sealed
 *     outpost.<region>.server.<id>.core.<caller>           call to its secrets core, from a server only; sealed
 *     outpost.<region>.server.<id>.flow.<caller>.<call>    credit and cancellation of both
 *     outpost.<region>.server.<id>.reply.<from>.<call>     answer to a call of a server, from a node or `any`
 *     outpost.<region>.roster.<node>.<kind>                heartbeat, state or leave message of a node
 *     outpost.<region>.servers.key                         announcement of a server with its keys (only servers publish)
 *     outpost.<region>.servers.ask.<caller>                request for announcements
 *
 * Each subject that an agent uses contains the agent's node ID, so permissions can restrict an agent to its own name: it
 * cannot answer for another node, nor control or read the calls of another node, which contain tokens. Servers may use all
 * subjects of servers. `permissions.ts` states these rules for a NATS server.
 */

/** A process on the bus: an agent by its node ID, a server by an ID of its run. */
export type ClusterMember = { readonly nodeId: string } | { readonly serverId: string }

/** In the subject of an answer: from any server. */
export const ANY = 'any'
/** Servers that may serve a call: all, or those with a secrets core. */
export type ServerGroup = typeof ANY | 'core'

export interface ReplySubject {
  readonly kind: 'node' | 'server'
  readonly callerId: string
  readonly from: string
  readonly call: string
}

export class Subjects {
  readonly #root: string
  readonly #prefix: string

  constructor(region: string) {
    this.#root = `outpost.${region}`
    this.#prefix = `${this.#root}.`
  }

  call(nodeId: string): string {
    return `${this.#root}.node.${nodeId}.call`
  }

  flow(nodeId: string, call: string): string {
    return `${this.#root}.node.${nodeId}.flow.${call}`
  }

  /** Calls to a server. Agents may not publish those of the group `core`. */
  serverCall(serverId: string, callerId: string, group: ServerGroup = ANY): string {
    return `${this.#root}.server.${serverId}.${group === ANY ? 'call' : 'core'}.${callerId}`
  }

  serverFlow(serverId: string, callerId: string, call: string): string {
    return `${this.#root}.server.${serverId}.flow.${callerId}.${call}`
  }

  /** Answers to a call; `from` is a node ID, or `ANY` for a server. */
  reply(caller: ClusterMember, from: string, call: string): string {
    const prefix = 'nodeId' in caller ? `node.${caller.nodeId}` : `server.${caller.serverId}`
    return `${this.#root}.${prefix}.reply.${from}.${call}`
  }

  /** Undefined for a subject that is not of an answer. */
  parseReply(subject: string): ReplySubject | undefined {
    if (!subject.startsWith(this.#prefix)) return undefined
    const [kind, callerId, type, from, call, ...more] = subject.slice(this.#prefix.length).split('.')
    if (kind !== 'node' && kind !== 'server') return undefined
    if (!callerId || type !== 'reply' || !from || !call || more.length > 0) return undefined
    return { kind, callerId, from, call }
  }

  describe(nodeId: string): string {
    return `${this.#root}.node.${nodeId}.describe`
  }

  get serverKey(): string {
    return `${this.#root}.servers.key`
  }

  askServers(callerId: string): string {
    return `${this.#root}.servers.ask.${callerId}`
  }

  roster(nodeId: string, kind: string): string {
    return `${this.#root}.roster.${nodeId}.${kind}`
  }

  /** Undefined for a subject that is not of the roster. */
  parseRoster(subject: string): { readonly nodeId: string; readonly kind: string } | undefined {
    const prefix = `${this.#root}.roster.`
    if (!subject.startsWith(prefix)) return undefined
    const [nodeId, kind, ...more] = subject.slice(prefix.length).split('.')
    return nodeId === undefined || kind === undefined || more.length > 0 ? undefined : { nodeId, kind }
  }
}

export function memberId(member: ClusterMember): string {
  return 'nodeId' in member ? member.nodeId : member.serverId
}

/** The last parts of a subject, joined by dots. */
export function lastParts(subject: string, count: number): string {
  let at = subject.length
  for (let left = count; left > 0 && at >= 0; left--) at = subject.lastIndexOf('.', at - 1)
  return subject.slice(at + 1)
}
