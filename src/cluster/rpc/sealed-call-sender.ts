/**
 * Sending sealed calls: selects a server, and seals each call so that only this server opens it (docs/decisions/027).
 */
import { Fault, Refusal } from '../../platform/errors.ts'
import { type Logger, RateLimitedLogger } from '../../platform/log.ts'
import type { MessageBus } from '../nats/message-bus.ts'
import { ANY, type ServerGroup, type Subjects } from '../nats/subjects.ts'
import {
  type CurveKey,
  decodeRefusal,
  type EnvelopeRefusal,
  type MessageAddress,
  openMessage,
  sealMessage,
  sealRequest,
  type SessionKeys,
} from '../trust/envelope.ts'
import type { KnownServer, ServerKeys } from '../trust/server-trust.ts'

/** Timeout for the announcement of a server, where none is known: a process that has just started. */
const DISCOVERY_TIMEOUT_MS = 1500
const SESSIONS_MAX = 256

const REFUSAL_TEXTS: Readonly<Record<EnvelopeRefusal, string>> = {
  malformed: 'the call arrived at the server malformed',
  'wrong key': 'the server could not decrypt the call, which was encrypted for another key or changed in transit',
  'too old': 'the call arrived at the server too late',
  'sent before': 'the call arrived at the server twice',
  'too many callers': 'the server has too many callers',
  'no server': 'the server accepts this call from servers only, and does not know the key of this process',
}

export interface SealedCallSenderOptions {
  readonly keys: ServerKeys
  readonly curve: CurveKey
  readonly logger: Logger
}

/** Sessions of this process with all servers. */
export class SealedCallSender {
  readonly #options: SealedCallSenderOptions
  /** By the server's key. */
  readonly #sessions = new Map<string, SessionKeys>()
  /** Number of calls to all servers. Never reset, so that no number is used twice with a key, also after a session was evicted. */
  #count = 0
  readonly #limitedLogger: RateLimitedLogger

  constructor(options: SealedCallSenderOptions) {
    this.#options = options
    this.#limitedLogger = new RateLimitedLogger(options.logger)
  }

  /**
   * A random server of the group that is not in `tried`, of those whose core can serve the call, or the server `only`. Rejects with a
   * Refusal if none is known after a moment.
   */
  async pick(group: ServerGroup, tried: ReadonlySet<string>, only?: string): Promise<KnownServer> {
    const { keys } = this.#options
    const endMs = performance.now() + DISCOVERY_TIMEOUT_MS
    for (;;) {
      const servers = only === undefined ? keys.preferredServers(group === 'core', tried) : this.#only(only, tried)
      const picked = servers[Math.floor(Math.random() * servers.length)]
      if (picked) return picked
      if (performance.now() > endMs || !(await keys.waitForAnnouncement())) break
    }
    if (only !== undefined) throw new Refusal('not_connected', 'the active server is not connected, try again')
    const text =
      group === ANY ? 'no server is connected, try again' : 'no server with the secrets core is connected, try again'
    throw new Refusal('unavailable', text)
  }

  #only(serverId: string, tried: ReadonlySet<string>): KnownServer[] {
    const servers = this.#options.keys.servers(true).filter((server) => server.serverId === serverId)
    return tried.has(serverId) ? [] : servers
  }

  /** Does not pick the server again before its next announcement. */
  remove(serverId: string): void {
    this.#options.keys.remove(serverId)
  }

  /** @throws Refusal if the server's key is invalid. */
  seal({ curveKey, clockMs, announcedAtMs }: KnownServer, to: MessageAddress, payload: Uint8Array): SealedCall {
    const keys = this.#session(curveKey)
    const call = ++this.#count
    const head = {
      callerKey: this.#options.curve.publicKey,
      call,
      clockMs: clockMs + performance.now() - announcedAtMs,
    }
    const request = sealRequest(keys.toServer, head, to, payload)
    return new SealedCall(request, keys, call, this)
  }

  #session(curveKey: Uint8Array): SessionKeys {
    const name = Buffer.from(curveKey).toString('base64')
    const known = this.#sessions.get(name)
    if (known) return known
    try {
      const session = this.#options.curve.sessionWithServer(curveKey)
      this.#sessions.set(name, session)
      const [oldest] = this.#sessions.keys()
      if (this.#sessions.size > SESSIONS_MAX && oldest !== undefined) this.#sessions.delete(oldest)
      return session
    } catch {
      throw new Refusal('unavailable', 'the server announced an invalid key, see its log')
    }
  }

  logDropped(reason: string): void {
    this.#limitedLogger.warn('response of a server dropped', { reason })
  }

  /** The refusal for the caller of a call that the server has not opened. */
  refusal(reason: EnvelopeRefusal): Refusal {
    // The server may have restarted, or have other keys.
    this.#options.keys.requestAnnouncements()
    return new Refusal('unavailable', `${REFUSAL_TEXTS[reason]}, try again`)
  }
}

