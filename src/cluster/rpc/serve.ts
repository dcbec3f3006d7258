/**
 * The serving end of calls: a message comes in, the same operation runs that HTTP would run, with the same parsing and the
 * same permission, and what it gives goes back piece by piece, never more than the caller's window ahead of the caller.
 */
import { messageOf, Refusal } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { type AnyOperation, type Callers, type Identity, invoke, NOBODY } from '../../platform/operation.ts'
import { CallerLimits } from './caller-limits.ts'
import { CallTable } from './call-table.ts'
import { RateLimitedLogger } from '../../platform/rate-limited-log.ts'
import { encodeRefused, type RefusedReason } from '../trust/envelope.ts'
import type { Link, Message, Subscription } from '../nats/link.ts'
import { OtherRun } from './node-admission.ts'
import type { OpenedCall, SealedCalls } from './sealed-calls.ts'
import { PlainChannel, refusalMessage, ServedCall } from './served-call.ts'
import { ANY, type Group, lastParts, type Subjects } from '../nats/subjects.ts'
import { TIMINGS } from '../nats/timings.ts'
import { decodeCall, encode, type ReceivedCall } from './wire.ts'

const RETRY = { 'Retry-After': '2' }
/** Calls that wait for the word of other servers. */
const LEARNING_MAX = 64

/** Identity of a caller, from the word of a server. */
export interface CallAdmission {
  /** Rejects with a Refusal, or with an `OtherRun`. */
  identityOf(received: ReceivedCall): Promise<Identity>
}

export interface ServeOptions {
  readonly link: Link
  readonly subjects: Subjects
  /** As a node, or as a server, whose calls are sealed. */
  readonly as:
    | { readonly nodeId: string; readonly admission: CallAdmission }
    | { readonly serverId: string; readonly sealed: SealedCalls; readonly callers: Callers }
  readonly operations: readonly AnyOperation[]
  /** For a server: which of its calls, those for every server (where absent) or those for the secrets core. */
  readonly group?: Group
  readonly logger: Logger
  /** Calls under way at once; more are told to come back. */
  readonly callsMax: number
  /** Of hosts that call; those of `caller-limits.ts` unless given. */
  readonly limits?: CallerLimits
  /** True while calls are for somebody else, who hears them too. */
  readonly isSuperseded?: () => boolean
}

const OLDER =
  'the call was made by an older version of outpost, which sends tokens to hosts: upgrade the server that sent it'
const NEWER = 'this process runs an older version of outpost and does not understand the call, upgrade it'
const UNREADABLE = {
  newer: { reason: 'made by a newer version', refusal: new Refusal('not_implemented', NEWER) },
  older: { reason: 'made by an older version', refusal: new Refusal('not_implemented', OLDER) },
  malformed: { reason: 'malformed', refusal: new Refusal('invalid_request', 'malformed call') },
} as const

function crowded(): Refusal {
  return new Refusal('too_many', 'this host has as many calls under way as it may have', RETRY)
}

/** Serves operations to whoever may publish on the subjects. */
export class CallServer {
  readonly #options: ServeOptions
  readonly #operations: ReadonlyMap<string, AnyOperation>
  readonly #calls = new CallTable<ServedCall>()
  readonly #subscriptions: Subscription[] = []
  readonly #complaints: RateLimitedLogger
  /** Of a server: what hosts may ask of it. */
  readonly #limits: CallerLimits
  readonly #callers: Callers
  #sweeper: NodeJS.Timeout | undefined
  #learning = 0
  #isDraining = false

  constructor(options: ServeOptions) {
    this.#options = options
    this.#limits = options.limits ?? new CallerLimits()
    this.#complaints = new RateLimitedLogger(options.logger)
    // For a node the word of a server stands for the token.
    this.#callers = 'callers' in options.as ? options.as.callers : { resolve: () => NOBODY }
    this.#operations = new Map(options.operations.map((operation) => [operation.name, operation]))
  }

  start(): void {
    const { link, subjects, as, group = ANY } = this.#options
    const take = (message: Message) => this.#take(message)
    this.#subscriptions.push(
      link.subscribe('nodeId' in as ? subjects.call(as.nodeId) : subjects.serverCall(as.serverId, '*', group), take),
      link.subscribe(this.#flow, (message) => this.#control(message)),
    )
    this.#sweeper = setInterval(() => this.#sweep(), TIMINGS.aliveMs / 2).unref()
  }

