/**
 * Connects the cluster module of this process: link, roster, calls, keys, and their start and stop order.
 *
 * A server keeps the roster and forwards calls; a host announces its state and serves calls. A process may be both; without NATS
 * both use an in-memory bus.
 */
import { createPrivateKey, createPublicKey, randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type RemoteAuthorizer, createRemoteAuthorizer } from '../../cluster/trust/remote-authorizer.ts'
import {
  type Authorizer,
  createHeldAuthorizer,
  UNRESTRICTED,
  type LocalAuthorizer,
} from '../../cluster/trust/authorizer.ts'
import { AssertionIssuer } from '../../cluster/rpc/assertion-issuer.ts'
import { NodeAnnouncer } from '../../cluster/roster/node-announcer.ts'
import { CurveKey } from '../../cluster/trust/envelope.ts'
import { Forwarder } from '../../cluster/rpc/forwarder.ts'
import { type MessageBus, MemoryBroker } from '../../cluster/nats/message-bus.ts'
import { RosterListener } from '../../cluster/roster/roster-listener.ts'
import { NodeAdmission } from '../../cluster/rpc/node-admission.ts'
import { RegionServers } from '../../cluster/roster/region-servers.ts'
import { RegionCores } from '../../cluster/roster/region-cores.ts'
import { Roster } from '../../cluster/roster/roster.ts'
import { type NodeDirectory, forwarded, relayed, routed } from '../../cluster/route.ts'
import { CallServer } from '../../cluster/rpc/call-server.ts'
import { SealedCallReceiver } from '../../cluster/rpc/sealed-call-receiver.ts'
import { SealedCallSender } from '../../cluster/rpc/sealed-call-sender.ts'
import { serverSigningKey } from '../../cluster/nats/nkey.ts'
import { SERVER_ENDPOINTS, ServerApi } from '../../cluster/api/server-operations.ts'
import { callEveryNode } from '../../cluster/api/status-operations.ts'
import { ServerWatch } from '../../cluster/trust/server-watch.ts'
import { ServerKeys } from '../../cluster/trust/server-trust.ts'
import { type ServerGroup, type ClusterMember, Subjects } from '../../cluster/nats/subjects.ts'
import { isShortened } from '../../cluster/nats/timings.ts'
import {
  FORGET_TOKENS,
  forgetTokensOperation,
  resolveTokenOperation,
  SERVER_IDENTITY,
} from '../../cluster/trust/token-operations.ts'
import { CoreCalls } from './core-calls.ts'
import type { Config } from '../../config/load.ts'
import { nextRun } from '../setup/files.ts'
import { nodeStateOf, type OwnCore } from './node-state.ts'
import { identityOf } from '../setup/settings.ts'
import { nodeGc } from '../../host/gc/gc-operations.ts'
import type { Host } from '../../host/host.ts'
import { HOST_ENDPOINTS } from '../../host/host-operations.ts'
import { fsLogs } from '../../host/logs/task-logs.ts'
import { Fault, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { AnyEndpoint, AnyOperation, Callers, WholeAnswer } from '../../platform/operation.ts'
import type { LoginRequest } from '../../login/session.ts'
import { AGENT_LOGIN } from '../../secrets/request/core-endpoints.ts'
import { RosterDatabase } from '../../storage/store/roster-store.ts'
import { parseRoster, type RosterStore } from '../../cluster/roster/roster-records.ts'

/** Limit of concurrent calls that a node serves; each may be a stream. */
const CALLS_MAX = 4096
/**
 * Time for which a resolved token is used without another request, so a burst of calls causes one. A server without the core is
 * not notified of a seal, as agents are, so its time is shorter.
 */
const TOKEN_FRESH_MS = { agent: 5000, server: 1000 }
/** Timeout of the order to agents to clear their token cache when the core is sealed. */
const FORGET_TIMEOUT_MS = 1000
const FORGETTING_AT_ONCE = 512
/** Timeout for a connection to NATS before a login of the agent. */
const CONNECT_MS = 3000
const CONNECT_LOOK_MS = 50
export interface ClusterOptions {
  readonly config: Config
  readonly version: string
  readonly logger: Logger
}

/** The cluster module of this process. */
export class Cluster {
  readonly #options: ClusterOptions
  readonly #bus: MessageBus
  readonly #subjects: Subjects
  readonly #forwarder: Forwarder
  readonly roster: Roster | undefined
  /** On a server. */
  readonly #api: ServerApi | undefined
  #url = ''
  /** The secrets core of this process, once started. */
  #own: OwnCore | undefined
  #listener: RosterListener | undefined
  #announcer: NodeAnnouncer | undefined
  #server: CallServer | undefined
  #asking: RemoteAuthorizer | undefined
  readonly #groups: CallServer[] = []
  #keys: ServerKeys | undefined
  /** `cores` on a server with NATS, `servers` on an agent. */
  cores: RegionCores | undefined
  servers: ServerWatch | undefined
  readonly calls: CoreCalls
  readonly #id = randomUUID()
  /** Public key to which other processes encrypt calls to this one. */
  readonly #curve = new CurveKey()
  /** Operations that agents may call on this server. */
  #offered: readonly AnyOperation[] = []
  readonly #stopping = new AbortController()
  /** Certificate of the last connected NATS server; empty without TLS. */
  natsServer: { readonly expiryMs?: number } = {}
  /** Undoes the started parts in reverse order. */
  readonly #undo = new AsyncDisposableStack()
  /** Number of connections to NATS so far. */
  #connections = 0
  #stopped: Promise<void> | undefined

  /** Undefined for an agent without NATS. */
  static async open(options: ClusterOptions): Promise<Cluster | undefined> {
    const { config, logger } = options
    if (!config.nats && !config.server.enabled) return undefined
    if (isShortened) logger.warn('OUTPOST_TIMINGS is set, which is for tests only: cluster timeouts are changed')
    // Closed again if the constructor throws: a bus would retry forever.
    await using begun = new AsyncDisposableStack()
    const path = join(config.dataDir, 'server', 'roster.db')
    const database = config.server.enabled ? RosterDatabase.open(path, logger.named('roster')) : undefined
    begun.defer(() => database?.close())
    const natsServer: { expiryMs?: number } = {}
    const bus = await openBus(config, logger, (expiryMs) => (natsServer.expiryMs = expiryMs))
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
    this.calls = new CoreCalls({ forwarder: this.#forwarder, isServer: database !== undefined, id: this.#id })
    if (!database) return
    const checksClocks = options.config.acl.enabled
    this.roster = new Roster({ store: rosterStoreIn(database), logger: logger.named('roster'), checksClocks })
    this.#api = this.#createApi(this.roster)
  }

  #createApi(roster: Roster): ServerApi {
    const { config, version, logger } = this.#options
    const facts = { name: config.name, datacenter: config.datacenter, version, id: this.#id, address: this.#address }
    return new ServerApi({
      roster,
      region: config.region,
      facts,
      servers: new RegionServers({
        keys: () => this.trust,
        hasOthers: config.nats !== undefined,
        isConnected: () => this.#bus.isConnected,
        self: () => ({
          ID: this.#id,
          Name: config.name,
          Version: version,
          Address: this.#address(),
          HasCore: this.#own?.core !== undefined,
          CoreState: this.#own?.coreState() ?? '',
          ClusterID: this.#own?.clusterId() ?? '',
        }),
        coreMembers: () => this.#own?.coreMembers?.(),
      }),
      collect: (nodeId, { identity, requestId, hops }) =>
        this.#forwarder.value({
          nodeId,
          operation: nodeGc.endpoint.name,
          input: { params: {}, query: [], headers: {}, body: undefined },
          identity,
          requestId,
          hops,
          // Continues after the caller received its answer.
          signal: this.#stopping.signal,
        }),
      logger: logger.named('server'),
    })
  }

  /** Of the HTTP API; empty before it listens. */
  readonly #address = (): string =>
    this.#options.config.advertise.http ?? (this.#url === '' ? '' : new URL(this.#url).host)

  /** Operations of hosts and servers, routed to their targets. `others` are the operations of the process itself. */
  operations(host: Host | undefined, others: readonly AnyOperation[]): AnyOperation[] {
    const directory = this.#directory(host)
    const here = (operation: AnyOperation) => routed(operation, directory, this.#forwarder)
    const away = (endpoint: AnyEndpoint) => forwarded(endpoint, directory, this.#forwarder)
    const nodes = host?.operations.map(here) ?? HOST_ENDPOINTS.map(away)
    const routes = [...nodes, ...others.map(here)]
    const api = this.#api
    if (!api) return [...routes, ...SERVER_ENDPOINTS.map((each) => relayed(each, this.#forwarder))]
    const routedLogs = nodes.find(({ name }) => name === fsLogs.endpoint.name)
    if (!routedLogs) throw new Fault('the operation host.logs is missing')
    const operations = api.operations(routedLogs)
    // Never operations of the server itself or of its secrets core: reload, snapshots.
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

  /** The authorizer of a process without a secrets core: servers resolve tokens that are not in its configuration. */
  authorizer(own: LocalAuthorizer, enabled: boolean, ttlMs: number): Authorizer {
    if (!enabled || !this.#options.config.nats) return own
    const { calls } = this
    const ask = (token: string, remote: string | undefined, again: boolean) => calls.grantsOf(token, remote, again)
    const freshMs = this.roster ? TOKEN_FRESH_MS.server : TOKEN_FRESH_MS.agent
    const asking = createRemoteAuthorizer({ local: own, ask, identityOf, freshMs, ttlMs })
    this.#asking = asking
    const grantsOf = (token: string | undefined, remote?: string, again = false) =>
      token === undefined || own.find(token) ? own.grantsOf(token) : ask(token, remote, again)
    // A member may become active while it waits, so `createMemberAuthorizer` waits. The process that asks this one waits itself.
    return { ...(calls.activeServerId ? asking : createHeldAuthorizer(asking)), grantsOf }
  }

  /** The secrets core of this process was sealed: orders agents to clear their token caches. */
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
    logger.warn('token cache not cleared on some agents, cached tokens expire there', { agents: called, failed, error })
  }

  /** Sends a request of this agent's own login. Rejects with a Refusal if no server can be reached. */
  async agentLogin(question: LoginRequest, token: string | undefined, signal: AbortSignal): Promise<WholeAnswer> {
    await this.#connected(signal)
    return this.calls.agentLogin(question, token, signal)
  }

  /** ID of this run on the bus. */
  get serverId(): string {
    return this.#id
  }

  /** Names of the connected servers with a secrets core to which requests for secrets are sent. */
  get coreNames(): string[] {
    return [...new Set(this.#keys?.preferredServers(true).map(({ key, name }) => name ?? key))]
  }

  /** Waits for a connection attempt in progress. */
  async #connected(signal: AbortSignal): Promise<void> {
    const over = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_MS)])
    while (!this.#bus.isConnected && !over.aborted) await sleep(CONNECT_LOOK_MS, undefined, { ref: false })
  }

  /** Operations of the core on a server without one, forwarded to the server with the core. */
  relayedCore(endpoints: readonly AnyEndpoint[]): AnyOperation[] {
    return endpoints.map((each) => relayed(each, this.#forwarder, 'core'))
  }

  /** Starts to listen, announce and serve. `operations` are those of the host. */
  start(
    parts: OwnCore & {
      readonly host: Host | undefined
      readonly operations: readonly AnyOperation[]
      readonly url: string
      readonly callers: Callers
      readonly grantsOf: NonNullable<Authorizer['grantsOf']>
    },
  ): void {
    const { logger } = this.#options
    this.#url = parts.url
    this.#own = parts
    // NATS permissions: a server may receive messages of every node, an agent may send as itself only.
    const self = this.roster || !parts.host ? { serverId: this.#id } : { nodeId: parts.host.nodeId }
    const keys = this.#startKeys(self, parts)
    this.#keys = keys
    if (this.roster && this.#options.config.nats) this.#startCores(keys, parts)
    else if (!this.roster)
      this.servers = this.#undo.use(new ServerWatch({ keys, bus: this.#bus, logger: logger.named('servers') }))
    this.#forwarder.start(self, {
      sender: new SealedCallSender({ keys, curve: this.#curve, logger: logger.named('calls') }),
      issuer: new AssertionIssuer({ key: () => keys.own }),
    })
    if (this.roster) {
      const common = { bus: this.#bus, subjects: this.#subjects }
      this.#listener = new RosterListener({ ...common, roster: this.roster, ownNodeId: parts.host?.nodeId })
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

  /** The trusted server keys. Throws before `start`. */
  get trust(): ServerKeys {
    if (!this.#keys) throw new Fault('the cluster has not started')
    return this.#keys
  }

  /** Clock skew to servers; undefined before `start`. */
  get serverClocks(): ServerKeys['clocks'] | undefined {
    return this.#keys?.clocks
  }

  /** Applies the server keys of a reloaded configuration. */
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

  /** Called before this server is initialized. Rejects with a Refusal if the region has, or may have, another core. */
  async requireNoOtherCore(): Promise<void> {
    if (!this.roster || !this.#options.config.nats) return
    await this.#connected(this.#stopping.signal)
    if (!this.cores) throw new Refusal('unavailable', 'the server is starting, try again')
    await this.cores.requireNone()
  }

  #startKeys(self: ClusterMember, own: OwnCore): ServerKeys {
    const { config, logger, version } = this.#options
    const common = { serverId: this.#id, name: config.name, version, curveKey: this.#curve.publicKey }
    const about = { ...common, hasCore: own.core !== undefined }
    const current = () => {
      const [clusterId, coreState] = [own.clusterId(), own.coreState()]
      const state = { ...(clusterId !== undefined && { clusterId }), ...(coreState !== undefined && { coreState }) }
      return { address: this.#address(), ...state }
    }
    const keys = new ServerKeys({
      bus: this.#bus,
      subjects: this.#subjects,
      self,
      trusted: config.nats ?? {},
      readOwnKey:
        this.roster && (() => serverSigningKey({ login: config.nats, directory: join(config.dataDir, 'server') })),
      about: this.roster && about,
      current,
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

  /** Answers long polls of other processes, before the connection closes. */
  drain(): void {
    for (const server of this.#groups) server.drain()
  }

  /** Breaks forwarded streams and announces that the node leaves. May be called at any time, and repeatedly. */
  stop(): Promise<void> {
    this.#stopping.abort()
    this.#stopped ??= this.#undo.disposeAsync()
    return this.#stopped
  }

  /** Connection to NATS; an in-memory bus is always connected. */
  get connection(): {
    readonly isConnected: boolean
    readonly disconnectReason: string | undefined
    readonly reconnects: number
  } {
    const { disconnectReason, isConnected } = this.#bus
    return { isConnected, disconnectReason, reconnects: Math.max(0, this.#connections - 1) }
  }

  /** Calls between processes in progress. */
  get callsInFlight(): { readonly forwarded: number; readonly served: number } {
    const servers = [...this.#groups, ...(this.#server ? [this.#server] : [])]
    return { forwarded: this.#forwarder.calls, served: servers.reduce((sum, { calls }) => sum + calls, 0) }
  }

  /** Response bytes of other processes. */
  get forwardedBytes(): number {
    return this.#forwarder.answerBytes
  }

  /** Messages of nodes, by result. */
  get nodeMessages(): Readonly<Record<string, number>> {
    return this.#listener?.counts ?? {}
  }
}

/** The NATS client is loaded on demand. `onServerCertificate`: expiry of the server's certificate, in milliseconds since the epoch. */
export async function openBus(
  config: Config,
  logger: Logger,
  onServerCertificate: (expiryMs: number) => void,
): Promise<MessageBus> {
  if (!config.nats) return new MemoryBroker().connect()
  const { openNatsBus } = await import('../../cluster/nats/nats-bus.ts')
  return openNatsBus({
    ...config.nats,
    name: `outpost ${config.name}`,
    logger: logger.named('nats'),
    onServerCertificate,
  })
}

/** Store of the roster in its database. */
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
      return parseRoster({ nodes, allocations, owners }, (table, id) => database.logUnreadable(table, id))
    },
  }
}
