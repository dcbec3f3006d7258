/**
 * Every subject there is, in one place.
 *
 *     outpost.<region>.node.<id>.call                      a call for the node, from a server
 *     outpost.<region>.node.<id>.flow.<call>               credit and cancel for it
 *     outpost.<region>.node.<id>.describe                  please say your whole state
 *     outpost.<region>.node.<id>.reply.any.<call>          what comes of a call that the node has made
 *     outpost.<region>.server.<id>.call.<caller>           a call for the server, from a node or a server; sealed
 *     outpost.<region>.server.<id>.core.<caller>           the same for its secrets core, from a server only
 *     outpost.<region>.server.<id>.flow.<caller>.<call>    credit and cancel for either
 *     outpost.<region>.server.<id>.reply.<from>.<call>     what comes of a call that a server has made, from a node or `any`
 *     outpost.<region>.roster.<node>.<kind>                what a node says about itself
 *     outpost.<region>.servers.key                         what a server says about itself: its keys (only servers publish)
 *     outpost.<region>.servers.ask.<caller>                please say it again
 *
 * Each holds who speaks wherever it is not a server, so that permissions can keep every agent to its own name: it may
 * neither answer for another node, nor steer another's calls, nor hear them, and tokens travel in calls. Servers may do
 * all that is theirs. `permissions.ts` says exactly that to a NATS server.
 */

/** Who calls on the bus: an agent as its node, a server under a name of its run. */
export type Party = { readonly nodeId: string } | { readonly serverId: string }

/** In the subject of an answer: it comes from a server. */
export const ANY = 'any'
/** Which servers a call may go to that names no node: all of them, or those with the secrets core. */
export type Group = typeof ANY | 'core'

export interface ReplyParts {
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

  /** Calls for a server; with the group `core`, those for its secrets core, which agents may not publish. */
  serverCall(serverId: string, callerId: string, group: Group = ANY): string {
    return `${this.#root}.server.${serverId}.${group === ANY ? 'call' : 'core'}.${callerId}`
  }

  serverFlow(serverId: string, callerId: string, call: string): string {
    return `${this.#root}.server.${serverId}.flow.${callerId}.${call}`
  }

  /** Where the caller hears what comes of a call; `from` is a node, or `ANY`. */
  reply(caller: Party, from: string, call: string): string {
    const own = 'nodeId' in caller ? `node.${caller.nodeId}` : `server.${caller.serverId}`
    return `${this.#root}.${own}.reply.${from}.${call}`
  }

  /** The parts of a subject where a caller hears what comes of a call; undefined for any other. */
  partsOfReply(subject: string): ReplyParts | undefined {
    if (!subject.startsWith(this.#prefix)) return undefined
    const [kind, callerId, word, from, call, ...more] = subject.slice(this.#prefix.length).split('.')
    if (kind !== 'node' && kind !== 'server') return undefined
    if (!callerId || word !== 'reply' || !from || !call || more.length > 0) return undefined
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

  /** Whose message of which kind; undefined for what is no subject of the roster. */
  partsOfRoster(subject: string): { readonly nodeId: string; readonly kind: string } | undefined {
    const prefix = `${this.#root}.roster.`
    if (!subject.startsWith(prefix)) return undefined
    const [nodeId, kind, ...more] = subject.slice(prefix.length).split('.')
    return nodeId === undefined || kind === undefined || more.length > 0 ? undefined : { nodeId, kind }
  }
}

export function nameOf(party: Party): string {
  return 'nodeId' in party ? party.nodeId : party.serverId
}

/** The last parts of a subject, joined. */
export function lastParts(subject: string, count: number): string {
  let at = subject.length
  for (let left = count; left > 0 && at >= 0; left--) at = subject.lastIndexOf('.', at - 1)
  return subject.slice(at + 1)
}
