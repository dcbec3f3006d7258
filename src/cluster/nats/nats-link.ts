/**
 * A link over NATS: one connection a process, made again for ever when it is lost, with who we are read anew each time.
 * Loud when the state changes or the reason for it does, quiet between: a server that is down for an hour costs two lines.
 *
 * What is published while there is no connection is lost; whoever needs more notices the hole. Subscriptions outlive
 * connections: each new one gets them all.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { connect, PermissionViolationError } from '@nats-io/transport-node'
import type { Msg, NatsConnection, Status } from '@nats-io/transport-node'
import { Fault, messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import type { Link, Message, Subscription } from './link.ts'
import { type LoginOptions, loginOf, loginSettings } from './nats-login.ts'
import { type Outbox, outboxOf } from './outbox.ts'
import { TIMINGS } from './timings.ts'

export interface NatsOptions extends LoginOptions {
  /** Shown in the NATS server's lists. */
  readonly name: string
  readonly logger: Logger
  /** How messages go out; the quickest way unless given. */
  readonly outboxOf?: (connection: NatsConnection) => Outbox
}

const DIAL_TIMEOUT_MS = 5000
const NOBODY = 503
const NOTHING = new Uint8Array(0)

/** A link that is on its way up: it resolves at once, and connects as soon as a server answers. */
export async function openNatsLink(options: NatsOptions): Promise<Link> {
  const link = new NatsLink(options)
  void link.keepUp()
  return link
}

interface Wanted {
  readonly subject: string
  readonly take: (message: Message) => void
  readonly queue: string | undefined
  close: (() => void) | undefined
}

/** So many different things are remembered; beyond, something new is taken for said. */
const SAID_MAX = 50

class NatsLink implements Link {
  readonly #options: NatsOptions
  readonly #logger: Logger
  readonly #wanted = new Set<Wanted>()
  readonly #listeners: ((isConnected: boolean) => void)[] = []
  readonly #closing = new AbortController()
  /** What has been said since something changed. */
  readonly #said = new LogOnce({ kindsMax: SAID_MAX })
  /** Members of a NATS cluster that its servers have told us of. */
  #discovered: readonly string[] = []
  #connection: NatsConnection | undefined
  #outbox: Outbox | undefined
  #payloadBytesMax = 1 << 20

  constructor(options: NatsOptions) {
    this.#options = options
    this.#logger = options.logger
  }

  /** Resolves when the link has been closed. */
  async keepUp(): Promise<void> {
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

  /** One attempt with each server there is, in any order; those that were named come first. */
  async #dial(): Promise<NatsConnection | undefined> {
    const { servers } = this.#options
    const discovered = this.#discovered.filter((server) => !servers.some((given) => given.endsWith(server)))
    for (const server of [...shuffled(servers), ...shuffled(discovered)]) {
      try {
        return await this.#dialOne(server, discovered.includes(server))
      } catch (error) {
        if (this.#isClosed) return undefined
        const reason = this.#reasonOf(error)
        const level = this.#said.due(`${server} ${reason}`) > 0 ? 'warn' : 'debug'
        this.#logger[level]('no connection to NATS, trying on', { server, reason })
      }
    }
    return undefined
  }

  #dialOne(server: string, isDiscovered: boolean): Promise<NatsConnection> {
    const { name, servers } = this.#options
    // One that a trusted server has told us of may stand under an address, with a certificate for the name of them all.
    const names = isDiscovered ? [server, ...servers] : [server]
    return connect({
      ...loginOf(this.#options, names),
      servers: [server],
      name,
      timeout: DIAL_TIMEOUT_MS,
      pingInterval: TIMINGS.natsPingMs,
      reconnect: false,
    })
  }

  #reasonOf(error: unknown): string {
    const text = error === undefined ? 'the connection was closed' : messageOf(error)
    if (!/authorization|authentication/i.test(text)) return text
    return `${text}: the NATS server does not accept ${loginSettings(this.#options)}`
  }

  /** Resolves when the connection is over. */
  async #use(connection: NatsConnection): Promise<void> {
    if (this.#isClosed) return connection.close()
    this.#connection = connection
    this.#outbox = (this.#options.outboxOf ?? outboxOf)(connection)
    this.#said.clear()
    this.#learn(connection)
    for (const wanted of this.#wanted) this.#subscribe(connection, wanted)
    const server = connection.getServer()
    this.#logger.info('connected to NATS', { server })
    this.#tellChange(true)
    void this.#watch(connection)
    const error = await connection.closed()
    if (this.#isClosed) return
    this.#connection = undefined
    this.#outbox = undefined
    this.#said.clear()
    this.#logger.warn('connection to NATS lost, trying to get it back', {
      server,
      reason: this.#reasonOf(error || undefined),
    })
    this.#tellChange(false)
  }

