/**
 * Whose word counts as a server's (docs/decisions/026).
 *
 * A server signs with its NKEY. Which NKEYs are servers' is said by the configuration (`nats { server_keys }`), and then
 * by nothing else. Without it the keys come in announcements, on a subject that NATS permits servers only to publish on:
 * when they connect, once a minute, and when a process asks. On a NATS without users everybody can publish there, and is
 * trusted like a server.
 *
 * Announcements also say, with and without configured keys, which servers are there and what each one's key for
 * encryption is. What is kept of them is bounded, and forgotten when a server has been silent for long.
 */
import { type KeyObject, verify } from 'node:crypto'
import type { Logger } from '../../platform/log.ts'
import { RateLimitedLogger } from '../../platform/rate-limited-log.ts'
import type { Link, Message, Subscription } from '../nats/link.ts'
import { type SigningKey, verifyingKeyOf } from '../nats/nkey.ts'
import { type Announcement, openAnnouncement, signAnnouncement } from './server-announcement.ts'
import { nameOf, type Party, type Subjects } from '../nats/subjects.ts'

export interface ServerTrust {
  /** This process's signing key as a server; undefined on a process that is no server. */
  readonly own: SigningKey | undefined
  /** True when the key is that of a server whose word this process takes; may ask for keys once and wait a moment. */
  isServer(publicKey: string): boolean | Promise<boolean>
  /** True for a signature by this key. Says nothing about whose key it is. */
  verify(publicKey: string, bytes: Uint8Array, signature: Uint8Array): boolean
}

/** Public NKEYs from the configuration. Undefined: whatever is announced. */
export interface TrustedKeys {
  readonly serverKeys?: readonly string[]
  /** Those with the secrets core; of `serverKeys` every one that says so, where absent. */
  readonly coreKeys?: readonly string[]
}

const ANNOUNCE_MS = 60_000
/** So many announcements are missed by a server that is gone. */
const FORGET_MS = 10 * ANNOUNCE_MS
/** A server that is asked by a thousand agents at once answers them all together. */
const ANNOUNCE_REST_MS = 200
/** For a server to answer. */
const WAIT_MS = 1000
const ASK_REST_MS = 200
const SERVERS_MAX = 256
const KEYS_MAX = 1024
const NOTHING = new Uint8Array(0)

/** A server that has been heard. */
export interface KnownServer extends Announcement {
  readonly heardAtMs: number
}

export interface ServerKeysOptions {
  readonly link: Link
  readonly subjects: Subjects
  readonly self: Party
  readonly trusted: TrustedKeys
  /** On a server: reads its signing key, and throws a Fault with the reason where it cannot. */
  readonly ownKey: (() => SigningKey) | undefined
  /** On a server: what it says about itself. */
  readonly about: Pick<Announcement, 'serverId' | 'hasCore' | 'curveKey' | 'name'> | undefined
  /** On a server: cluster ID of its secrets core at this moment; undefined unless that is initialised. */
  readonly clusterId?: () => string | undefined
  readonly logger: Logger
}

/** The servers' keys as one process knows them. */
export class ServerKeys implements ServerTrust {
  readonly #options: ServerKeysOptions
  readonly #complaints: RateLimitedLogger
  /** By key and name of the run: a run has two keys while its own is replaced. */
  readonly #servers = new Map<string, KnownServer>()
  readonly #keys = new Map<string, KeyObject>()
  readonly #waiting = new Set<(isHeard: boolean) => void>()
  /** Keys that no server has announced when they were asked for, until when they count as unknown. */
  readonly #unknownUntilMs = new Map<string, number>()
  readonly #subscriptions: Subscription[] = []
  #trusted: TrustedKeys
  #own: SigningKey | undefined
  #timer: NodeJS.Timeout | undefined
  #soonTimer: NodeJS.Timeout | undefined
  #announcedAtMs = Number.NEGATIVE_INFINITY
  #askedAtMs = Number.NEGATIVE_INFINITY
  #sequence = 0
  #announcedClusterId: string | undefined

