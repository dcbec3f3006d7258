/**
 * The message bus over NATS: one connection for each process. A lost connection is retried without a limit, and each attempt reads
 * the credentials again. A change of the state, or of the reason for it, is logged once at `warn`; repeated failures are `debug`.
 *
 * What is published without a connection is lost, and receivers detect the gap. Subscriptions are renewed on each new connection.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { connect, PermissionViolationError } from '@nats-io/transport-node'
import type { Msg, NatsConnection, Status } from '@nats-io/transport-node'
import { errnoOf, Fault, messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import type { BusMessage, BusSubscription, MessageBus } from './message-bus.ts'
import { type LoginOptions, loginOf, loginSettings } from './nats-login.ts'
import { type Publisher, publisherOf } from './publisher.ts'
import { TIMINGS } from './timings.ts'

export interface NatsOptions extends LoginOptions {
  /** Client name in the NATS server's list of connections. */
  readonly name: string
  readonly logger: Logger
  /** Default: the fastest publisher. */
  readonly publisherOf?: (connection: NatsConnection) => Publisher
}

const DIAL_TIMEOUT_MS = 5000
/** Status code of an empty message that the NATS server sends to the reply subject. */
const NO_RESPONDERS = 503
const EMPTY = new Uint8Array(0)

/** Resolves at once; connects as soon as a server answers. */
export async function openNatsBus(options: NatsOptions): Promise<MessageBus> {
  const bus = new NatsBus(options)
  void bus.keepConnected()
  return bus
}

interface SubscriptionEntry {
  readonly subject: string
  readonly take: (message: BusMessage) => void
  readonly queue: string | undefined
  /** Undefined without a subscription at the NATS server. */
  close: (() => void) | undefined
}

/** Different messages that are logged between two changes of the state. */
const LOGGED_MAX = 50

class NatsBus implements MessageBus {
  readonly #options: NatsOptions
  readonly #logger: Logger
  readonly #subscriptions = new Set<SubscriptionEntry>()
  readonly #listeners: ((isConnected: boolean) => void)[] = []
  readonly #closing = new AbortController()
  /** Messages that were logged since the last change of the state. */
  readonly #logged = new LogOnce({ kindsMax: LOGGED_MAX })
  /** Members of the NATS cluster, as its servers report them. */
  #discovered: readonly string[] = []
  #connection: NatsConnection | undefined
  #publisher: Publisher | undefined
  #disconnectReason: string | undefined
  #payloadBytesMax = 1 << 20

  constructor(options: NatsOptions) {
    this.#options = options
    this.#logger = options.logger
  }

  /** Resolves when the bus is closed. */
  async keepConnected(): Promise<void> {
    for (let failures = 0; !this.#isClosed; ) {
      const connection = await this.#dial()
      if (connection) {
        failures = 0
        await this.#use(connection)
      }
      const waitMs =
        Math.min(TIMINGS.reconnectMinMs * 2 ** failures++, TIMINGS.reconnectMaxMs) * (1 - 0.75 * Math.random())
      await sleep(waitMs, undefined, { signal: this.#closing.signal, ref: false }).catch(() => undefined)
    }
  }

  get #isClosed(): boolean {
    return this.#closing.signal.aborted
  }

  /** One attempt with each server, in random order, configured servers first. */
  async #dial(): Promise<NatsConnection | undefined> {
    const { servers } = this.#options
    const discovered = this.#discovered.filter((server) => !servers.some((configured) => configured.endsWith(server)))
    for (const server of [...shuffled(servers), ...shuffled(discovered)]) {
      try {
        return await this.#dialOne(server, discovered.includes(server))
      } catch (error) {
        if (this.#isClosed) return undefined
        const reason = this.#reasonOf(error)
        this.#disconnectReason = causeOf(error)
        const level = this.#logged.due(`${server} ${reason}`) > 0 ? 'warn' : 'debug'
        this.#logger[level]('cannot connect to NATS, retrying', { server, reason })
      }
    }
    return undefined
  }

  #dialOne(server: string, isDiscovered: boolean): Promise<NatsConnection> {
    const { name, servers } = this.#options
    // A discovered server may be an address, with a certificate for the name of the configured servers.
    const names = isDiscovered ? [server, ...servers] : [server]
    return connect({
      ...loginOf(this.#options, names),
      servers: [server],
      name,
      timeout: DIAL_TIMEOUT_MS,
      pingInterval: TIMINGS.natsPingMs,
      reconnect: false,
      noAsyncTraces: true,
    })
  }

  #reasonOf(error: unknown): string {
    const text = error === undefined ? 'connection closed' : messageOf(error)
    // The text of Node names an option of Node.
    if (causeOf(error) === NOT_TRUSTED) return NOT_TRUSTED
    if (!/authorization|authentication/i.test(text)) return text
    return `${text}: the NATS server does not accept ${loginSettings(this.#options)}`
  }

  /** Resolves when the connection has ended. */
  async #use(connection: NatsConnection): Promise<void> {
    if (this.#isClosed) return connection.close()
    this.#connection = connection
    this.#disconnectReason = undefined
    this.#publisher = (this.#options.publisherOf ?? publisherOf)(connection)
    this.#logged.clear()
    this.#readServerInfo(connection)
    for (const entry of this.#subscriptions) this.#subscribe(connection, entry)
    const server = connection.getServer()
    this.#logger.info('connected to NATS', { server })
    this.#notify(true)
    void this.#watch(connection)
    const error = await connection.closed()
    if (this.#isClosed) return
    this.#connection = undefined
    this.#publisher = undefined
    this.#disconnectReason = causeOf(error || undefined)
    this.#logged.clear()
    this.#logger.warn('connection to NATS lost, reconnecting', {
      server,
      reason: this.#reasonOf(error || undefined),
    })
    this.#notify(false)
  }

