/**
 * How a process takes part in a cluster: which rooms' parts meet on the bus, and in which order they come and go.
 *
 * A server keeps the roster and hands calls on; a host says what it has and serves calls. One process may be both, and
 * then both meet on a bus in memory when there is no NATS.
 */
import { createPrivateKey, createPublicKey, randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type RemoteAuthorizer, createRemoteAuthorizer } from '../cluster/trust/remote-authorizer.ts'
import { type Authorizer, UNRESTRICTED, type LocalAuthorizer } from '../cluster/trust/authorizer.ts'
import { AssertionIssuer } from '../cluster/rpc/assertion-issuer.ts'
import { NodeAnnouncer } from '../cluster/roster/node-announcer.ts'
import { CurveKey } from '../cluster/trust/envelope.ts'
import { Forwarder } from '../cluster/rpc/forwarder.ts'
import { type MessageBus, MemoryBroker } from '../cluster/nats/message-bus.ts'
import { RosterListener } from '../cluster/roster/roster-listener.ts'
import type { NatsOptions } from '../cluster/nats/nats-bus.ts'
import { NodeAdmission } from '../cluster/rpc/node-admission.ts'
import { RegionCores } from '../cluster/roster/region-cores.ts'
import { Roster } from '../cluster/roster/roster.ts'
import type { RosterStore } from '../cluster/roster/roster-records.ts'
import { type NodeDirectory, forwarded, relayed, routed } from '../cluster/route.ts'
import { CallServer } from '../cluster/rpc/call-server.ts'
import { SealedCallReceiver } from '../cluster/rpc/sealed-call-receiver.ts'
import { SealedCallSender } from '../cluster/rpc/sealed-call-sender.ts'
import { serverSigningKey } from '../cluster/nats/nkey.ts'
import { SERVER_ENDPOINTS, ServerApi } from '../cluster/api/server-operations.ts'
import { callEveryNode } from '../cluster/api/status-operations.ts'
import { ServerKeys } from '../cluster/trust/server-trust.ts'
import { parseRoster } from '../cluster/roster/roster-records.ts'
import { type ServerGroup, type ClusterMember, Subjects } from '../cluster/nats/subjects.ts'
import { isShortened } from '../cluster/nats/timings.ts'
import {
  FORGET_TOKENS,
  forgetTokensOperation,
  parseGrants,
  RESOLVE_TOKEN,
  resolveTokenOperation,
  SERVER_IDENTITY,
} from '../cluster/trust/token-operations.ts'
import type { Config } from '../config/load.ts'
import { nextRun } from './files.ts'
import { nodeStateOf } from './node-state.ts'
import { identityOf } from './settings.ts'
import { nodeGc } from '../host/gc/gc-operations.ts'
import type { Host } from '../host/host.ts'
import { HOST_ENDPOINTS } from '../host/host-operations.ts'
import { fsLogs } from '../host/logs/logs.ts'
import { Fault, Refusal } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'
import type { AnyEndpoint, AnyOperation, Callers, Grants, WholeAnswer } from '../platform/operation.ts'
import type { Question } from '../login/session.ts'
import { AGENT_LOGIN } from '../secrets/request/core-endpoints.ts'
import { RosterDatabase } from '../storage/store/roster-store.ts'

/** Calls of other processes that a node serves at once; each may be a stream. */
const CALLS_MAX = 4096
/** For a server to say who a token is. */
const ASK_TIMEOUT_MS = 5000
/**
 * For so long a server's answer about a token is used without asking again: a burst of calls is one question. A server
 * without the core is not told of a seal, as agents are, so it asks more often.
 */
const TOKEN_FRESH_MS = { agent: 5000, server: 1000 }
/** For agents to forget what they remember about tokens, when the core is sealed. */
const FORGET_TIMEOUT_MS = 1000
const FORGETTING_AT_ONCE = 512
/** For a connection to NATS, where the agent is to log in. */
const CONNECT_MS = 3000
const CONNECT_LOOK_MS = 50

/** The roster's rows as its database keeps them. */
export function rosterStoreIn(database: RosterDatabase): RosterStore {
  return {
    saveNode: (id, record, publicKey) => database.put('node', id, { record, publicKey }),
    saveAllocation: (id, record) => database.put('allocation', id, record),
    removeNode: (id) => database.remove('node', id),
    removeAllocation: (id) => database.remove('allocation', id),
    saveOwner: (id, owner) => database.put('claim', id, owner),
    removeOwner: (id) => database.remove('claim', id),
    load() {
      const [nodes, allocations, owners] = [database.rows('node'), database.rows('allocation'), database.rows('claim')]
      return parseRoster({ nodes, allocations, owners }, (table, id) => database.tellUnreadable(table, id))
    },
  }
}