  constructor(options: ServerKeysOptions) {
    this.#options = options
    this.#trusted = options.trusted
    this.#complaints = new RateLimitedLogger(options.logger)
    this.#readOwn()
  }

  start(): void {
    const { link, subjects, about } = this.#options
    this.#subscriptions.push(link.subscribe(subjects.serverKey, (message) => this.#take(message)))
    if (about) this.#subscriptions.push(link.subscribe(subjects.askServers('*'), () => this.#announceSoon()))
    link.onChange((isConnected) => {
      if (isConnected) this.#connected()
    })
    if (link.isConnected) this.#connected()
    if (about) this.#timer = setInterval(() => this.#announce(), ANNOUNCE_MS).unref()
  }

  stop(): void {
    clearInterval(this.#timer)
    clearTimeout(this.#soonTimer)
    for (const subscription of this.#subscriptions.splice(0)) subscription.close()
    this.#tell(false)
  }

  /** Takes over other keys, from a configuration that was read again. */
  trust(trusted: TrustedKeys): void {
    this.#trusted = trusted
    this.#unknownUntilMs.clear()
    for (const [name, { key }] of this.#servers) if (!this.#isConfigured(key)) this.#servers.delete(name)
    this.#readOwn()
    if (this.#options.link.isConnected) this.#connected()
  }

  get own(): SigningKey | undefined {
    return this.#own
  }

  isServer(publicKey: string): boolean | Promise<boolean> {
    if (publicKey === this.#own?.publicKey) return true
    if (this.#trusted.serverKeys) return this.#trusted.serverKeys.includes(publicKey)
    if (this.#isAnnounced(publicKey)) return true
    if ((this.#unknownUntilMs.get(publicKey) ?? 0) > performance.now()) return false
    return this.#waitFor(publicKey)
  }

  verify(publicKey: string, bytes: Uint8Array, signature: Uint8Array): boolean {
    const known = this.#keys.get(publicKey)
    const key = known ?? verifyingKeyOf(publicKey)
    if (!key) return false
    if (!known) remember(this.#keys, publicKey, key, KEYS_MAX)
    return verify(null, bytes, key, signature)
  }

  /** Servers that were heard not long ago; with `needsCore` those with the secrets core, whose keys may say so. */
  servers(needsCore: boolean): KnownServer[] {
    const { coreKeys } = this.#trusted
    return [...this.#servers.values()].filter(
      ({ key, hasCore, heardAtMs }) =>
        isFresh(heardAtMs) && (!needsCore || (hasCore && (!coreKeys || coreKeys.includes(key)))),
    )
  }

  /** When the core of this server was initialised or replaced since the last announcement, others are to know it soon. */
  announceIfChanged(): void {
    if (this.#options.clusterId?.() !== this.#announcedClusterId) this.#announceSoon()
  }

  /** True for the key for encryption of a server that was heard not long ago. */
  hasCurveKey(curveKey: Uint8Array): boolean {
    for (const known of this.#servers.values()) {
      if (isFresh(known.heardAtMs) && Buffer.compare(known.curveKey, curveKey) === 0) return true
    }
    return false
  }

  /** Asks every server for its announcement. */
  askSoon(): void {
    const nowMs = performance.now()
    if (nowMs - this.#askedAtMs < ASK_REST_MS) return
    this.#askedAtMs = nowMs
    const { link, subjects, self } = this.#options
    link.publish(subjects.askServers(nameOf(self)), NOTHING)
  }

  /** Asks, and resolves with true when an announcement has come; with false after a moment without one. */
  async ask(): Promise<boolean> {
    if (this.#subscriptions.length === 0) return false
    this.askSoon()
    return new Promise((resolve) => {
      const done = (isHeard: boolean) => {
        clearTimeout(timer)
        this.#waiting.delete(done)
        resolve(isHeard)
      }
      const timer = setTimeout(() => done(false), WAIT_MS)
      this.#waiting.add(done)
    })
  }

  /** It is known to be gone: a message to it had no receiver. */
  forget(serverId: string): void {
    for (const [name, known] of this.#servers) if (known.serverId === serverId) this.#servers.delete(name)
  }

  #isAnnounced(publicKey: string): boolean {
    for (const { key, heardAtMs } of this.#servers.values()) if (key === publicKey && isFresh(heardAtMs)) return true
    return false
  }

  #isConfigured(publicKey: string): boolean {
    return this.#trusted.serverKeys?.includes(publicKey) ?? true
  }

  async #waitFor(publicKey: string): Promise<boolean> {
    const endMs = performance.now() + WAIT_MS
    while (performance.now() < endMs && (await this.ask())) if (this.#isAnnounced(publicKey)) return true
    remember(this.#unknownUntilMs, publicKey, performance.now() + 2 * WAIT_MS, KEYS_MAX)
    return false
  }

  #connected(): void {
    // The login reads its files for every connection, and so does this.
    this.#readOwn()
    this.#announce()
    this.#askedAtMs = Number.NEGATIVE_INFINITY
    this.askSoon()
  }

  #readOwn(): void {
    const { ownKey, logger } = this.#options
    if (!ownKey) return
    try {
      this.#own = ownKey()
    } catch (error) {
      this.#complaints.error('this server has no key to sign with', { error: String(error) })
    }
    const own = this.#own?.publicKey
    if (own === undefined || this.#isConfigured(own)) return
    logger.warn('the key of this server is not in nats.server_keys: other hosts will not take its word', { key: own })
  }

  #announceSoon(): void {
    const restMs = this.#announcedAtMs + ANNOUNCE_REST_MS - performance.now()
    if (restMs <= 0) return this.#announce()
    this.#soonTimer ??= setTimeout(() => this.#announce(), restMs)
  }

  #announce(): void {
    clearTimeout(this.#soonTimer)
    this.#soonTimer = undefined
    const { link, subjects, about } = this.#options
    const own = this.#own
    if (!about || !own) return
    this.#announcedAtMs = performance.now()
    const clusterId = this.#options.clusterId?.()
    this.#announcedClusterId = clusterId
    const announcement = {
      ...about,
      ...(clusterId === undefined ? {} : { clusterId }),
      clockMs: Math.round(performance.now()),
      sequence: ++this.#sequence,
    }
    link.publish(subjects.serverKey, signAnnouncement(announcement, subjects.serverKey, own))
  }

  #take({ subject, payload }: Message): void {
    const opened = openAnnouncement(payload, subject, (...signed) => this.verify(...signed))
    if (typeof opened === 'string') {
      this.#complaints.warn('keys of servers were refused', { reason: opened })
      return
    }
    const { key, serverId, sequence } = opened
    if (!this.#isConfigured(key)) {
      this.#complaints.warn('keys of servers were refused', { reason: 'not in nats.server_keys', key })
      return
    }
    const name = `${key} ${serverId}`
    // What was said before it, said again by another.
    if ((this.#servers.get(name)?.sequence ?? -1) >= sequence) return
    remember(this.#servers, name, { ...opened, heardAtMs: performance.now() }, SERVERS_MAX)
    this.#unknownUntilMs.delete(key)
    this.#tell(true)
  }

  #tell(isHeard: boolean): void {
    for (const done of this.#waiting) done(isHeard)
  }
}

function isFresh(heardAtMs: number): boolean {
  return performance.now() - heardAtMs < FORGET_MS
}

/** Puts it in as the newest; the oldest gives way. */
function remember<V>(map: Map<string, V>, key: string, value: V, max: number): void {
  map.delete(key)
  map.set(key, value)
  const [oldest] = map.keys()
  if (map.size > max && oldest !== undefined) map.delete(oldest)
}
