/**
 * Serves calls of other processes: runs the same operation that HTTP runs, with the same parsing and authorization, and sends
 * its answer in parts, never more than the caller's allowance ahead.
 */
import { messageOf, Refusal } from '../../platform/errors.ts'
import { type Logger, RateLimitedLogger } from '../../platform/log.ts'
import { type AnyOperation, type Callers, type Identity, invoke, ANONYMOUS } from '../../platform/operation.ts'
import { TransientMap } from '../../platform/transient-map.ts'
import { isNodeId } from '../../platform/schema.ts'
import { TokenBuckets } from '../../platform/token-bucket.ts'
import type { BusMessage, BusSubscription, MessageBus } from '../nats/message-bus.ts'
import { ANY, lastParts, type ServerGroup, type Subjects } from '../nats/subjects.ts'
import { TIMINGS } from '../nats/timings.ts'
import { encodeRefusal, type EnvelopeRefusal } from '../trust/envelope.ts'
import { StaleRunError } from './node-admission.ts'
import { NodeSlots } from './node-slots.ts'
import type { OpenedCall, SealedCallReceiver } from './sealed-call-receiver.ts'
import { PlainChannel, refusalMessage, ServedCall } from './served-call.ts'
import { decodeCall, encode, type ReceivedCall } from './call-wire.ts'

const RETRY_HEADERS = { 'Retry-After': '2' }
/** Calls that wait for the announcements of other servers. */
const LEARNING_MAX = 64

/** Calls of a host: far more than its callers' tokens and its forwarded calls cause. */
export const HOST_CALLS = { perSecond: 1000, capacity: 4000 }
/** Excess calls that are answered with a refusal; the others are dropped. */
const REFUSED_CALLS = { perSecond: 20, capacity: 100 }
/** Concurrent calls of one host and of all hosts: a quarter and three quarters of what a server serves, the rest is for servers. */
export const HOST_CONCURRENT_CALLS_MAX = 1024
const HOSTS_CONCURRENT_CALLS_MAX = 3072

const nowMs = () => performance.now()

/**
 * Limits for calls of hosts to a server (docs/decisions/053). A host's node ID is part of the subject of its calls, where NATS
 * permits its own only, so excess calls are recognized before they are decrypted. Servers are not limited: all hosts trust
 * them anyway.
 */
export class CallerLimits {
  readonly #calls = new TokenBuckets({ ...HOST_CALLS, now: nowMs })
  readonly #refusedCalls = new TokenBuckets({ ...REFUSED_CALLS, now: nowMs })
  readonly #slots: NodeSlots

  /** `slots`: concurrent calls of all hosts, and of one. */
  constructor(slots = { slots: HOSTS_CONCURRENT_CALLS_MAX, slotsPerNode: HOST_CONCURRENT_CALLS_MAX }) {
    this.#slots = new NodeSlots(slots)
  }