  #learn({ info }: NatsConnection): void {
    this.#discovered = info?.connect_urls ?? this.#discovered
    this.#payloadBytesMax = info?.max_payload ?? this.#payloadBytesMax
  }

  async #watch(connection: NatsConnection): Promise<void> {
    for await (const status of connection.status()) this.#heed(connection, status)
  }

  #heed(connection: NatsConnection, status: Status): void {
    if (status.type === 'update') this.#learn(connection)
    if (status.type !== 'error') return
    const { error } = status
    // Subjects end in names of single calls: one of them speaks for its like.
    const refused = error instanceof PermissionViolationError
    const what = refused ? `${error.operation} ${error.subject.replace(/\.[^.]*$/, '')}` : messageOf(error)
    if (this.#said.due(what) === 0) return
    if (!refused) return this.#logger.warn('an error of the NATS server', { error: messageOf(error) })
    this.#logger.error('the NATS server does not permit what this process needs, see its permissions', {
      operation: error.operation,
      subject: error.subject,
    })
  }

  #tellChange(isConnected: boolean): void {
    for (const tell of this.#listeners) tell(isConnected)
  }

  get isConnected(): boolean {
    return this.#connection !== undefined
  }

  get payloadBytesMax(): number {
    return this.#payloadBytesMax
  }

  onChange(tell: (isConnected: boolean) => void): void {
    this.#listeners.push(tell)
  }

  publish(subject: string, payload: Uint8Array, reply = '', rest = NOTHING): void {
    // Kept for later they would be old news: every sender says everything again, or is asked again.
    if (!this.#outbox) return
    try {
      // The NATS server would cut the connection.
      if (payload.length + rest.length > this.#payloadBytesMax) throw new Fault('it is larger than max_payload')
      this.#outbox.publish(subject, payload, reply, rest)
    } catch (error) {
      const text = messageOf(error)
      if (this.#said.due(text) > 0) {
        this.#logger.error('a message could not be sent', { subject, bytes: payload.length, error: text })
      }
    }
  }

  subscribe(subject: string, take: (message: Message) => void, queue?: string): Subscription {
    const wanted: Wanted = { subject, take, queue, close: undefined }
    this.#wanted.add(wanted)
    if (this.#connection) this.#subscribe(this.#connection, wanted)
    return {
      close: () => {
        this.#wanted.delete(wanted)
        wanted.close?.()
      },
    }
  }

  #subscribe(connection: NatsConnection, wanted: Wanted): void {
    // What is published from now on may be answered there.
    this.#outbox?.hold()
    const subscription = connection.subscribe(wanted.subject, {
      ...(wanted.queue === undefined ? {} : { queue: wanted.queue }),
      callback: (error, message) => {
        // What was refused is said by `#heed`.
        if (error) this.#resubscribe(connection, wanted)
        else this.#deliver(wanted, message)
      },
    })
    wanted.close = () => subscription.unsubscribe()
  }

  #resubscribe(connection: NatsConnection, wanted: Wanted): void {
    wanted.close = undefined
    setTimeout(() => {
      if (this.#connection === connection && this.#wanted.has(wanted)) this.#subscribe(connection, wanted)
    }, TIMINGS.resubscribeMs).unref()
  }

  #deliver(wanted: Wanted, message: Msg): void {
    const nobody = message.headers?.code === NOBODY && message.data.length === 0
    try {
      wanted.take({ subject: message.subject, payload: message.data, reply: message.reply ?? '', nobody })
    } catch (error) {
      // Whoever sends us something that breaks us must not end the subscription for everybody.
      const text = messageOf(error)
      if (this.#said.due(`${wanted.subject} ${text}`) === 0) return
      this.#logger.error('a message could not be handled', { subject: message.subject, error: text })
    }
  }

  async close(): Promise<void> {
    const connection = this.#connection
    this.#outbox?.flush()
    this.#connection = undefined
    this.#outbox = undefined
    this.#closing.abort()
    if (!connection) return
    const late = sleep(TIMINGS.drainMs, 'late', { ref: false })
    await Promise.race([connection.drain().catch(() => undefined), late])
    await connection.close()
  }
}

function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, at: Math.random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item)
}
