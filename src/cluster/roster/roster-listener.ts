/**
 * Receives the messages of all nodes, verifies them, and requests states that this server lacks. A server that has just started
 * requests the state of each node after its first heartbeat.
 *
 * A node is limited to a number of messages and bytes in a second, and to a size and number of allocations of a state. Excess
 * messages are rejected before their signature is verified, counted, and logged once a minute: they cost this server little, and
 * other nodes are not affected. The next accepted heartbeat requests a rejected state again. NATS must keep nodes from
 * sending under the names of others (permissions.ts); otherwise one node can use up the limit of another.
 *
 * A long state is applied in slices, between which other work runs: ten thousand new allocations take a fifth of a second.
 * Further messages of the node wait; of waiting states only the newest is kept.
 */
import { type PauseDetector, pauseDetector } from '../../platform/clock.ts'
import { isNodeId } from '../../platform/schema.ts'
import { yieldIfDue } from '../../platform/scheduler.ts'
import { TokenBuckets } from '../../platform/token-bucket.ts'
import type { BusMessage, BusSubscription, MessageBus } from '../nats/message-bus.ts'
import type { Subjects } from '../nats/subjects.ts'
import { TIMINGS } from '../nats/timings.ts'
import { encodeNodeOwner, HEARTBEAT_BYTES_MAX, runSlices, STATE_BYTES_MAX, verifyInSlices } from './node-messages.ts'
import type { MessageResult, Roster } from './roster.ts'

/** Messages of a node. An honest one sends at most two states in a second, and a heartbeat in ten. */
const MESSAGES = { perSecond: 5, capacity: 60 }
/** Bytes of its states. `node-announcer.ts` uses half of the rate. */
const STATE_BYTES = { perSecond: 1 << 20, capacity: 4 * STATE_BYTES_MAX }
const STATE_REQUEST = new Uint8Array(0)
/** Longer messages are applied in slices: some 70 allocations, one or two milliseconds. */
const SHORT_BYTES = 16_384
/** Bytes of all messages that are applied in slices, or wait for those. Further states are rejected, and requested again later. */
const QUEUED_BYTES_MAX = 64 << 20

type Result = MessageResult | 'malformed'

interface ReceivedMessage {
  readonly nodeId: string
  readonly kind: string
  readonly message: BusMessage
}

export class RosterListener {
  readonly #bus: MessageBus
  readonly #subjects: Subjects
  readonly #roster: Roster
  readonly #ownNodeId: string | undefined
  readonly #messages: TokenBuckets
  readonly #stateBytes: TokenBuckets
  readonly #requestedAtMs = new Map<string, number>()
  readonly #counts = { taken: 0, old: 0, superseded: 0, refused: 0, malformed: 0 }
  readonly #pauses: Pick<PauseDetector, 'isCatchingUp'>
  #subscription: BusSubscription | undefined
  #sweeper: NodeJS.Timeout | undefined
  /** Nodes whose message is applied in slices, with their messages since. */
  readonly #queues = new Map<string, ReceivedMessage[]>()
  #queuedBytes = 0
  #isStopped = false

  constructor(options: {
    readonly bus: MessageBus
    readonly subjects: Subjects
    readonly roster: Roster
    /** Node of this process, if it has one. */
    readonly ownNodeId: string | undefined
    readonly now?: () => number
    /** Default: that of the process. */
    readonly pauses?: Pick<PauseDetector, 'isCatchingUp'>
  }) {
    this.#bus = options.bus
    this.#subjects = options.subjects
    this.#roster = options.roster
    this.#ownNodeId = options.ownNodeId
    this.#pauses = options.pauses ?? pauseDetector()
    const now = options.now ?? (() => performance.now())
    this.#messages = new TokenBuckets({ ...MESSAGES, now })
    this.#stateBytes = new TokenBuckets({ ...STATE_BYTES, now })
  }