  /** Decides about a message before it is decrypted. */
  admit(caller: string): 'open' | 'refuse' | 'drop' {
    if (!isNodeId(caller) || this.#calls.take(caller, 1)) return 'open'
    return this.#refusedCalls.take(caller, 1) ? 'refuse' : 'drop'
  }

  /**
   * Acquires a slot for a call; returns the function that releases it, or undefined if the caller has reached its share. `onLost` is
   * called when a host that holds fewer slots gets this one.
   */
  acquireSlot(caller: string, onLost: () => void): (() => void) | undefined {
    if (!isNodeId(caller)) return () => undefined
    const slot = this.#slots.acquire(caller, onLost)
    return slot && (() => this.#slots.release(slot))
  }

  /** Removes callers that have been silent. */
  sweep(): void {
    this.#calls.sweep()
    this.#refusedCalls.sweep()
  }
}

/** Resolves the identity that a server asserts for a call. */
export interface CallAdmission {
  /** Rejects with a Refusal or a `StaleRunError`. */
  identityOf(received: ReceivedCall): Promise<Identity>
}

export interface CallServerOptions {
  readonly bus: MessageBus
  readonly subjects: Subjects
  /** A node, or a server, to which calls are sealed. */
  readonly as:
    | { readonly nodeId: string; readonly admission: CallAdmission }
    | { readonly serverId: string; readonly sealed: SealedCallReceiver; readonly callers: Callers }
  readonly operations: readonly AnyOperation[]
  /** Of a server: calls to any server, or to its secrets core. Default: any. */
  readonly group?: ServerGroup
  readonly logger: Logger
  /** Concurrent calls; further ones are refused. */
  readonly callsMax: number
  /** Limits for calling hosts. Default: those above. */
  readonly limits?: CallerLimits
  /** True while another process with the same node ID serves the calls. */
  readonly isSuperseded?: () => boolean
}

const OLDER =
  'the call was sent by an older version of outpost, which sends tokens to hosts: upgrade the server that sent it'
const NEWER = 'this process runs an older version of outpost than its caller, upgrade it'
const UNREADABLE = {
  newer: { reason: 'newer version', refusal: new Refusal('not_implemented', NEWER) },
  older: { reason: 'older version', refusal: new Refusal('not_implemented', OLDER) },
  malformed: { reason: 'malformed', refusal: new Refusal('invalid_request', 'malformed call') },
} as const

function slotsExhausted(): Refusal {
  return new Refusal('too_many', 'too many concurrent calls from this host, try again later', RETRY_HEADERS)
}

export class CallServer {
  readonly #options: CallServerOptions
  readonly #operations: ReadonlyMap<string, AnyOperation>
  readonly #calls = new TransientMap<string, ServedCall>()
  readonly #subscriptions: BusSubscription[] = []
  readonly #limitedLogger: RateLimitedLogger
  readonly #limits: CallerLimits
  readonly #callers: Callers
  #sweeper: NodeJS.Timeout | undefined
  #learning = 0
  #isDraining = false

  constructor(options: CallServerOptions) {
    this.#options = options
    this.#limits = options.limits ?? new CallerLimits()
    this.#limitedLogger = new RateLimitedLogger(options.logger)
    // On a node the assertion of a server replaces the token.
    this.#callers = 'callers' in options.as ? options.as.callers : { resolve: () => ANONYMOUS }
    this.#operations = new Map(options.operations.map((operation) => [operation.name, operation]))
  }

  start(): void {
    const { bus, subjects, as, group = ANY } = this.#options
    const receive = (message: BusMessage) => this.#receive(message)
    this.#subscriptions.push(
      bus.subscribe('nodeId' in as ? subjects.call(as.nodeId) : subjects.serverCall(as.serverId, '*', group), receive),
      bus.subscribe(this.#flowSubject, (message) => this.#control(message)),
    )
    this.#sweeper = setInterval(() => this.#sweep(), TIMINGS.keepaliveMs / 2).unref()
  }

  get #flowSubject(): string {
    const { subjects, as } = this.#options
    return 'nodeId' in as ? subjects.flow(as.nodeId, '*') : subjects.serverFlow(as.serverId, '*', '*')
  }

  /** Blocking queries, also those that begin from now on, are answered at once. Other calls continue. */
  drain(): void {
    this.#isDraining = true
    for (const call of this.#calls.values()) call.drain()
  }

  /** Ends all calls with a refusal. */
  stop(): void {
    clearInterval(this.#sweeper)
    for (const subscription of this.#subscriptions.splice(0)) subscription.close()
    for (const call of this.#calls.values()) {
      call.abandon(new Refusal('unavailable', 'the agent is stopping, try again'))
    }
  }

  get calls(): number {
    return this.#calls.size
  }

  /**
   * The name of the call that expects its answers on `reply`; undefined for a subject that must not be answered. A caller could
   * name a subject on which it may not publish itself, so answers are sent only to the caller in the call's own subject.
   */
  #callName(subject: string, reply: string): string | undefined {
    const { subjects, as } = this.#options
    const parts = subjects.parseReply(reply)
    if (!parts) return undefined
    const isAllowed =
      'nodeId' in as
        ? parts.kind === 'server' && parts.from === as.nodeId
        : parts.from === ANY && parts.callerId === lastParts(subject, 1)
    return isAllowed ? parts.call : undefined
  }

  #receive(message: BusMessage): void {
    const { subject, payload, reply } = message
    const { bus, as } = this.#options
    const name = this.#callName(subject, reply)
    if (name === undefined || this.#options.isSuperseded?.()) return
    if ('nodeId' in as) return this.#begin(name, { payload, channel: new PlainChannel(bus, reply) }, name)
    const caller = lastParts(subject, 1)
    const decision = this.#limits.admit(caller)
    if (decision !== 'open') {
      this.#limitedLogger.warn('too many calls from a host, call refused', { caller }, `too many ${caller}`)
      if (decision === 'refuse') bus.publish(reply, encodeRefusal('too many callers'))
      return
    }
    const opened = as.sealed.open(message)
    // The key contains the caller, so a caller cannot use the name of another one's call, or control that call.
    if (typeof opened !== 'string') return this.#begin(name, opened, lastParts(`${subject}.${name}`, 2), caller)
    void this.#openAfterLearning(message, opened, as.sealed)
  }

  /** A server that has just connected does not know the others yet, so it requests announcements before it refuses their calls. */
  async #openAfterLearning(message: BusMessage, reason: EnvelopeRefusal, sealed: SealedCallReceiver): Promise<void> {
    const caller = lastParts(message.subject, 1)
    if (reason === 'no server' && this.#learning < LEARNING_MAX) {
      this.#learning++
      const isAnnounced = await sealed.learnServers()
      this.#learning--
      const again = isAnnounced ? sealed.open(message) : reason
      const name = lastParts(message.reply, 1)
      if (typeof again !== 'string') return this.#begin(name, again, lastParts(`${message.subject}.${name}`, 2), caller)
    }
    this.#limitedLogger.warn('sealed call refused', { reason, caller })
    this.#options.bus.publish(message.reply, encodeRefusal(reason))
  }

  /** `name` is the call's name in the subject of its answers, `key` identifies it for control messages. */
  #begin(name: string, { payload, channel }: OpenedCall, key: string, caller = ''): void {
    const refuse = (refusal: Refusal) => channel.send(encode(refusalMessage(refusal)))
    const received = decodeCall(payload)
    if (typeof received === 'string') {
      this.#limitedLogger.warn('call refused', { reason: UNREADABLE[received].reason })
      refuse(UNREADABLE[received].refusal)
      return
    }
    const call = received.message
    if (this.#calls.get(key) || name !== call.call) return
    const release = this.#acquireSlot(caller, refuse, () => this.#calls.get(key)?.abandon(slotsExhausted()))
    if (!release) return
    // Client addresses from agents are not trusted; only servers may call the core.
    const remote = this.#options.group === 'core' ? call.remote : undefined
    const served = new ServedCall(call, { channel, remote })
    if (this.#isDraining) served.drain()
    this.#calls.set(key, served)
    void this.#run(served, received).finally(() => {
      this.#calls.delete(key)
      release()
    })
  }

  /** Returns the function that releases the slot; undefined after a refusal. */
  #acquireSlot(caller: string, refuse: (refusal: Refusal) => void, onLost: () => void): (() => void) | undefined {
    const { as, callsMax } = this.#options
    if (this.#calls.size >= callsMax) {
      const text = `too many concurrent calls (limit ${callsMax}), try again later`
      refuse(new Refusal('too_many', text, RETRY_HEADERS))
      return undefined
    }
    if ('nodeId' in as) return () => undefined
    const release = this.#limits.acquireSlot(caller, onLost)
    if (!release) refuse(slotsExhausted())
    return release
  }

