/**
 * The secrets cores of a region, as its servers announce them (docs/decisions/095).
 *
 * A region has one core: agents and servers without a core send their requests to any server that has one. With two
 * cores of different cluster IDs about half of the requests reach a core that does not know their token. Cores with the same
 * cluster ID count as one: the primary and the secondaries of disaster recovery.
 *
 * A server with another core is asked for its announcement until it answers no longer, so a server that has ended, or has
 * come back without its core, is reported only as long as it exists.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Refusal } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import type { MessageBus } from '../nats/message-bus.ts'
import type { KnownServer, ServerKeys } from '../trust/server-trust.ts'
import { TIMINGS } from '../nats/timings.ts'

const CHECK_MS = TIMINGS.coreProbeMs / 10
/** A server that has not answered so many questions in a row is gone. */
const UNANSWERED_MAX = 3
/** For the announcements of all servers after a question. */
const COLLECT_MS = 1000
const LOG_AGAIN_MS = 600_000
/** In one text. */
const CORES_NAMED = 4

/** The initialised core of a server. */
export interface ServerCore {
  readonly server: string
  readonly clusterId: string
}

export interface RegionCoresOptions {
  readonly keys: ServerKeys
  readonly bus: MessageBus
  readonly region: string
  /** `hasCore`: false with `server { secrets = false }`. */
  readonly self: { readonly serverId: string; readonly name: string; readonly hasCore: boolean }
  /** Cluster ID of this server's core; undefined unless that is initialised. */
  readonly clusterId: () => string | undefined
  readonly logger: Logger
}

export class RegionCores {
  readonly #options: RegionCoresOptions
  readonly #logged = new LogOnce({ everyMs: LOG_AGAIN_MS })
  /** Questions without an answer, by run of a server. */
  readonly #unanswered = new Map<string, number>()
  #probedAtMs = Number.NEGATIVE_INFINITY
  #isConflict = false
  #timer: NodeJS.Timeout | undefined

  constructor(options: RegionCoresOptions) {
    this.#options = options
  }

  start(): void {
    this.#timer = setInterval(() => this.#check(), CHECK_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  /** How many cores with different cluster IDs there are. */
  get count(): number {
    return this.#byClusterId().size
  }

  /** What is wrong and what to do, where there are several cores; else undefined. */
  get conflict(): string | undefined {
    const cores = this.#byClusterId()
    if (cores.size < 2) return undefined
    return `${cores.size} secrets cores in region "${this.#options.region}": ${namesOf(cores)}. ${NEXT}`
  }

  /** Of another server, while this one is not initialised; what an operator does instead of initialising it. */
  get insteadOfInit(): string | undefined {
    const { clusterId, self } = this.#options
    if (!self.hasCore || clusterId() !== undefined) return undefined
    const [other] = this.#others()
    return other && `server "${nameOf(other)}" has the secrets core of this region, next: ${WITHOUT_CORE}`
  }

  /**
   * Rejects with a Refusal where another server of the region has a core or had one a few minutes ago, and where this server
   * cannot find out.
   */
  async requireNone(): Promise<void> {
    const askedAtMs = performance.now()
    this.#options.keys.requestAnnouncements()
    await sleep(COLLECT_MS)
    if (!this.#options.bus.isConnected) throw new Refusal('unavailable', UNKNOWN)
    // A run that was replaced by another one with the same key has ended.
    const known = this.#options.keys.servers(false)
    const answered = new Set(known.filter(({ announcedAtMs }) => announcedAtMs >= askedAtMs).map(({ key }) => key))
    const other = this.#known().find(({ announcedAtMs, key }) => announcedAtMs >= askedAtMs || !answered.has(key))
    if (!other) return
    const { region } = this.#options
    throw new Refusal(
      'invalid_request',
      `server "${nameOf(other)}" of region "${region}" has an initialised secrets core (cluster_id ${other.clusterId}), ` +
        `nothing was changed. ${WITHOUT_CORE}; or initialise a second core with -force (force=true in the API)`,
    )
  }

  /** Of other servers, also of such that do not answer any more. */
  #known(): KnownCore[] {
    const { keys, self } = this.#options
    return keys
      .servers(false)
      .filter(hasClusterId)
      .filter(({ serverId }) => serverId !== self.serverId)
  }

  /** Of other servers that answer. */
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
      const name = `"${nameOf(other)}"`
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
      logger.warn('several secrets cores in the region', { region, cores: namesOf(cores), next: NEXT })
    } else if (!isConflict && this.#isConflict) {
      this.#logged.clear()
      logger.info('one secrets core in the region again', { region })
    }
    this.#isConflict = isConflict
  }
}

type KnownCore = KnownServer & { readonly clusterId: string }

const WITHOUT_CORE =
  'set server { secrets = false } in the configuration of this server and restart it, then it forwards requests for secrets'
const NEXT =
  'Requests that reach the wrong core are refused (403). Keep one, and set server { secrets = false } on the other servers'
const UNKNOWN =
  'not connected to NATS, so this server cannot check whether another server of the region has a secrets core: ' +
  'connect it, or initialise it with -force (force=true in the API)'

function hasClusterId(server: KnownServer): server is KnownCore {
  return server.clusterId !== undefined
}

function nameOf({ key, name }: KnownServer): string {
  return name ?? key
}

function namesOf(cores: ReadonlyMap<string, readonly string[]>): string {
  const shown = [...cores].slice(0, CORES_NAMED).map(([id, names]) => `${names.join(', ')} with cluster_id ${id}`)
  const more = cores.size - shown.length
  return `${shown.join('; ')}${more > 0 ? `; and ${more} more` : ''}`
}

function byText(one: string, other: string): number {
  return one < other ? -1 : Number(one > other)
}
