/**
 * Connects the ha module: the store whose commits go to the stream, the core that opens and closes with the role, the connection to NATS,
 * and the forwarding of requests.
 */
import { connect, type NatsConnection } from '@nats-io/transport-node'
import { setTimeout as sleep } from 'node:timers/promises'
import { loginOf } from '../../cluster/nats/nats-login.ts'
import { TIMINGS } from '../../cluster/nats/timings.ts'
import type { Config } from '../../config/load.ts'
import type { NatsConfig } from '../../config/config.ts'
import { type ForwardTarget, HaRouting } from '../../ha/ha-routing.ts'
import type { HaCore } from '../../ha/ha-options.ts'
import { localFirst } from '../../ha/nats-leader-placement.ts'
import { HaServer } from '../../ha/ha-server.ts'
import { MEMBER_LOST_MS, isReporting, type MemberState } from '../../ha/lease/lease.ts'
import { Fault, messageOf, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { AnyOperation, Call } from '../../platform/operation.ts'
import type { ReplicationPart } from './dr.ts'
import type { SnapshotTime } from './snapshot-time.ts'
import { stateHeader, ReadIndex } from '../standby/read-index.ts'
import { coreEngines, ownEngines } from './engines.ts'
import { hasLimitedUses, StandbyReads } from '../standby/standby-reads.ts'
import type { Seal } from '../../storage/seal/seal.ts'
import type { SecretsCore } from '../../secrets/core.ts'
import type { HaActive, HaMember, HaSide } from '../../secrets/ha-endpoints/ha-side.ts'
import { watchRequests } from '../../secrets/request/event-stream.ts'
import type { CommitLog } from '../../storage/store/commit-log.ts'
import type { SqliteStore } from '../../storage/store/store.ts'

const CONNECT_MS = 2000
const RECONNECT_MS = 100
/** Time for requests in progress before the core closes. */
const DRAIN_MS = 500
const DRAIN_POLL_MS = 10
/** Time for requests that wait for the next active server when this one stops. */
const LEAVE_MS = 2000
/** Interval at which a standby prepares itself, and number of new rows after which it verifies its entries again. */
const PREPARE_INTERVAL_MS = 500
const VERIFY_ROWS = 20_000

export interface HaPartOptions {
  readonly config: Config
  readonly version: string
  readonly logger: Logger
  readonly store: SqliteStore
  readonly apiAddress: () => string
  readonly clusterAddress: () => string
  readonly snapshotTime: SnapshotTime
  /** DR replication, which runs on the active server. */
  readonly replication: () => Pick<ReplicationPart, 'begin' | 'end'>
}

/** The other members, as this module reaches them. */
export interface HaPeers {
  readonly serverId: string
  readonly calls: {
    /** Sends a call to one server. Rejects with a Refusal. */
    forwardTo(to: ForwardTarget, operation: AnyOperation, call: Call): Promise<unknown>
  }
}

export class HaPart implements HaSide {
  readonly #core: () => SecretsCore
  readonly #server: HaServer
  readonly routing: HaRouting
  readonly #options: HaPartOptions
  #peers: HaPeers | undefined
  #preparing: NodeJS.Timeout | undefined
  /** Row up to which the entries were verified; -1 before the first time. */
  #verifiedRow = -1
  #isPreparing = false
  #reads: StandbyReads | undefined

  /** `core`: once the module is open. */
  constructor(options: HaPartOptions, core: () => SecretsCore) {
    const { apiAddress, config, logger, store, version } = options
    const { nats } = config
    if (!nats) throw new Fault('server.ha needs nats')
    this.#options = options
    this.#core = core
    const peers = () => this.#requiredPeers
    this.#server = new HaServer({
      store,
      connect: () => connectTo(nats, config),
      core: this.#haCore(),
      region: config.region,
      replicas: config.server.ha.replicas,
      name: config.name,
      get serverId() {
        return peers().serverId
      },
      version,
      addresses: () => ({ api: apiAddress(), cluster: options.clusterAddress() }),
      snapshotAtMs: () => options.snapshotTime.learn(this.#server.newestSnapshotMs),
      logger,
    })
    this.routing = new HaRouting({
      server: this.#server,
      serverId: () => peers().serverId,
      coreState: () => stateOf(core()),
      usesAreLimited: (token) => this.#usesAreLimited(token),
      takesLongBody: (token, remote) => this.#reads?.takesLongBody(token, remote) ?? true,
      state: () => stateHeader(store.clusterId, store.visibleRow),
      answerHere: async (name, call) => (this.#isOwn ? await this.#reads?.answer(name, call) : undefined),
      forward: (operation, call, to) => peers().calls.forwardTo(to, operation, call),
      lasting: watchRequests,
    })
  }

  get #requiredPeers(): HaPeers {
    if (!this.#peers) throw new Refusal('unavailable', 'the server is starting, try again')
    return this.#peers
  }

  get otherClusterAddresses(): readonly string[] {
    return this.#server.otherClusterAddresses
  }

  get commitLog(): CommitLog {
    return this.#server.commitLog
  }

  /** Lets this server serve reads while it is a standby. */
  openReads(seal: Seal): void {
    const { config, logger, store, version } = this.#options
    this.#reads = new StandbyReads({
      store,
      engines: coreEngines,
      own: ownEngines,
      seal,
      version,
      clusterName: config.name,
      logger,
      rootKey: () => this.#core().barrier.standby.copy(),
      readIndex: new ReadIndex(() => this.#server.activeRows()),
      skipBatchDelay: () => this.#server.skipBatchDelay(),
      activeMs: () => this.#server.lease?.holder?.clockMs ?? 0,
    })
  }

  /** Connects to NATS and reads which server is active. */
  start(peers: HaPeers): void {
    this.#peers = peers
    this.#server.start()
    // The entry set of the read core follows groups only.
    this.#options.store.onOrder(() => this.#closeReads())
    this.#preparing = setInterval(() => void this.#prepareStandby(), PREPARE_INTERVAL_MS).unref()
  }

  #closeReads(): void {
    this.#verifiedRow = -1
    this.#reads?.close()
  }

  /** False for a member of a DR secondary or of a fenced primary, which serve nothing. */
  get #isOwn(): boolean {
    const core = this.#core()
    return !core.isSecondary && core.fence === undefined
  }

  /** Verifies the entries of a standby, and opens them for reads. */
  async #prepareStandby(): Promise<void> {
    const { logger, store } = this.#options
    const { standby } = this.#core().barrier
    this.#checkRootKey()
    const isReady = () => this.#server.phase === 'standby' && standby.isHeld && store.isWhole && this.#isOwn
    if (this.#isPreparing || !isReady()) return isReady() ? undefined : this.#reads?.close()
    this.#isPreparing = true
    try {
      await this.#verify()
      if (isReady() && this.#reads && !this.#reads.isOpen && this.#verifiedRow >= 0) this.#reads.open()
    } catch (error) {
      // A copy or a takeover may have begun; otherwise the next takeover fails with the same error.
      logger.warn('entries not verified', { error: messageOf(error) })
    } finally {
      this.#isPreparing = false
    }
  }

  /** Reports that the active server has replaced the root key, and this server has not received its successor. */
  #checkRootKey(): void {
    const { logger } = this.#options
    const { standby } = this.#core().barrier
    try {
      if (this.#server.phase !== 'standby' || !standby.isHeld || standby.fits()) return
      logger.warn(
        'this standby is sealed: the root key was replaced while it was disconnected; next: outpost operator unseal',
      )
    } catch (error) {
      logger.debug('keyring not readable', { error: messageOf(error) })
    }
  }

  /**
   * Verifies the entries of a standby and stores the parts of the entry set, so that a takeover does not read all entries, and a change by
   * another program is found before it.
   */
  async #verify(): Promise<void> {
    const { store } = this.#options
    const { sequence } = store.position()
    const isDue = sequence - this.#verifiedRow >= VERIFY_ROWS || (this.#verifiedRow < 0 && sequence > 0)
    if (!isDue) return
    await this.#core().barrier.standby.verified(() => undefined, true)
    // The parts of the entry set are durable after the next order.
    await store.markSeen()
    this.#verifiedRow = sequence
  }

  #haCore(): HaCore {
    const core = this.#core
    const { replication } = this.#options
    return {
      get state() {
        return stateOf(core())
      },
      get lacksKey() {
        return core().isSecondary && !core().isActive && !core().barrier.standby.isHeld
      },
      nowMs: () => core().now(),
      open: async ({ clockMs, idleMs }) => {
        this.#reads?.close()
        await replication().begin(idleMs)
        if (!core().isSecondary) await core().leaveStandby(clockMs)
      },
      async close(isOrderly) {
        const endMs = performance.now() + (isOrderly ? DRAIN_MS : 0)
        while (core().inFlight.count > 0 && performance.now() < endMs) await sleep(DRAIN_POLL_MS)
        if (core().isActive && isOrderly) await core().saveAuditHeads()
        // The core refuses commits at once; those that wait for a DR secondary fail with the end of the replication.
        const closing = core().isActive || core().isSuspended ? core().enterStandby() : undefined
        await replication().end()
        await closing
        // A promotion has ended meanwhile.
        if (core().isActive) await core().enterStandby()
      },
    }
  }

  #usesAreLimited(token: string | undefined): boolean {
    const core = this.#core()
    if (token === undefined) return false
    return core.isActive ? hasLimitedUses(core, token) : (this.#reads?.usesAreLimited(token) ?? true)
  }

  get isServing(): boolean {
    return this.#server.isServing
  }

  get isSteppingDown(): boolean {
    return this.#server.phase === 'stepping down'
  }

  get role(): HaSide['role'] {
    const core = this.#core()
    return this.#server.isServing && (core.isActive || core.isSecondary) ? 'active' : 'standby'
  }

  get active(): HaActive | undefined {
    const { lease } = this.#server
    const holder = lease?.holder
    if (!holder || holder.serverId === '') return undefined
    const { activeSinceMs, apiAddress, clusterAddress, name, serverId } = holder
    const isSelf = serverId === this.#peers?.serverId
    const isActive = isSelf ? this.role === 'active' : lease?.isHolderAlive
    if (!isActive) return undefined
    return { name, apiAddress, clusterAddress, activeSinceMs, isSelf }
  }

  /** ID of the active server, this one included; undefined while unknown. */
  get activeServerId(): string | undefined {
    return this.#server.lease?.holder?.serverId
  }

  get committed(): number {
    return this.#server.positions.committed
  }

  get applied(): number {
    return this.#server.positions.applied
  }

  get takeovers(): number {
    return this.#server.takeovers
  }

  get lostMembers(): HaSide['lostMembers'] {
    return this.#server.lostMembers.map(({ atMs, name }) => ({ name, lastSeenMs: atMs }))
  }

  get sealedMembers(): HaSide['sealedMembers'] {
    return this.#server.sealedMembers
  }

  get missingReplicas(): HaSide['missingReplicas'] {
    return this.#server.missingReplicas
  }

  get trouble(): string | undefined {
    return this.#server.trouble
  }

  async members(): Promise<readonly HaMember[]> {
    const states = await this.#server.members()
    const own = this.#peers?.serverId
    const holder = this.activeServerId
    const row = Math.max(0, ...states.map((state) => (state.serverId === holder ? state.row : 0)))
    return states
      .map((state) => memberOf(state, { own, holder, activeRow: row }))
      .toSorted((a, b) => (a.name < b.name ? -1 : 1))
  }

  async stepDown(): Promise<void> {
    this.#server.requestStepDown()
  }

  async removeMember(name: string): Promise<void> {
    const member = (await this.members()).find((each) => each.name === name)
    if (!member) throw new Refusal('not_found', `unknown member "${name}"`)
    if (member.role !== 'lost') {
      throw new Refusal(
        'conflict',
        `the member "${name}" is alive: stop its server, then remove it after ${MEMBER_LOST_MS / 1000} s`,
      )
    }
    await this.#server.removeMember(name)
  }

  /** The disk of the database has become full, or has space again. */
  diskChanged(isFull: boolean): void {
    this.#server.diskChanged(isFull)
  }

  /** Lets another server become active before this one stops. Never rejects. */
  async leave(): Promise<void> {
    await this.#server.leave()
    // Requests that arrived meanwhile are forwarded to the next active server.
    await this.routing.idle(LEAVE_MS)
  }

  async stop(): Promise<void> {
    clearInterval(this.#preparing)
    this.#reads?.close()
    await this.#server.stop()
  }
}