export interface ClusterOptions {
  readonly config: Config
  readonly version: string
  readonly logger: Logger
}

interface OwnCore {
  /** The secrets core's endpoints, where this process has one. */
  readonly core: readonly AnyOperation[] | undefined
  /** Of the secrets core, once that is initialised. */
  readonly clusterId: () => string | undefined
}

/** This process's part in the cluster; absent where it stands alone. */
export class Cluster {
  readonly #options: ClusterOptions
  readonly #bus: MessageBus
  readonly #subjects: Subjects
  readonly #forwarder: Forwarder
  readonly roster: Roster | undefined
  /** What a server keeps; absent on an agent, which asks one. */
  readonly #api: ServerApi | undefined
  #url = ''
  #listener: RosterListener | undefined
  #announcer: NodeAnnouncer | undefined
  #server: CallServer | undefined
  #asking: RemoteAuthorizer | undefined
  readonly #groups: CallServer[] = []
  #keys: ServerKeys | undefined
  /** On a server with NATS. */
  cores: RegionCores | undefined
  readonly #id = randomUUID()
  /** What is for this process alone is encrypted to it. */
  readonly #curve = new CurveKey()
  /** What agents may ask of this process as a server. */
  #offered: readonly AnyOperation[] = []
  readonly #stopping = new AbortController()
  /** The certificate of the NATS server at the newest connection; empty without TLS. */
  natsServer: { readonly expiryMs?: number } = {}
  /** Ends what has been started, the newest first. */
  readonly #undo = new AsyncDisposableStack()
  /** Connections to NATS that were made. */
  #connections = 0
  #stopped: Promise<void> | undefined

  /** Undefined where nobody else is to be reached: no NATS, and not both roles in one process. */
  static async open(options: ClusterOptions): Promise<Cluster | undefined> {
    const { config, logger } = options
    if (!config.nats && !config.server.enabled) return undefined
    if (isShortened) logger.warn('OUTPOST_TIMINGS is set: times of the cluster are those of a test')
    const name = `outpost ${config.name}`
    // What has been opened here is closed again where the rest does not come to be: a bus tries to connect for ever.
    await using begun = new AsyncDisposableStack()
    const path = join(config.dataDir, 'server', 'roster.db')
    const database = config.server.enabled ? RosterDatabase.open(path, logger.named('roster')) : undefined
    begun.defer(() => database?.close())
    const natsServer: { expiryMs?: number } = {}
    const bus = config.nats
      ? await natsBus({
          ...config.nats,
          name,
          logger: logger.named('nats'),
          onServerCertificate: (expiryMs) => (natsServer.expiryMs = expiryMs),
        })
      : new MemoryBroker().connect()
    begun.defer(() => bus.close())
    const cluster = new Cluster(options, bus, database)
    cluster.natsServer = natsServer
    cluster.#undo.use(begun.move())
    cluster.#undo.defer(() => cluster.#api?.stop())
    cluster.#undo.defer(() => cluster.#forwarder.stop())
    return cluster
  }

  private constructor(options: ClusterOptions, bus: MessageBus, database: RosterDatabase | undefined) {
    const { config, logger } = options
    this.#options = options
    this.#bus = bus
    this.#subjects = new Subjects(config.region)
    bus.onChange((isConnected) => {
      if (isConnected) this.#connections++
    })
    this.#forwarder = new Forwarder({ bus, subjects: this.#subjects })
    if (!database) return
    const checksClocks = options.config.acl.enabled
    this.roster = new Roster({ store: rosterStoreIn(database), logger: logger.named('roster'), checksClocks })
    this.#api = this.#createApi(this.roster)
  }

