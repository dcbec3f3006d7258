/**
 * The keys of the servers of a cluster, as one process knows them (docs/decisions/026).
 *
 * A server signs with its NKEY. If the configuration lists the NKEYs of servers (`nats { server_keys }`), only those are
 * trusted. Otherwise servers announce their keys on a subject on which NATS permits servers only to publish: when they connect,
 * once a minute, and on request. On a NATS without users any process can publish there, and is trusted as a server.
 *
 * Announcements also say, with and without configured keys, which servers are connected and to which keys calls to them are sealed.
 * The number of stored announcements is bounded, and servers that have been silent for long are removed.
 */
import { type KeyObject, verify } from 'node:crypto'
import { type Logger, RateLimitedLogger } from '../../platform/log.ts'
import type { MessageBus, BusMessage, BusSubscription } from '../nats/message-bus.ts'
import { type SigningKey, verifyingKeyOf } from '../nats/nkey.ts'
import { openAnnouncement, type ServerAnnouncement, signAnnouncement } from './server-announcement.ts'
import { ClockSkews } from './clock-skews.ts'
import { memberId, type ClusterMember, type Subjects } from '../nats/subjects.ts'

/** Public NKEYs from the configuration. Undefined: announced keys are trusted. */
export interface TrustedKeys {
  readonly serverKeys?: readonly string[]
  /** Servers that may have a secrets core. Absent: each server that announces one. */
  readonly coreKeys?: readonly string[]
}

const ANNOUNCE_MS = 60_000
/** Age of an announcement above which its time does not count: two were missed. */
const CLOCK_EXPIRY_MS = 2.5 * ANNOUNCE_MS
const CLOCK_LINES_PER_MINUTE_MAX = 20
/** Age of an announcement after which its server counts as gone. */
const EXPIRY_MS = 10 * ANNOUNCE_MS
/** Debounces announcements: a server answers the requests of a thousand agents together. */
const ANNOUNCE_INTERVAL_MIN_MS = 200
/** Timeout of a request for announcements. */
const REQUEST_TIMEOUT_MS = 1000
const REQUEST_INTERVAL_MIN_MS = 200
const SERVERS_MAX = 256
const KEYS_MAX = 1024
const EMPTY = new Uint8Array(0)

/** A server and the time of its last announcement. */
export interface KnownServer extends ServerAnnouncement {
  readonly announcedAtMs: number
}

export interface ServerKeysOptions {
  readonly bus: MessageBus
  readonly subjects: Subjects
  readonly self: ClusterMember
  readonly trusted: TrustedKeys
  /** On a server: reads its signing key; throws a Fault with the reason if it cannot. */
  readonly readOwnKey: (() => SigningKey) | undefined
  /** On a server: constant part of its announcement. */
  readonly about: Pick<ServerAnnouncement, 'serverId' | 'hasCore' | 'curveKey' | 'name' | 'version'> | undefined
  /** On a server: part of its announcement that changes. */
  readonly current?: () => Pick<ServerAnnouncement, 'address' | 'clusterId' | 'coreState'>
  readonly logger: Logger
}

export class ServerKeys {
  /** The clock of this host minus that of each server, from its announcements: about once a minute, and after a connection. */
  readonly clocks: ClockSkews
  readonly #options: ServerKeysOptions
  readonly #limitedLogger: RateLimitedLogger
  /** By key and ID of the run: a run has two keys while its key is replaced. */
  readonly #servers = new Map<string, KnownServer>()
  /** Servers that received no message, until their next announcement. */
  readonly #unreachable = new Map<string, KnownServer>()
  readonly #keys = new Map<string, KeyObject>()
  readonly #waiters = new Set<(isAnnounced: boolean) => void>()
  /** Keys that no server announced on request: time until which no further request is sent. */
  readonly #unknownUntilMs = new Map<string, number>()
  readonly #subscriptions: BusSubscription[] = []
  #trusted: TrustedKeys
  #own: SigningKey | undefined
  #timer: NodeJS.Timeout | undefined
  #debounceTimer: NodeJS.Timeout | undefined
  #lastAnnouncedAtMs = Number.NEGATIVE_INFINITY
  #requestedAtMs = Number.NEGATIVE_INFINITY
  #sequence = 0
  /** What `current` returned for the last announcement, as text. */
  #announced = ''

  constructor(options: ServerKeysOptions) {
    this.#options = options
    this.#trusted = options.trusted
    this.clocks = new ClockSkews({
      logger: options.logger,
      message: 'clock skew to server',
      fieldsOf: ({ name }) => ({ server: name }),
      expiryMs: CLOCK_EXPIRY_MS,
      countMax: SERVERS_MAX,
      // The keys and times of announcements are those of their sender.
      linesPerMinuteMax: CLOCK_LINES_PER_MINUTE_MAX,
    })
    this.#limitedLogger = new RateLimitedLogger(options.logger)
    this.#readOwn()
  }