  start(): void {
    this.#subscription = this.#bus.subscribe(this.#subjects.roster('*', '*'), (message) => this.#receive(message))
    this.#bus.onChange((isConnected) => {
      if (isConnected) this.#roster.resetHeartbeats()
    })
    this.#sweeper = setInterval(() => this.#sweep(), TIMINGS.rosterSweepMs).unref()
  }

  stop(): void {
    this.#isStopped = true
    clearInterval(this.#sweeper)
    this.#subscription?.close()
  }

  /** Messages of nodes since the start, by result. */
  get counts(): Readonly<Record<string, number>> {
    return this.#counts
  }

  #receive(message: BusMessage): void {
    const parts = this.#subjects.parseRoster(message.subject)
    if (!parts || !isNodeId(parts.nodeId)) return this.#reject('malformed', parts?.nodeId, message)
    const excess = this.#excessOf(parts, message.payload.length)
    if (excess) return this.#reject(excess, parts.nodeId, message)
    const received = { ...parts, message }
    const queue = this.#queues.get(parts.nodeId)
    if (!queue && message.payload.length <= SHORT_BYTES) return this.#count(runSlices(this.#apply(received)))
    this.#queuedBytes += message.payload.length
    if (queue) this.#enqueue(received, queue)
    else void this.#applyInSlices(received)
  }

  /** A waiting state is replaced by a newer one. */
  #enqueue(received: ReceivedMessage, queue: ReceivedMessage[]): void {
    const at = received.kind === 'state' ? queue.findIndex(({ kind }) => kind === 'state') : -1
    for (const older of at < 0 ? [] : queue.splice(at, 1)) {
      this.#queuedBytes -= older.message.payload.length
      this.#count('old')
    }
    queue.push(received)
  }

  #reject(reason: 'malformed' | 'rate' | 'bytes', nodeId: string | undefined, { payload }: BusMessage): void {
    this.#roster.rejections.count(reason, nodeId, reason === 'malformed' ? undefined : { bytes: payload.length })
    this.#counts[reason === 'malformed' ? 'malformed' : 'refused']++
  }

  #count(result: Result): void {
    this.#counts[result === 'ask' ? 'taken' : result]++
  }

  /** Applies the message, and those of the same node that arrive meanwhile. */
  async #applyInSlices(first: ReceivedMessage): Promise<void> {
    const queue: ReceivedMessage[] = []
    this.#queues.set(first.nodeId, queue)
    let received: ReceivedMessage | undefined = first
    for (; received && !this.#isStopped; received = queue.shift()) {
      const slices = this.#apply(received)
      let slice = slices.next()
      while (!slice.done && !this.#isStopped) {
        const turn = yieldIfDue()
        if (turn) await turn
        slice = slices.next()
      }
      if (slice.done) this.#count(slice.value)
      this.#queuedBytes -= received.message.payload.length
    }
    this.#queues.delete(first.nodeId)
  }

  *#apply({ kind, message: { subject, payload }, nodeId }: ReceivedMessage): Generator<undefined, Result> {
    const signed = yield* verifyInSlices(payload, subject)
    if (typeof signed === 'string' || signed.message.kind !== kind) {
      this.#roster.rejections.count(typeof signed === 'string' ? signed : 'malformed', nodeId)
      return 'malformed'
    }
    const result = yield* this.#roster.applyInSlices(nodeId, signed)
    if (result === 'ask') this.#send(nodeId, STATE_REQUEST)
    else if (result === 'superseded' || result === 'refused') this.#sendOwner(nodeId)
    return result
  }

  /** To all processes with this node ID: those that are not the owner serve no calls. */
  #sendOwner(nodeId: string): void {
    const owner = this.#roster.owner(nodeId)
    if (owner) this.#send(nodeId, encodeNodeOwner(owner))
  }

  #send(nodeId: string, payload: Uint8Array): void {
    const nowMs = performance.now()
    const requestedAtMs = this.#requestedAtMs.get(nodeId) ?? Number.NEGATIVE_INFINITY
    if (nowMs - requestedAtMs < TIMINGS.stateRequestIntervalMs) return
    this.#requestedAtMs.set(nodeId, nowMs)
    this.#bus.publish(this.#subjects.describe(nodeId), payload)
  }

  /** The limit that a message exceeds, checked before it is parsed. */
  #excessOf({ nodeId, kind }: { nodeId: string; kind: string }, bytes: number): 'rate' | 'bytes' | undefined {
    if (!this.#messages.take(nodeId, 1)) return 'rate'
    if (bytes > (kind === 'state' ? STATE_BYTES_MAX : HEARTBEAT_BYTES_MAX)) return 'bytes'
    if (kind !== 'state') return undefined
    if (bytes > SHORT_BYTES && this.#queuedBytes + bytes > QUEUED_BYTES_MAX) return 'rate'
    return this.#stateBytes.take(nodeId, bytes) ? undefined : 'rate'
  }

  #sweep(): void {
    // Without a connection, silence does not mean that a node is down, nor while heartbeats wait to be read.
    if (!this.#bus.isConnected) this.#roster.markDisconnected(this.#ownNodeId)
    else if (!this.#pauses.isCatchingUp) this.#roster.sweep()
    this.#messages.sweep()
    this.#stateBytes.sweep()
    const nowMs = performance.now()
    for (const [nodeId, atMs] of this.#requestedAtMs)
      if (nowMs - atMs > TIMINGS.stateRequestIntervalMs) this.#requestedAtMs.delete(nodeId)
  }
}
