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
import { HaServer } from '../../ha/ha-server.ts'
import type { MemberState } from '../../ha/lease/lease.ts'
import { Fault, messageOf, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { AnyOperation, Call, WholeAnswer } from '../../platform/operation.ts'
import type { ReplicationPart } from './dr.ts'
import type { SecretsCore } from '../../secrets/core.ts'
import type { HaActive, HaMember, HaSide } from '../../secrets/ha-endpoints/ha-side.ts'
import type { CommitLog } from '../../storage/store/commit-log.ts'
import type { SqliteStore } from '../../storage/store/store.ts'

const CONNECT_MS = 2000
const RECONNECT_MS = 100
/** Time for requests in progress before the core closes. */
const DRAIN_MS = 500
const DRAIN_LOOK_MS = 10
/** Interval at which a standby looks whether its entries are to be verified, and number of new rows after which they are. */
const VERIFY_LOOK_MS = 10_000
const VERIFY_ROWS = 20_000
/** A member that has not reported for this time is lost. */
const LOST_MS = 5 * TIMINGS.haReportMs

export interface HaPartOptions {
  readonly config: Config
  readonly version: string
  readonly logger: Logger
  readonly store: SqliteStore
  readonly apiAddress: () => string
  readonly clusterAddress: () => string
  /** DR replication, which runs on the active server. */
  readonly replication: () => Pick<ReplicationPart, 'begin' | 'end'>
}

/** The other members, as this module reaches them. */
export interface HaPeers {
  readonly serverId: string
  /** Sends a call to one server. Rejects with a Refusal. */
  forwardTo(to: ForwardTarget, operation: AnyOperation, call: Call): Promise<WholeAnswer>
}

export class HaPart implements HaSide {
  readonly #core: () => SecretsCore
  readonly #server: HaServer
  readonly routing: HaRouting
  readonly #options: HaPartOptions
  #peers: HaPeers | undefined
  #verifying: NodeJS.Timeout | undefined
  /** Row up to which the entries were verified; -1 before the first time. */
  #verifiedRow = -1

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
      logger,
    })
    this.routing = new HaRouting({
      server: this.#server,
      serverId: () => peers().serverId,
      coreState: () => stateOf(core()),
      forward: (operation, call, to) => peers().forwardTo(to, operation, call),
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

  /** Connects to NATS and looks for the active server. */
  start(peers: HaPeers): void {
    this.#peers = peers
    this.#server.start()
    this.#verifying = setInterval(() => void this.#verify(), VERIFY_LOOK_MS).unref()
  }

  /**
   * Verifies the entries of a standby and stores the parts of the entry set, so that a takeover does not read all entries, and a change by
   * another program is found before it.
   */
  async #verify(): Promise<void> {
    const { logger, store } = this.#options
    const { standby } = this.#core().barrier
    const { sequence } = store.position()
    const isDue = sequence - this.#verifiedRow >= VERIFY_ROWS || (this.#verifiedRow < 0 && sequence > 0)
    if (this.#server.phase !== 'standby' || !standby.isHeld || !store.isWhole || !isDue) return
    this.#verifiedRow = sequence
    try {
      await standby.verified(() => undefined, true)
    } catch (error) {
      // A copy or a takeover began meanwhile; else the next takeover fails with the same error.
      logger.warn('entries not verified', { error: messageOf(error) })
    }
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
      async open(idleMs) {
        await replication().begin(idleMs)
        if (!core().isSecondary) await core().leaveStandby()
      },
      async close(isOrderly) {
        const endMs = performance.now() + DRAIN_MS
        while (isOrderly && core().inFlight.count > 0 && performance.now() < endMs) await sleep(DRAIN_LOOK_MS)
        // The core refuses commits at once; those that wait for a DR secondary fail with the end of the replication.
        const closing = core().isActive || core().isSuspended ? core().enterStandby() : undefined
        await replication().end()
        await closing
        // A promotion has ended meanwhile.
        if (core().isActive) await core().enterStandby()
      },
    }
  }

  get isServing(): boolean {
    return this.#server.isServing
  }

  get role(): HaSide['role'] {
    const core = this.#core()
    return this.#server.phase === 'active' && (core.isActive || core.isSecondary) ? 'active' : 'standby'
  }

  get active(): HaActive | undefined {
    const holder = this.#server.lease?.holder
    if (!holder || holder.serverId === '') return undefined
    const { activeSinceMs, apiAddress, clusterAddress, name, serverId } = holder
    const isSelf = serverId === this.#peers?.serverId
    if (isSelf && this.role !== 'active') return undefined
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

  get trouble(): string | undefined {
    return this.#server.trouble
  }

  async members(): Promise<readonly HaMember[]> {
    const states = await this.#server.members()
    const own = this.#peers?.serverId
    const row = Math.max(0, ...states.map((state) => (state.serverId === this.activeServerId ? state.row : 0)))
    return states
      .map((state) => memberOf(state, { own, activeRow: row }))
      .toSorted((a, b) => (a.name < b.name ? -1 : 1))
  }

  async stepDown(): Promise<void> {
    this.#server.requestStepDown()
  }

  async removeMember(name: string): Promise<void> {
    const member = (await this.members()).find((each) => each.name === name)
    if (!member) throw new Refusal('not_found', `there is no member "${name}"`)
    if (member.role !== 'lost') {
      throw new Refusal(
        'conflict',
        `the member "${name}" is alive: stop its server, then remove it after ${LOST_MS / 1000} s`,
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
  }

  async stop(): Promise<void> {
    clearInterval(this.#verifying)
    await this.#server.stop()
  }
}

function stateOf(core: SecretsCore): HaCore['state'] {
  // A DR secondary follows its primary also while it is sealed, and before its initial sync.
  if (core.isSecondary) return 'unsealed'
  if (!core.isInitialised) return 'uninitialized'
  // A restore opens the core again, or seals it.
  const isOpen = core.isActive || core.isSuspended
  return isOpen || core.barrier.standby.isHeld ? 'unsealed' : 'sealed'
}

function memberOf(
  { apiAddress, atMs, name, row, serverId, state, version }: MemberState,
  { activeRow, own }: { readonly activeRow: number; readonly own: string | undefined },
): HaMember {
  const role = Date.now() - atMs > LOST_MS ? 'lost' : state
  const lag = Math.max(0, activeRow - row)
  return { name, serverId, apiAddress, version, role, position: row, lag, lastSeenMs: atMs, isSelf: serverId === own }
}

/** A connection of its own: large log streams of the other one do not delay a renewal of the lease. */
function connectTo(nats: NatsConfig, { name, region }: Config): Promise<NatsConnection> {
  return connect({
    ...loginOf(nats, nats.servers),
    servers: [...nats.servers],
    name: `outpost ${name} ha`,
    inboxPrefix: `outpost.${region}.ha.inbox`,
    timeout: CONNECT_MS,
    pingInterval: TIMINGS.natsPingMs,
    maxReconnectAttempts: -1,
    reconnectTimeWait: RECONNECT_MS,
    reconnectJitter: RECONNECT_MS,
  })
}