  #readServerInfo({ info }: NatsConnection): void {
    this.#discovered = info?.connect_urls ?? this.#discovered
    this.#payloadBytesMax = info?.max_payload ?? this.#payloadBytesMax
  }

  async #watch(connection: NatsConnection): Promise<void> {
    for await (const status of connection.status()) this.#handleStatus(connection, status)
  }

  #handleStatus(connection: NatsConnection, status: Status): void {
    if (status.type === 'update') this.#readServerInfo(connection)
    if (status.type !== 'error') return
    const { error } = status
    // The last part of a subject is often the name of one call, which would make each violation a new message.
    const isViolation = error instanceof PermissionViolationError
    const what = isViolation ? `${error.operation} ${error.subject.replace(/\.[^.]*$/, '')}` : messageOf(error)
    if (this.#logged.due(what) === 0) return
    if (!isViolation) return this.#logger.warn('NATS server reported an error', { error: messageOf(error) })
    this.#logger.error('NATS server denied permission', {
      operation: error.operation,
      subject: error.subject,
    })
  }

  #notify(isConnected: boolean): void {
    for (const listener of this.#listeners) listener(isConnected)
  }

  get isConnected(): boolean {
    return this.#connection !== undefined
  }

  get disconnectReason(): string | undefined {
    return this.#disconnectReason
  }

  get payloadBytesMax(): number {
    return this.#payloadBytesMax
  }

  onChange(listener: (isConnected: boolean) => void): void {
    this.#listeners.push(listener)
  }

  publish(subject: string, payload: Uint8Array, reply = '', rest = EMPTY): void {
    // Not queued: it would be outdated later, and every sender repeats its state after a reconnect.
    if (!this.#publisher) return
    try {
      // The NATS server closes the connection of a client that sends more.
      const bytes = payload.length + rest.length
      if (bytes > this.#payloadBytesMax) throw new Fault(`larger than max_payload (${this.#payloadBytesMax} bytes)`)
      this.#publisher.publish(subject, payload, reply, rest)
    } catch (error) {
      const text = messageOf(error)
      if (this.#logged.due(text) > 0) {
        this.#logger.error('message could not be sent', { subject, bytes: payload.length, error: text })
      }
    }
  }

  subscribe(subject: string, take: (message: BusMessage) => void, queue?: string): BusSubscription {
    const entry: SubscriptionEntry = { subject, take, queue, close: undefined }
    this.#subscriptions.add(entry)
    if (this.#connection) this.#subscribe(this.#connection, entry)
    return {
      close: () => {
        this.#subscriptions.delete(entry)
        entry.close?.()
      },
    }
  }

  #subscribe(connection: NatsConnection, entry: SubscriptionEntry): void {
    // An answer to what is published from now on may arrive on this subscription.
    this.#publisher?.hold()
    const subscription = connection.subscribe(entry.subject, {
      ...(entry.queue === undefined ? {} : { queue: entry.queue }),
      callback: (error, message) => {
        // The reason is logged by `#handleStatus`.
        if (error) this.#resubscribe(connection, entry)
        else this.#deliver(entry, message)
      },
    })
    entry.close = () => subscription.unsubscribe()
  }

  #resubscribe(connection: NatsConnection, entry: SubscriptionEntry): void {
    entry.close = undefined
    setTimeout(() => {
      if (this.#connection === connection && this.#subscriptions.has(entry)) this.#subscribe(connection, entry)
    }, TIMINGS.resubscribeMs).unref()
  }

  #deliver(entry: SubscriptionEntry, message: Msg): void {
    const { data: payload, headers, reply = '', subject } = message
    const isNoResponders = headers?.code === NO_RESPONDERS && payload.length === 0
    try {
      entry.take({ subject, payload, reply, isNoResponders })
    } catch (error) {
      // One message that causes a fault must not end the subscription.
      const text = messageOf(error)
      if (this.#logged.due(`${entry.subject} ${text}`) === 0) return
      this.#logger.error('message could not be handled', { subject, error: text })
    }
  }

  async close(): Promise<void> {
    const connection = this.#connection
    this.#publisher?.flush()
    this.#connection = undefined
    this.#publisher = undefined
    this.#closing.abort()
    if (!connection) return
    const timeout = sleep(TIMINGS.drainTimeoutMs, 'timeout', { ref: false })
    await Promise.race([connection.drain().catch(() => undefined), timeout])
    await connection.close()
  }
}

const NOT_TRUSTED = 'the certificate of the NATS server is not trusted: set nats.ca_file to its CA'

/** For readiness, which every caller may read: the cause without names and addresses, which the log has. */
export function causeOf(error: unknown): string {
  const code = errnoOf(error) ?? errnoOf(error instanceof Error ? error.cause : undefined)
  if (error === undefined) return 'connection closed'
  if (code !== undefined && /^E[A-Z]+$/.test(code)) return code
  const text = messageOf(error)
  if (/altname/i.test(text)) return 'the certificate of the NATS server is for another name'
  if (/self-signed certificate|unable to (get|verify)/i.test(text)) return NOT_TRUSTED
  if (/certificate/i.test(text)) return `TLS: ${text}`
  if (/authorization|authentication/i.test(text)) return 'the NATS server refuses the login'
  return /timeout/i.test(text) ? 'no response in time' : 'see the log'
}

function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item)
}
