/**
 * The secrets cores of a region, as its servers announce them (docs/decisions/095).
 *
 * A region has one core: agents and servers without a core send their requests to any server that has one. With two cores of
 * different cluster IDs about half of the requests reach a core that does not know their token. Cores with the same cluster ID
 * count as one: the primary and the secondaries of disaster recovery.
 *
 * A server with another core is sent requests for its announcement until it does not respond any more. So a server that has
 * stopped, or has restarted without its core, is reported only while it exists.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Refusal } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import type { MessageBus } from '../nats/message-bus.ts'
import { TIMINGS } from '../nats/timings.ts'
import type { KnownServer, ServerKeys } from '../trust/server-trust.ts'

const CHECK_INTERVAL_MS = TIMINGS.coreProbeMs / 10
/** Consecutive unanswered requests after which a server counts as gone. */
const UNANSWERED_MAX = 3
/** Time for the announcements of all servers after a request. */
const COLLECT_MS = 1000
const LOG_INTERVAL_MS = 600_000
/** Cores listed in a text. */
const LISTED_CORES_MAX = 4

export interface RegionCoresOptions {
  readonly keys: ServerKeys
  readonly bus: MessageBus
  readonly region: string
  /** `hasCore`: false with `server { secrets = false }`. */
  readonly self: { readonly serverId: string; readonly name: string; readonly hasCore: boolean }
  /** Cluster ID of this server's core; undefined unless that is initialized. */
  readonly clusterId: () => string | undefined
  readonly logger: Logger
}

export class RegionCores {
  readonly #options: RegionCoresOptions
  readonly #logged = new LogOnce({ everyMs: LOG_INTERVAL_MS })
  /** Consecutive unanswered requests, by run of a server. */
  readonly #unanswered = new Map<string, number>()
  #probedAtMs = Number.NEGATIVE_INFINITY
  #isConflict = false
  #timer: NodeJS.Timeout | undefined

  constructor(options: RegionCoresOptions) {
    this.#options = options
  }

  start(): void {
    this.#timer = setInterval(() => this.#check(), CHECK_INTERVAL_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  /** Number of cores with different cluster IDs. */
  get count(): number {
    return this.#byClusterId().size
  }

  /** Describes the conflict and its resolution; undefined with one core. */
  get conflict(): string | undefined {
    const cores = this.#byClusterId()
    if (cores.size < 2) return undefined
    return `${cores.size} secrets cores in region "${this.#options.region}": ${listCores(cores)}. ${NEXT}`
  }

  /** While this server is not initialized and another one has a core: what an operator does instead of initializing this one. */
  get insteadOfInit(): string | undefined {
    const { clusterId, self } = this.#options
    if (!self.hasCore || clusterId() !== undefined) return undefined
    const [other] = this.#others()
    return other && `server "${serverName(other)}" has the secrets core of this region, next: ${WITHOUT_CORE}`
  }

  /**
   * Rejects with a Refusal if another server of the region has a core or had one a few minutes ago, and if this server cannot
   * check that.
   */
  async requireNone(): Promise<void> {
    const requestedAtMs = performance.now()
    this.#options.keys.requestAnnouncements()
    await sleep(COLLECT_MS)
    if (!this.#options.bus.isConnected) throw new Refusal('unavailable', UNKNOWN)
    // A run has ended if another one with the same key answers.
    const known = this.#options.keys.servers(false)
    const answered = new Set(known.filter(({ announcedAtMs }) => announcedAtMs >= requestedAtMs).map(({ key }) => key))
    const other = this.#known().find(({ announcedAtMs, key }) => announcedAtMs >= requestedAtMs || !answered.has(key))
    if (!other) return
    const { region } = this.#options
    throw new Refusal(
      'invalid_request',
      `server "${serverName(other)}" of region "${region}" has an initialized secrets core (cluster_id ${other.clusterId}), ` +
        `nothing was changed. ${WITHOUT_CORE}; or initialize a second core with -force (force=true in the API)`,
    )
  }

  /** Cores of other servers, including servers that do not respond any more. */
  #known(): KnownCore[] {
    const { keys, self } = this.#options
    return keys
      .servers(false)
      .filter(hasClusterId)
      .filter(({ serverId }) => serverId !== self.serverId)
  }

  /** Cores of other servers that answer. */
  #others(): KnownCore[] {
    return this.#known().filter(({ serverId }) => (this.#unanswered.get(serverId) ?? 0) < UNANSWERED_MAX)
  }

  /** Names of servers by cluster ID, this server first. */
  #byClusterId(): Map<string, string[]> {
    const { clusterId, self } = this.#options
    const cores = new Map<string, string[]>()
    const own = clusterId()
    if (own !== undefined) cores.set(own, [`"${self.name}" (this server)`])
    for (const other of this.#others()) {
      const name = `"${serverName(other)}"`
      const names = cores.get(other.clusterId)
      if (!names) cores.set(other.clusterId, [name])
      else if (!names.includes(name)) names.push(name)
    }
    return cores
  }

  #check(): void {
    this.#options.keys.announceIfChanged()
    this.#probe()
    this.#report()
  }

  #probe(): void {
    const { clusterId, keys, bus, self } = this.#options
    const known = this.#known()
    const own = clusterId()
    const [expected] = own !== undefined || self.hasCore ? [own] : known.map((other) => other.clusterId)
    if (known.every((other) => other.clusterId === expected)) return this.#unanswered.clear()
    if (!bus.isConnected || performance.now() - this.#probedAtMs < TIMINGS.coreProbeMs) return
    const runs = new Set(known.map(({ serverId }) => serverId))
    for (const run of this.#unanswered.keys()) if (!runs.has(run)) this.#unanswered.delete(run)
    for (const { announcedAtMs, serverId } of known) {
      const before = this.#unanswered.get(serverId) ?? 0
      this.#unanswered.set(serverId, announcedAtMs >= this.#probedAtMs ? 0 : before + 1)
    }
    this.#probedAtMs = performance.now()
    keys.requestAnnouncements()
  }

  #report(): void {
    const { logger, region } = this.#options
    const cores = this.#byClusterId()
    const isConflict = cores.size > 1
    if (isConflict && this.#logged.due([...cores.keys()].sort(byText).join()) > 0) {
      logger.warn('several secrets cores in the region', { region, cores: listCores(cores), next: NEXT })
    } else if (!isConflict && this.#isConflict) {
      this.#logged.clear()
      logger.info('one secrets core in the region again', { region })
    }
    this.#isConflict = isConflict
  }
}

type KnownCore = KnownServer & { readonly clusterId: string }

const WITHOUT_CORE =
  'set server { secrets = false } in the configuration of this server and restart it: it then forwards requests for secrets'
const NEXT =
  'Requests that reach the wrong core are refused (403). Keep one core, and set server { secrets = false } on the other servers'
const UNKNOWN =
  'not connected to NATS, so this server cannot check whether another server of the region has a secrets core: ' +
  'connect it, or initialize it with -force (force=true in the API)'

function hasClusterId(server: KnownServer): server is KnownCore {
  return server.clusterId !== undefined
}

function serverName({ key, name }: KnownServer): string {
  return name ?? key
}

function listCores(cores: ReadonlyMap<string, readonly string[]>): string {
  const shown = [...cores].slice(0, LISTED_CORES_MAX).map(([id, names]) => `${names.join(', ')} with cluster_id ${id}`)
  const more = cores.size - shown.length
  return `${shown.join('; ')}${more > 0 ? `; and ${more} more` : ''}`
}

function byText(one: string, other: string): number {
  return one < other ? -1 : Number(one > other)
}