function stateOf(core: SecretsCore): HaCore['state'] {
  // A DR secondary follows its primary even while it is sealed, and before its initial sync.
  if (core.isSecondary) return 'unsealed'
  if (!core.isInitialised) return 'uninitialized'
  // A restore opens the core again, or seals it.
  const isOpen = core.isActive || core.isSuspended
  return isOpen || core.barrier.standby.isHeld ? 'unsealed' : 'sealed'
}

/** A connection of its own: large log streams of the other one do not delay a renewal of the lease. */
function connectTo(nats: NatsConfig, { name, region }: Config): Promise<NatsConnection> {
  return connect({
    ...loginOf(nats, nats.servers),
    servers: localFirst(nats.servers),
    noRandomize: true,
    name: `outpost ${name} ha`,
    inboxPrefix: `outpost.${region}.ha.inbox`,
    timeout: CONNECT_MS,
    pingInterval: TIMINGS.natsPingMs,
    maxReconnectAttempts: -1,
    reconnectTimeWait: RECONNECT_MS,
    reconnectJitter: RECONNECT_MS,
    // Without them, each request creates three errors with a stack, for the case that it fails.
    noAsyncTraces: true,
  })
}

interface ListedBy {
  /** Newest row of the active server. */
  readonly activeRow: number
  /** ID of the server that holds the lease. */
  readonly holder: string | undefined
  readonly own: string | undefined
}

/** A member of a highly available core as the endpoints list it. */
export function memberOf(
  { apiAddress, atMs, name, row, serverId, state, version }: MemberState,
  { activeRow, holder, own }: ListedBy,
): HaMember {
  // The lease says which one is active; a report may be two seconds old, or the last one of a server that was killed.
  const reported = state === 'active' && serverId !== holder ? 'standby' : state
  const current = serverId === holder && state === 'standby' ? 'active' : reported
  const role = isReporting({ atMs }, Date.now()) ? current : 'lost'
  const lag = Math.max(0, activeRow - row)
  return { name, serverId, apiAddress, version, role, position: row, lag, lastSeenMs: atMs, isSelf: serverId === own }
}
