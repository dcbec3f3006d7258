/**
 * Every subject there is, in one place. An agent needs to publish below `server` and `roster` and to subscribe below its
 * own `node.<id>`; a server the other way round. The permissions in `systemd/nats` say exactly that.
 *
 *     outpost.<region>.node.<id>.call              a call for the node; its reply is the caller's
 *     outpost.<region>.node.<id>.flow.<call>       credit and cancel for a call under way
 *     outpost.<region>.node.<id>.describe          please say your whole state
 *     outpost.<region>.server.<id>.reply.<call>    what comes of a call
 *     outpost.<region>.server.any.call             a call that any server may serve (queue group)
 *     outpost.<region>.server.<id>.flow.<call>     credit and cancel for a call that this server has taken
 *     outpost.<region>.roster.<node>.<kind>        what a node says about itself
 */

export class Subjects {
  readonly #root: string

  constructor(region: string) {
    this.#root = `outpost.${region}`
  }

  call(nodeId: string): string {
    return `${this.#root}.node.${nodeId}.call`
  }

  flow(nodeId: string, call: string): string {
    return `${this.#root}.node.${nodeId}.flow.${call}`
  }

  /** A call that any server may serve. */
  get anyServer(): string {
    return `${this.#root}.server.any.call`
  }

  serverFlow(serverId: string, call: string): string {
    return `${this.#root}.server.${serverId}.flow.${call}`
  }

  reply(callerId: string, call: string): string {
    return `${this.#root}.server.${callerId}.reply.${call}`
  }

  describe(nodeId: string): string {
    return `${this.#root}.node.${nodeId}.describe`
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