/** One call, sealed for one server. */
export class SealedCall {
  readonly request: Uint8Array
  readonly #keys: SessionKeys
  readonly #call: number
  readonly #sender: SealedCallSender
  #sent = 0
  #received = 0

  constructor(request: Uint8Array, keys: SessionKeys, call: number, sender: SealedCallSender) {
    this.request = request
    this.#keys = keys
    this.#call = call
    this.#sender = sender
  }

  sealControl(payload: Uint8Array): Uint8Array {
    return sealMessage(this.#keys.toServer, { kind: 'control', call: this.#call, message: ++this.#sent }, [payload])
  }

  /** The next message of the answer. A Refusal ends the call; `lost`: a previous message is missing; undefined: dropped. */
  open(payload: Uint8Array): Uint8Array | Refusal | 'lost' | undefined {
    const opened = openMessage(this.#keys.toCaller, { kind: 'answer', call: this.#call }, payload)
    if (!opened) {
      const reason = this.#received === 0 ? decodeRefusal(payload) : undefined
      if (reason) return this.#sender.refusal(reason)
      this.#sender.logDropped('wrong key, truncated or changed')
      return undefined
    }
    if (opened.message <= this.#received) {
      this.#sender.logDropped('sent before')
      return undefined
    }
    if (opened.message !== this.#received + 1) return 'lost'
    this.#received = opened.message
    return opened.payload
  }
}

export interface ServerCallOptions {
  readonly bus: MessageBus
  readonly subjects: Subjects
  readonly sender: SealedCallSender
  /** ID of this process on the bus. */
  readonly caller: string
  readonly group: ServerGroup
  /** Only this server. */
  readonly serverId: string | undefined
}

export interface ServerCallMessage {
  /** Name of the call. */
  readonly name: string
  readonly bytes: Uint8Array
  /** Subject of the answers. */
  readonly reply: string
}

/** A call to one server of a group. It is sent to another one if the picked server is gone. */
export class ServerCall {
  readonly #options: ServerCallOptions
  readonly #message: ServerCallMessage
  readonly #tried = new Set<string>()
  #serverId: string | undefined
  /** For texts. */
  serverName = 'the server'
  #sealed: SealedCall | undefined
  #isClosed = false

  constructor(options: ServerCallOptions, message: ServerCallMessage) {
    this.#options = options
    this.#message = message
  }

  /** Calls `fail` if there is no server. */
  async send(fail: (error: Error) => void): Promise<void> {
    const { bus, subjects, sender, caller, group, serverId } = this.#options
    const { bytes, reply } = this.#message
    try {
      const server = await sender.pick(group, this.#tried, serverId)
      if (this.#isClosed) return
      const subject = subjects.serverCall(server.serverId, caller, group)
      this.#sealed = sender.seal(server, { subject, reply }, bytes)
      this.#serverId = server.serverId
      this.serverName = server.name === undefined ? 'the server' : `server "${server.name}"`
      bus.publish(subject, this.#sealed.request, reply)
    } catch (error) {
      fail(error instanceof Error ? error : new Fault('a call could not be encrypted'))
    }
  }

  /** The server has not received the call, so it is safe to send it again. */
  async sendToAnother(fail: (error: Error) => void): Promise<void> {
    if (this.#serverId !== undefined) this.#tried.add(this.#serverId)
    this.removeServer()
    this.#sealed = undefined
    await this.send(fail)
  }

  /** The server does not respond: no call is sent to it before its next announcement. */
  removeServer(): void {
    if (this.#serverId !== undefined) this.#options.sender.remove(this.#serverId)
  }

  /** Sends credit, cancel or drain; ignored before the call was sent. */
  control(payload: Uint8Array): void {
    const { bus, subjects, caller } = this.#options
    if (!this.#sealed || this.#serverId === undefined) return
    bus.publish(subjects.serverFlow(this.#serverId, caller, this.#message.name), this.#sealed.sealControl(payload))
  }

  /** As `SealedCall.open`. */
  open(payload: Uint8Array): Uint8Array | Refusal | 'lost' | undefined {
    return this.#sealed?.open(payload)
  }

  close(): void {
    this.#isClosed = true
  }
}