  #control({ subject, payload }: BusMessage): void {
    this.#calls.get(lastParts(subject, 'serverId' in this.#options.as ? 2 : 1))?.control(payload)
  }

  #sweep(): void {
    for (const call of this.#calls.values()) call.sweep()
    this.#limits.sweep()
  }

  async #run(served: ServedCall, received: ReceivedCall): Promise<void> {
    const { message } = served
    const { as } = this.#options
    try {
      // Before the lookup: a caller without an assertion must not learn which operations the node has.
      const asserted = 'nodeId' in as ? await as.admission.identityOf(received) : undefined
      const operation = this.#operations.get(message.operation)
      if (!operation) {
        throw new Refusal(
          'not_implemented',
          `unknown operation ${JSON.stringify(message.operation)}, upgrade this process`,
        )
      }
      await invoke(operation, served.call(), served, this.#callers, asserted)
    } catch (error) {
      this.#fail(served, error)
    }
  }

  #fail(served: ServedCall, error: unknown): void {
    if (served.hasEnded) return
    if (error instanceof StaleRunError) served.send({ kind: 'again', run: error.run })
    else if (error instanceof Refusal) served.send(refusalMessage(error))
    else {
      const { operation, requestId } = served.message
      this.#options.logger.error('call failed', { operation, request_id: requestId, error: messageOf(error) })
      served.send({ kind: 'fault' })
    }
  }
}