  #createApi(roster: Roster): ServerApi {
    const { config, version, logger } = this.#options
    const address = () => config.advertise.http ?? (this.#url === '' ? '' : new URL(this.#url).host)
    return new ServerApi({
      roster,
      region: config.region,
      facts: { name: config.name, datacenter: config.datacenter, version, id: this.#id, address },
      collect: (nodeId, { identity, requestId, hops }) =>
        this.#forwarder.value({
          nodeId,
          operation: nodeGc.endpoint.name,
          input: { params: {}, query: [], headers: {}, body: undefined },
          identity,
          requestId,
          hops,
          // It goes on when the caller has its answer.
          signal: this.#stopping.signal,
        }),
      logger: logger.named('server'),
    })
  }

  /** The host's endpoints and a server's, each going where it belongs. `others` are this process's own. */
  operations(host: Host | undefined, others: readonly AnyOperation[]): AnyOperation[] {
    const directory = this.#directory(host)
    const here = (operation: AnyOperation) => routed(operation, directory, this.#forwarder)
    const away = (endpoint: AnyEndpoint) => forwarded(endpoint, directory, this.#forwarder)
    const nodes = host?.operations.map(here) ?? HOST_ENDPOINTS.map(away)
    const routes = [...nodes, ...others.map(here)]
    const api = this.#api
    if (!api) return [...routes, ...SERVER_ENDPOINTS.map((each) => relayed(each, this.#forwarder))]
    const routedLogs = nodes.find(({ name }) => name === fsLogs.endpoint.name)
    if (!routedLogs) throw new Fault('the logs of allocations are served nowhere')
    const operations = api.operations(routedLogs)
    // Never what a server does about itself or its secrets core: reloading, snapshots.
    this.#offered = [...routes.filter(({ target }) => target === 'node'), ...operations]
    return [...routes, ...operations]
  }

  #directory(host: Host | undefined): NodeDirectory {
    const { roster } = this
    return {
      ownNodeId: host?.nodeId,
      hasAllocation: (id) => host?.allocations.get(id) !== undefined,
      allocation(id) {
        const record = roster?.allocation(id)
        return record && { nodeId: record.nodeId, namespace: record.allocation.namespace }
      },
      nodeState: (id) => roster?.node(id)?.status,
      canAsk: roster === undefined,
    }
  }

  /** Who is calling, on a process without a secrets core: servers are asked about tokens that are not its own. */
  authorizer(own: LocalAuthorizer, enabled: boolean, ttlMs: number): Authorizer {
    if (!enabled || !this.#options.config.nats) return own
    const ask = (token: string, remote: string | undefined, again: boolean) => this.#ask(token, remote, again)
    const freshMs = this.roster ? TOKEN_FRESH_MS.server : TOKEN_FRESH_MS.agent
    const asking = createRemoteAuthorizer({ local: own, ask, identityOf, freshMs, ttlMs })
    this.#asking = asking
    const grantsOf = (token: string | undefined, remote?: string, again = false) =>
      token === undefined || own.find(token) ? own.grantsOf(token) : this.#ask(token, remote, again)
    return { ...asking, grantsOf }
  }

  /** The secrets core of this process was sealed: agents must not go on with what they remember about its tokens. */
  async sealed(): Promise<void> {
    const signal = AbortSignal.timeout(FORGET_TIMEOUT_MS)
    const input = { params: {}, query: [], headers: {}, body: undefined }
    const order = { operation: FORGET_TOKENS, identity: SERVER_IDENTITY, input, requestId: 'sealed', hops: 0, signal }
    const api = this.#api
    if (!api) return
    const tell = async (nodeId: string) => await this.#forwarder.value({ nodeId, ...order })
    const { called, failed, error } = await callEveryNode(api.queries, tell, FORGETTING_AT_ONCE)
    if (failed === 0) return
    const logger = this.#options.logger.named('tokens')
    logger.warn('not every agent was told to forget tokens; they ask again soon', { agents: called, failed, error })
  }

  /** An agent asks any server; a server without a core of its own asks one that has it. */
  async #ask(token: string, remote: string | undefined, again: boolean): Promise<Grants> {
    const query: [string, string][] = again ? [['again', 'true']] : []
    const input = { params: {}, query, headers: {}, body: undefined }
    const signal = AbortSignal.timeout(ASK_TIMEOUT_MS)
    const group = this.roster ? 'core' : 'any'
    const common = { nodeId: undefined, group, operation: RESOLVE_TOKEN, requestId: 'resolve', hops: 0 } as const
    // What an agent says about an address is no evidence, so it says nothing.
    const seen = this.roster ? remote : undefined
    try {
      return parseGrants(await this.#forwarder.value({ ...common, input, token, remote: seen, signal }))
    } catch (error) {
      // It was this process that waited, and no caller of it has gone.
      if (signal.aborted) throw new Refusal('no_answer', 'the server does not answer, try again')
      throw error
    }
  }

  /** A question of this agent's own login. Rejects with a Refusal where no server can be asked. */
  async agentLogin(question: Question, token: string | undefined, signal: AbortSignal): Promise<WholeAnswer> {
    const input = { params: { path: question.path }, query: [], headers: {}, body: JSON.stringify(question.body) }
    const group = this.roster ? 'core' : 'any'
    const common = { nodeId: undefined, group, operation: AGENT_LOGIN.name, requestId: randomUUID(), hops: 0 } as const
    await this.#connected(signal)
    try {
      return await this.#forwarder.whole({ ...common, input, token, signal })
    } catch (error) {
      if (signal.aborted) throw new Refusal('no_answer', 'the server does not answer')
      throw error
    }
  }

  /** A connection that is just being made is waited for. */
  async #connected(signal: AbortSignal): Promise<void> {
    const over = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_MS)])
    while (!this.#bus.isConnected && !over.aborted) await sleep(CONNECT_LOOK_MS, undefined, { ref: false })
  }

  /** The core's endpoints as a server without one serves them: by asking the server that has it. */
  relayedCore(endpoints: readonly AnyEndpoint[]): AnyOperation[] {
    return endpoints.map((each) => relayed(each, this.#forwarder, 'core'))
  }

  /** Begins to hear, to say and to serve. `operations` are the host's own. */
  start(
    parts: OwnCore & {
      readonly host: Host | undefined
      readonly operations: readonly AnyOperation[]
      readonly url: string
      readonly callers: Callers
      readonly grantsOf: (token: string | undefined, remote?: string, again?: boolean) => Grants | Promise<Grants>
    },
  ): void {
    const { logger } = this.#options
    this.#url = parts.url
    // As a server it may hear every node; an agent speaks as itself only.
    const self = this.roster || !parts.host ? { serverId: this.#id } : { nodeId: parts.host.nodeId }
    const keys = this.#startKeys(self, parts)
    this.#keys = keys
    if (this.roster && this.#options.config.nats) this.#startCores(keys, parts)
    this.#forwarder.start(self, {
      sender: new SealedCallSender({ keys, curve: this.#curve, logger: logger.named('calls') }),
      issuer: new AssertionIssuer({ key: () => keys.own }),
    })
    if (this.roster) {
      const heard = { roster: this.roster, ownNodeId: parts.host?.nodeId }
      this.#listener = new RosterListener({ bus: this.#bus, subjects: this.#subjects, ...heard })
      this.#listener.start()
      this.#undo.defer(() => this.#listener?.stop())
      const tokens = resolveTokenOperation(parts.grantsOf)
      const sealed = { bus: this.#bus, curve: this.#curve }
      const login =
        parts.core?.find(({ name }) => name === AGENT_LOGIN.name) ?? relayed(AGENT_LOGIN, this.#forwarder, 'core')
      this.#serveGroup('any', new SealedCallReceiver(sealed), [...this.#offered, tokens, login], parts.callers)
      const ofServers = new SealedCallReceiver({ ...sealed, servers: keys })
      if (parts.core) this.#serveGroup('core', ofServers, [...parts.core, tokens], parts.callers)
    }
    const { host } = parts
    if (!host) return
    const common = { bus: this.#bus, subjects: this.#subjects, nodeId: host.nodeId }
    const isOpen = () => parts.callers.resolve(undefined, undefined) === UNRESTRICTED
    const admission = new NodeAdmission({ nodeId: host.nodeId, keys, isOpen, logger: logger.named('calls') })
    this.#server = new CallServer({
      bus: this.#bus,
      subjects: this.#subjects,
      as: { nodeId: host.nodeId, admission },
      operations: [...parts.operations, forgetTokensOperation(() => this.#asking?.clear())],
      logger: logger.named('calls'),
      callsMax: CALLS_MAX,
      isSuperseded: () => this.#announcer?.isSuperseded ?? false,
    })
    this.#server.start()
    this.#undo.defer(() => this.#server?.stop())
    const privateKey = createPrivateKey(host.signingKey)
    const publicKey = createPublicKey(privateKey).export({ format: 'der', type: 'spki' }).subarray(-32)
    const announcer = new NodeAnnouncer({
      ...common,
      key: { privateKey, publicKey },
      nextRun: (above) => nextRun(this.#options.config.client.stateDir, above),
      state: () => nodeStateOf(host, this.#options, parts.url),
      logger: logger.named('roster'),
    })
    this.#announcer = announcer
    this.#undo.defer(() => announcer.stop())
    this.#undo.defer(host.allocations.onChange(() => announcer.changed()))
    announcer.start()
  }

  /** Whose word counts as a server's. Throws before `start`. */
  get trust(): ServerKeys {
    if (!this.#keys) throw new Fault('the cluster has not started')
    return this.#keys
  }

  /** Takes over the keys of servers from a configuration that was read again. */
  reload({ nats }: Config): void {
    this.#keys?.trust(nats ?? {})
  }

  #startCores(keys: ServerKeys, { clusterId, core }: OwnCore): void {
    const { config, logger } = this.#options
    const self = { serverId: this.#id, name: config.name, hasCore: core !== undefined }
    const common = { bus: this.#bus, region: config.region, logger: logger.named('cores') }
    this.cores = new RegionCores({ ...common, keys, self, clusterId })
    this.cores.start()
    this.#undo.defer(() => this.cores?.stop())
  }

  /** Before this server is initialised. Rejects with a Refusal where the region has a core already, or may have one. */
  async requireNoOtherCore(): Promise<void> {
    if (!this.roster || !this.#options.config.nats) return
    await this.#connected(this.#stopping.signal)
    if (!this.cores) throw new Refusal('unavailable', 'the server is starting, try again')
    await this.cores.requireNone()
  }

  #startKeys(self: ClusterMember, { clusterId, core }: OwnCore): ServerKeys {
    const { config, logger } = this.#options
    const login = config.nats
    const { publicKey: curveKey } = this.#curve
    const about = { serverId: this.#id, name: config.name, hasCore: core !== undefined, curveKey }
    const keys = new ServerKeys({
      bus: this.#bus,
      subjects: this.#subjects,
      self,
      trusted: config.nats ?? {},
      readOwnKey: this.roster && (() => serverSigningKey({ login, directory: join(config.dataDir, 'server') })),
      about: this.roster && about,
      clusterId,
      logger: logger.named('keys'),
    })
    keys.start()
    this.#undo.defer(() => keys.stop())
    return keys
  }

  #serveGroup(
    group: ServerGroup,
    sealed: SealedCallReceiver,
    operations: readonly AnyOperation[],
    callers: Callers,
  ): void {
    const server = new CallServer({
      bus: this.#bus,
      subjects: this.#subjects,
      as: { serverId: this.#id, sealed, callers },
      group,
      operations,
      logger: this.#options.logger.named('calls'),
      callsMax: CALLS_MAX,
    })
    this.#groups.push(server)
    server.start()
    this.#undo.defer(() => server.stop())
  }

  /** Long polls of other processes answer at once, while this one can still answer. */
  drain(): void {
    for (const server of this.#groups) server.drain()
  }

  /** Streams that are handed on break; the node is said to leave. May be called at any moment and more than once. */
  stop(): Promise<void> {
    this.#stopping.abort()
    this.#stopped ??= this.#undo.disposeAsync()
    return this.#stopped
  }

  /** The connection to NATS; a bus in memory is always connected. */
  get connection(): { readonly isConnected: boolean; readonly reconnects: number } {
    return { isConnected: this.#bus.isConnected, reconnects: Math.max(0, this.#connections - 1) }
  }

  /** Calls between processes that are under way. */
  get callsInFlight(): { readonly forwarded: number; readonly served: number } {
    const servers = [...this.#groups, ...(this.#server ? [this.#server] : [])]
    return { forwarded: this.#forwarder.calls, served: servers.reduce((sum, { calls }) => sum + calls, 0) }
  }

  /** Bytes of answers that other processes have given. */
  get forwardedBytes(): number {
    return this.#forwarder.answerBytes
  }

  /** Messages about nodes, by what became of them. */
  get nodeMessages(): Readonly<Record<string, number>> {
    return this.#listener?.counts ?? {}
  }
}

/** The client of NATS is loaded where there is one only. */
async function natsBus(options: NatsOptions): Promise<MessageBus> {
  const { openNatsBus } = await import('../cluster/nats/nats-bus.ts')
  return openNatsBus(options)
}