  start(): void {
    const { bus, subjects, about } = this.#options
    this.#subscriptions.push(bus.subscribe(subjects.serverKey, (message) => this.#receive(message)))
    if (about) this.#subscriptions.push(bus.subscribe(subjects.askServers('*'), () => this.#announceDebounced()))
    bus.onChange((isConnected) => {
      if (isConnected) this.#connected()
    })
    if (bus.isConnected) this.#connected()
    if (about) this.#timer = setInterval(() => this.#announce(), ANNOUNCE_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
    clearTimeout(this.#debounceTimer)
    for (const subscription of this.#subscriptions.splice(0)) subscription.close()
    this.#wakeWaiters(false)
  }

  /** Replaces the configured keys after a reload. */
  trust(trusted: TrustedKeys): void {
    this.#trusted = trusted
    this.#unknownUntilMs.clear()
    for (const [name, { key }] of this.#servers) if (!this.#isConfigured(key)) this.#servers.delete(name)
    this.#readOwn()
    if (this.#options.bus.isConnected) this.#connected()
  }

  /** The signing key of this process; undefined on a process that is not a server. */
  get own(): SigningKey | undefined {
    return this.#own
  }

  /** True for a trusted key of a server. May request announcements once and wait for them. */
  isServer(publicKey: string): boolean | Promise<boolean> {
    if (publicKey === this.#own?.publicKey) return true
    if (this.#trusted.serverKeys) return this.#trusted.serverKeys.includes(publicKey)
    if (this.#isAnnounced(publicKey)) return true
    if ((this.#unknownUntilMs.get(publicKey) ?? 0) > performance.now()) return false
    return this.#waitFor(publicKey)
  }

  /** Verifies a signature with this key, without a check that it is the key of a server. */
  verify(publicKey: string, bytes: Uint8Array, signature: Uint8Array): boolean {
    const known = this.#keys.get(publicKey)
    const key = known ?? verifyingKeyOf(publicKey)
    if (!key) return false
    if (!known) store(this.#keys, publicKey, key, KEYS_MAX)
    return verify(null, bytes, key, signature)
  }

  /** Connected servers; with `needsCore` those with a secrets core whose keys are trusted for that. */
  servers(needsCore: boolean): KnownServer[] {
    const { coreKeys } = this.#trusted
    return [...this.#servers.values()].filter(
      ({ key, hasCore, announcedAtMs }) =>
        isFresh(announcedAtMs) && (!needsCore || (hasCore && (!coreKeys || coreKeys.includes(key)))),
    )
  }

  /** Of the servers for a call, those that can most probably serve it, by the announced state of their cores. */
  preferredServers(needsCore: boolean, tried: ReadonlySet<string> = new Set()): KnownServer[] {
    const servers = this.servers(needsCore).filter(({ serverId }) => !tried.has(serverId))
    const best = Math.min(...servers.map(preference))
    return servers.filter((server) => preference(server) === best)
  }

  /** Announces this server if what it announces has changed, as after the initialization of its core. */
  announceIfChanged(): void {
    if (JSON.stringify(this.#options.current?.() ?? {}) !== this.#announced) this.#announceDebounced()
  }

  /** True for the X25519 key of a connected server. */
  hasCurveKey(curveKey: Uint8Array): boolean {
    for (const known of this.#servers.values()) {
      if (isFresh(known.announcedAtMs) && Buffer.compare(known.curveKey, curveKey) === 0) return true
    }
    return false
  }

  /** Requests the announcements of all servers, unless that was just done. */
  requestAnnouncements(): void {
    const nowMs = performance.now()
    if (nowMs - this.#requestedAtMs < REQUEST_INTERVAL_MIN_MS) return
    this.#requestedAtMs = nowMs
    const { bus, subjects, self } = this.#options
    bus.publish(subjects.askServers(memberId(self)), EMPTY)
  }

  /** Requests announcements. Resolves to true after the first one, to false after the timeout. */
  async waitForAnnouncement(): Promise<boolean> {
    if (this.#subscriptions.length === 0) return false
    this.requestAnnouncements()
    return new Promise((resolve) => {
      const done = (isAnnounced: boolean) => {
        clearTimeout(timer)
        this.#waiters.delete(done)
        resolve(isAnnounced)
      }
      const timer = setTimeout(() => done(false), REQUEST_TIMEOUT_MS)
      this.#waiters.add(done)
    })
  }

  /** Servers that do not receive messages any more, for operators. */
  unreachableServers(): KnownServer[] {
    return [...this.#unreachable.values()].filter(({ announcedAtMs }) => isFresh(announcedAtMs))
  }

  /** Removes a server that does not receive messages any more. */
  remove(serverId: string): void {
    for (const [name, known] of this.#servers) {
      if (known.serverId !== serverId) continue
      this.#servers.delete(name)
      store(this.#unreachable, name, known, SERVERS_MAX)
    }
  }

  #isAnnounced(publicKey: string): boolean {
    for (const { key, announcedAtMs } of this.#servers.values())
      if (key === publicKey && isFresh(announcedAtMs)) return true
    return false
  }

  #isConfigured(publicKey: string): boolean {
    return this.#trusted.serverKeys?.includes(publicKey) ?? true
  }

  async #waitFor(publicKey: string): Promise<boolean> {
    const endMs = performance.now() + REQUEST_TIMEOUT_MS
    while (performance.now() < endMs && (await this.waitForAnnouncement()))
      if (this.#isAnnounced(publicKey)) return true
    store(this.#unknownUntilMs, publicKey, performance.now() + 2 * REQUEST_TIMEOUT_MS, KEYS_MAX)
    return false
  }

  #connected(): void {
    // The login reads its files for each connection, so the key may have changed.
    this.#readOwn()
    this.#announce()
    this.#requestedAtMs = Number.NEGATIVE_INFINITY
    this.requestAnnouncements()
  }

  #readOwn(): void {
    const { logger, readOwnKey } = this.#options
    if (!readOwnKey) return
    try {
      this.#own = readOwnKey()
    } catch (error) {
      this.#limitedLogger.error('signing key of this server cannot be read', { error: String(error) })
    }
    const own = this.#own?.publicKey
    if (own === undefined || this.#isConfigured(own)) return
    logger.warn("this server's key is not in nats.server_keys, other hosts will reject its assertions", { key: own })
  }

  #announceDebounced(): void {
    const waitMs = this.#lastAnnouncedAtMs + ANNOUNCE_INTERVAL_MIN_MS - performance.now()
    if (waitMs <= 0) return this.#announce()
    this.#debounceTimer ??= setTimeout(() => this.#announce(), waitMs)
  }

  #announce(): void {
    clearTimeout(this.#debounceTimer)
    this.#debounceTimer = undefined
    const { bus, subjects, about } = this.#options
    const own = this.#own
    if (!about || !own) return
    this.#lastAnnouncedAtMs = performance.now()
    const current = this.#options.current?.() ?? {}
    this.#announced = JSON.stringify(current)
    const announcement = {
      ...about,
      ...current,
      clockMs: Math.round(performance.now()),
      sentAtMs: Date.now(),
      sequence: ++this.#sequence,
    }
    bus.publish(subjects.serverKey, signAnnouncement(announcement, subjects.serverKey, own))
  }

  #receive({ subject, payload }: BusMessage): void {
    const announcement = openAnnouncement(payload, subject, (...signed) => this.verify(...signed))
    if (typeof announcement === 'string') {
      this.#limitedLogger.warn('server announcement rejected', { reason: announcement })
      return
    }
    const { key, serverId, sequence } = announcement
    if (!this.#isConfigured(key)) {
      this.#limitedLogger.warn('server announcement rejected', { reason: 'not in nats.server_keys', key })
      return
    }
    const name = `${key} ${serverId}`
    // A replay.
    if ((this.#servers.get(name)?.sequence ?? -1) >= sequence) return
    store(this.#servers, name, { ...announcement, announcedAtMs: performance.now() }, SERVERS_MAX)
    this.#unreachable.delete(name)
    if (serverId !== this.#options.about?.serverId) {
      const { sentAtMs } = announcement
      this.clocks.measure(key, announcement.name ?? key, sentAtMs === undefined ? undefined : Date.now() - sentAtMs)
    }
    this.#unknownUntilMs.delete(key)
    this.#wakeWaiters(true)
  }

  #wakeWaiters(isAnnounced: boolean): void {
    for (const done of this.#waiters) done(isAnnounced)
  }
}

/**
 * Order of the states of a core for calls, best first. Only an active core serves requests and resolves tokens. The rest is the order in
 * which a refusal names what an operator must fix: the standby of a DR pair refuses because its primary does not serve. The standby of an HA
 * cluster forwards calls to the active server, or holds them until there is one.
 */
const CORE_PREFERENCE = ['active', 'ha_standby', 'fenced', 'sealed', 'standby', 'uninitialized']

/** Lower is better. A server without a core asks one with a core, and an older version does not announce the state of its core. */
function preference({ coreState, hasCore }: KnownServer): number {
  return hasCore && coreState !== undefined ? Math.max(0, CORE_PREFERENCE.indexOf(coreState)) : 0
}

function isFresh(announcedAtMs: number): boolean {
  return performance.now() - announcedAtMs < EXPIRY_MS
}

/** Stores the entry as the newest; evicts the oldest beyond the limit. */
function store<V>(map: Map<string, V>, key: string, value: V, max: number): void {
  map.delete(key)
  map.set(key, value)
  const [oldest] = map.keys()
  if (map.size > max && oldest !== undefined) map.delete(oldest)
}
