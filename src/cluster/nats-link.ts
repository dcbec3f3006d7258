/**
 * A link over NATS: one connection a process, kept up for ever. Loud when it is lost or comes back, quiet between. What is
 * published while it is down is kept by the client for the moment it comes back, up to a bound, and lost beyond; whoever
 * needs more notices the hole.
 */
import { readFileSync } from 'node:fs'
import { connect, credsAuthenticator, nkeyAuthenticator, tokenAuthenticator } from '@nats-io/transport-node'
import { usernamePasswordAuthenticator } from '@nats-io/transport-node'
import type { Authenticator, Msg, NatsConnection, NodeConnectionOptions, Status } from '@nats-io/transport-node'
import { Fault, messageOf } from '../kit/errors.ts'
import type { Logger } from '../kit/log.ts'
import type { Link, Message, Subscription } from './link.ts'

export interface NatsOptions {
  readonly servers: readonly string[]
  /** At most one way to say who we are. Files are read when the connection is made. */
  readonly credentialsFile?: string
  readonly nkeyFile?: string
  readonly user?: string
  readonly passwordFile?: string
  readonly tokenFile?: string
  readonly caFile?: string
  readonly certFile?: string
  readonly keyFile?: string
  /** Shown in the NATS server's lists. */
  readonly name: string
  readonly logger: Logger
}

const RECONNECT_WAIT_MS = 500
const RECONNECT_JITTER_MS = 1500
/** The other end of a dead wire is noticed within two of them. */
const PING_MS = 5000
const DIAL_TIMEOUT_MS = 5000
const NOBODY = 503

/** A link that is on its way up: it resolves at once, and connects as soon as a server answers. */
export async function openNatsLink(options: NatsOptions): Promise<Link> {
  const { logger } = options
  const settings: NodeConnectionOptions = {
    servers: [...options.servers],
    name: options.name,
    authenticator: authenticatorOf(options),
    ...tlsOf(options),
    timeout: DIAL_TIMEOUT_MS,
    pingInterval: PING_MS,
    maxReconnectAttempts: -1,
    reconnectTimeWait: RECONNECT_WAIT_MS,
    reconnectJitter: RECONNECT_JITTER_MS,
    reconnectJitterTLS: RECONNECT_JITTER_MS,
    // Credentials may be put right while we wait.
    ignoreAuthErrorAbort: true,
    waitOnFirstConnect: true,
  }
  const link = new NatsLink(logger)
  link.start(connect(settings))
  return link
}

function authenticatorOf(options: NatsOptions): Authenticator[] {
  const { credentialsFile, nkeyFile, user, passwordFile, tokenFile } = options
  if (credentialsFile !== undefined) return [credsAuthenticator(readSecret('nats.credentials_file', credentialsFile))]
  if (nkeyFile !== undefined) return [nkeyAuthenticator(trimmed(readSecret('nats.nkey_file', nkeyFile)))]
  if (tokenFile !== undefined) return [tokenAuthenticator(readSecret('nats.token_file', tokenFile).toString().trim())]
  if (user === undefined) return []
  const password = passwordFile === undefined ? '' : readSecret('nats.password_file', passwordFile).toString().trim()
  return [usernamePasswordAuthenticator(user, password)]
}

function trimmed(bytes: Buffer): Uint8Array {
  return new TextEncoder().encode(bytes.toString().trim())
}

function readSecret(setting: string, file: string): Buffer {
  try {
    return readFileSync(file)
  } catch (error) {
    throw new Fault(`${setting} names ${file}, which cannot be read: ${messageOf(error)}`, { cause: error })
  }
}

function tlsOf({ caFile, certFile, keyFile }: NatsOptions): Pick<NodeConnectionOptions, 'tls'> {
  if (caFile === undefined && certFile === undefined) return {}
  return {
    tls: {
      ...(caFile === undefined ? {} : { caFile }),
      ...(certFile === undefined ? {} : { certFile }),
      ...(keyFile === undefined ? {} : { keyFile }),
    },
  }
}

interface Wanted {
  readonly subject: string
  readonly take: (message: Message) => void
  readonly queue: string | undefined
  close: (() => void) | undefined
}

class NatsLink implements Link {
  readonly #logger: Logger
  readonly #wanted = new Set<Wanted>()
  readonly #listeners: ((isConnected: boolean) => void)[] = []
  #connection: NatsConnection | undefined
  #isConnected = false
  #isClosed = false

  constructor(logger: Logger) {
    this.#logger = logger
  }

  start(connecting: Promise<NatsConnection>): void {
    connecting.then(
      (connection) => this.#up(connection),
      (error: unknown) => {
        if (!this.#isClosed) this.#logger.error('no connection to NATS', { error: messageOf(error) })
      },
    )
  }

  #up(connection: NatsConnection): void {
    if (this.#isClosed) {
      void connection.close()
      return
    }
    this.#connection = connection
    for (const wanted of this.#wanted) this.#subscribe(connection, wanted)
    this.#logger.info('connected to NATS', { server: connection.getServer() })
    this.#change(true)
    void this.#watch(connection)
  }

  async #watch(connection: NatsConnection): Promise<void> {
    for await (const status of connection.status()) this.#tell(status)
  }

  #tell(status: Status): void {
    if (status.type === 'disconnect') {
      this.#logger.warn('connection to NATS lost, trying to get it back', { server: status.server })
      this.#change(false)
    } else if (status.type === 'reconnect') {
      this.#logger.info('connected to NATS again', { server: status.server })
      this.#change(true)
    } else if (status.type === 'error') {
      this.#logger.error('NATS refused something', { error: messageOf(status.error) })
    }
  }

  #change(isConnected: boolean): void {
    if (this.#isConnected === isConnected) return
    this.#isConnected = isConnected
    for (const tell of this.#listeners) tell(isConnected)
  }

  get isConnected(): boolean {
    return this.#isConnected
  }

  get payloadBytesMax(): number {
    return this.#connection?.info?.max_payload ?? 1 << 20
  }

  onChange(tell: (isConnected: boolean) => void): void {
    this.#listeners.push(tell)
  }

  publish(subject: string, payload: Uint8Array, reply = ''): void {
    // Kept for later they would be old news: every sender says everything again, or is asked again.
    if (!this.#isConnected || !this.#connection) return
    try {
      this.#connection.publish(subject, payload, reply === '' ? {} : { reply })
    } catch (error) {
      this.#logger.error('a message could not be sent', { subject, bytes: payload.length, error: messageOf(error) })
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
    const subscription = connection.subscribe(wanted.subject, {
      ...(wanted.queue === undefined ? {} : { queue: wanted.queue }),
      callback: (error, message) => {
        if (error) this.#logger.error('a subscription failed', { subject: wanted.subject, error: messageOf(error) })
        else this.#deliver(wanted, message)
      },
    })
    wanted.close = () => subscription.unsubscribe()
  }

  #deliver(wanted: Wanted, message: Msg): void {
    const nobody = message.headers?.code === NOBODY && message.data.length === 0
    try {
      wanted.take({ subject: message.subject, payload: message.data, reply: message.reply ?? '', nobody })
    } catch (error) {
      // Whoever sends us something that breaks us must not end the subscription for everybody.
      this.#logger.error('a message could not be handled', { subject: message.subject, error: messageOf(error) })
    }
  }

  async close(): Promise<void> {
    const wasConnected = this.#isConnected
    const connection = this.#connection
    this.#isClosed = true
    this.#isConnected = false
    this.#connection = undefined
    // What was published last still goes out.
    if (wasConnected) await connection?.drain().catch(() => connection.close())
    else await connection?.close()
  }
}