  get #flow(): string {
    const { subjects, as } = this.#options
    return 'nodeId' in as ? subjects.flow(as.nodeId, '*') : subjects.serverFlow(as.serverId, '*', '*')
  }

  /** Long polls, those that begin from now on too, answer at once. Other calls go on. */
  drain(): void {
    this.#isDraining = true
    for (const call of this.#calls.values()) call.drain()
  }

  /** Breaks what is under way, so that callers can tell. */
  stop(): void {
    clearInterval(this.#sweeper)
    for (const subscription of this.#subscriptions.splice(0)) subscription.close()
    for (const call of this.#calls.values())
      call.abandon(new Refusal('unavailable', 'the agent is stopping, try again'))
  }

  get calls(): number {
    return this.#calls.size
  }

  /**
   * The name of the call whose answers go to `reply`; undefined where nobody may be answered. Whoever calls names a
   * subject for the answers, and nothing keeps him from naming one that he may not send to himself: answers go to the
   * caller that the call's own subject names, and to nobody else.
   */
  #calledAs(subject: string, reply: string): string | undefined {
    const { subjects, as } = this.#options
    const parts = subjects.partsOfReply(reply)
    if (!parts) return undefined
    const isOurs =
      'nodeId' in as
        ? parts.kind === 'server' && parts.from === as.nodeId
        : parts.from === ANY && parts.callerId === lastParts(subject, 1)
    return isOurs ? parts.call : undefined
  }

  #take(message: Message): void {
    const { subject, payload, reply } = message
    const { link, as } = this.#options
    const name = this.#calledAs(subject, reply)
    if (name === undefined || this.#options.isSuperseded?.()) return
    if ('nodeId' in as) return this.#begin(name, { payload, channel: new PlainChannel(link, reply) }, name)
    const caller = lastParts(subject, 1)
    const judged = this.#limits.judge(caller)
    if (judged !== 'open') {
      this.#complaints.warn('a host sends too many calls, those beyond are refused', { caller }, `too many ${caller}`)
      if (judged === 'refuse') link.publish(reply, encodeRefused('too many callers'))
      return
    }
    const opened = as.sealed.open(message)
    // On a server, under the caller's name: nobody can take another's, or steer his call.
    if (typeof opened !== 'string') return this.#begin(name, opened, lastParts(`${subject}.${name}`, 2), caller)
    void this.#takeLater(message, opened, as.sealed)
  }

  /** A server that has just connected knows the others a moment later: asked once, before a call of theirs is refused. */
  async #takeLater(message: Message, reason: RefusedReason, sealed: SealedCalls): Promise<void> {
    const caller = lastParts(message.subject, 1)
    if (reason === 'no server' && this.#learning < LEARNING_MAX) {
      this.#learning++
      const isHeard = await sealed.learn()
      this.#learning--
      const again = isHeard ? sealed.open(message) : reason
      const name = lastParts(message.reply, 1)
      if (typeof again !== 'string') return this.#begin(name, again, lastParts(`${message.subject}.${name}`, 2), caller)
    }
    this.#complaints.warn('calls were refused, which could not be opened', { reason, caller })
    this.#options.link.publish(message.reply, encodeRefused(reason))
  }

  /** `name`: of the call, by the subject of its answers. `key`: what its control messages are found by. */
  #begin(name: string, { payload, channel }: OpenedCall, key: string, caller = ''): void {
    const refuse = (refusal: Refusal) => channel.send(encode(refusalMessage(refusal)))
    const received = decodeCall(payload)
    if (typeof received === 'string') {
      this.#complaints.warn('calls were refused', { reason: UNREADABLE[received].reason })
      refuse(UNREADABLE[received].refusal)
      return
    }
    const call = received.message
    if (this.#calls.get(key) || name !== call.call) return
    const leave = this.#enter(caller, refuse, () => this.#calls.get(key)?.abandon(crowded()))
    if (!leave) return
    // Agents may call any server, and say of their callers what they like; only servers may call one with the core.
    const remote = this.#options.group === 'core' ? call.remote : undefined
    const served = new ServedCall(call, { channel, remote })
    if (this.#isDraining) served.drain()
    this.#calls.add(key, served)
    void this.#run(served, received).finally(() => {
      this.#calls.delete(key)
      leave()
    })
  }

  /** Takes a place for a call of this caller, or says why there is none. Returns how to give it back. */
  #enter(caller: string, refuse: (refusal: Refusal) => void, lose: () => void): (() => void) | undefined {
    const { as, callsMax } = this.#options
    if (this.#calls.size >= callsMax) {
      refuse(new Refusal('too_many', 'as many calls as may be are being served here, try again later', RETRY))
      return undefined
    }
    if ('nodeId' in as) return () => undefined
    const leave = this.#limits.enter(caller, lose)
    if (!leave) refuse(crowded())
    return leave
  }

  #control({ subject, payload }: Message): void {
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
      // Of a node nothing is told to a caller that no server vouches for.
      const asserted = 'nodeId' in as ? await as.admission.identityOf(received) : undefined
      const operation = this.#operations.get(message.operation)
      if (!operation) {
        throw new Refusal('not_implemented', `this process knows no ${JSON.stringify(message.operation)}, upgrade it`)
      }
      await invoke(operation, served.call(), served, this.#callers, asserted)
    } catch (error) {
      this.#fail(served, error)
    }
  }

  #fail(served: ServedCall, error: unknown): void {
    if (served.isOver) return
    if (error instanceof OtherRun) served.say({ kind: 'again', run: error.run })
    else if (error instanceof Refusal) served.say(refusalMessage(error))
    else {
      const { operation, requestId } = served.message
      this.#options.logger.error('a call failed', { operation, request_id: requestId, error: messageOf(error) })
      served.say({ kind: 'fault' })
    }
  }
}
