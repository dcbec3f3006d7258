/**
 * Reports this node to servers: a heartbeat every ten seconds, and the complete state after a change (start or end of an
 * allocation within a second, other changes with the next heartbeat) or on request. Changes are coalesced into one message,
 * which always has the current state. Large states are sent less often, and a host with more allocations than servers accept
 * omits the oldest ended ones.
 */
import type { KeyObject } from 'node:crypto'
import { type Logger, RateLimitedLogger } from '../../platform/log.ts'
import type { BusSubscription, MessageBus } from '../nats/message-bus.ts'
import type { Subjects } from '../nats/subjects.ts'
import { TIMINGS } from '../nats/timings.ts'
import { WIRE_VERSION } from '../rpc/call-wire.ts'
import {
  ALLOCATIONS_MAX,
  type AllocationDescription,
  decodeNodeOwner,
  digestOf,
  type NodeMessage,
  type NodeState,
  signNodeMessage,
  STATE_BYTES_MAX,
} from './node-messages.ts'

/** Bytes of states in a second: half of what a server accepts from a node. */
const STATE_BYTES_PER_SECOND = 512 * 1024
/** Relative jitter of the heartbeat interval, so that nodes do not send in phase. */
const JITTER = 0.1

/** Time for which a `NodeOwner` message is valid; a server repeats it after each heartbeat. */
const SUPERSEDED_MS = 3.5 * TIMINGS.heartbeatMs

export interface NodeAnnouncerOptions {
  readonly bus: MessageBus
  readonly subjects: Subjects
  readonly nodeId: string
  readonly key: { readonly privateKey: KeyObject; readonly publicKey: Buffer }
  /** Returns a number above those of all previous runs and above `above`, for any state of the clock. */
  readonly nextRun: (above: number) => number
  /** The current state. */
  readonly state: () => NodeState
  readonly logger: Logger
}

export class NodeAnnouncer {
  readonly #options: NodeAnnouncerOptions
  #subscription: BusSubscription | undefined
  #heartbeatTimer: NodeJS.Timeout | undefined
  #stateTimer: NodeJS.Timeout | undefined
  #stateAtMs = Number.NEGATIVE_INFINITY
  #stateBytes = 0
  #run: number
  #sequence = 0
  /** Time until which another process counts as the owner of this node ID. */
  #supersededUntilMs = Number.NEGATIVE_INFINITY
  readonly #limitedLogger: RateLimitedLogger
  #digest = ''
  #isStopped = false
  #isTooLarge = false

  constructor(options: NodeAnnouncerOptions) {
    this.#options = options
    this.#run = options.nextRun(0)
    this.#limitedLogger = new RateLimitedLogger(options.logger)
  }

  /** True while servers accept another process with this node ID: this one must not serve calls. */
  get isSuperseded(): boolean {
    return performance.now() < this.#supersededUntilMs
  }

  start(): void {
    const { bus, subjects, nodeId } = this.#options
    this.#subscription = bus.subscribe(subjects.describe(nodeId), ({ payload }) => this.#handleRequest(payload))
    bus.onChange((isConnected) => {
      if (isConnected) this.#sendStateSoon()
    })
    this.#sendState()
    this.#scheduleHeartbeat()
  }

  /** An empty message of a server requests the state; otherwise it contains the owner of this node ID. */
  #handleRequest(payload: Uint8Array): void {
    if (payload.length === 0) return this.#sendStateSoon()
    const owner = decodeNodeOwner(payload)
    const isOwnKey = owner !== undefined && this.#options.key.publicKey.equals(owner.publicKey)
    if (!owner || (isOwnKey && owner.run <= this.#run)) return
    if (isOwnKey && !owner.isAlive) {
      this.#run = this.#options.nextRun(owner.run)
      this.#supersededUntilMs = Number.NEGATIVE_INFINITY
      return this.#sendStateSoon()
    }
    this.#supersededUntilMs = performance.now() + SUPERSEDED_MS
    this.#limitedLogger.error('duplicate node ID, this process serves no forwarded calls', {
      node_id: this.#options.nodeId,
      reason: isOwnKey
        ? 'another process with the same key started later: the state directory was copied, each host needs its own state directory'
        : 'another process has registered the node ID with another key: stop it if this is the right host',
    })
  }

  /** Reports that the node stops, so that servers mark it as down at once. */
  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#heartbeatTimer)
    clearTimeout(this.#stateTimer)
    this.#subscription?.close()
    this.#send('leave', { kind: 'leave', ...this.#order() })
  }

  /** Sends the state soon instead of with the next heartbeat. */
  changed(): void {
    this.#sendStateSoon()
  }

  #sendStateSoon(): void {
    if (this.#isStopped || this.#stateTimer) return
    const intervalMs = Math.max(TIMINGS.stateIntervalMs, (this.#stateBytes / STATE_BYTES_PER_SECOND) * 1000)
    const waitMs = Math.max(0, this.#stateAtMs + intervalMs - performance.now())
    this.#stateTimer = setTimeout(() => {
      this.#stateTimer = undefined
      this.#sendState()
    }, waitMs)
  }

  #scheduleHeartbeat(): void {
    const waitMs = TIMINGS.heartbeatMs * (1 + JITTER * (2 * Math.random() - 1))
    this.#heartbeatTimer = setTimeout(() => {
      this.#sendHeartbeat()
      this.#scheduleHeartbeat()
    }, waitMs)
  }

  /** Sends the state instead if it has changed. */
  #sendHeartbeat(): void {
    const digest = digestOf(this.#state())
    if (digest === this.#digest) this.#send('beat', { kind: 'beat', ...this.#order() })
    else this.#sendState()
  }

  #sendState(): void {
    this.#stateAtMs = performance.now()
    const state = this.#state()
    this.#digest = digestOf(state)
    this.#send('state', {
      kind: 'state',
      ...this.#order(),
      node: state.node,
      allocations: [...state.allocations],
    })
  }

  /** The current state, with at most as many allocations as servers accept. */
  #state(): NodeState {
    const state = this.#options.state()
    const omitted = state.allocations.length - ALLOCATIONS_MAX
    if (omitted <= 0) return state
    this.#limitedLogger.error('too many allocations, the oldest ended ones are not reported', {
      node_id: this.#options.nodeId,
      omitted,
      next: 'run "outpost node gc"',
    })
    return { ...state, allocations: [...state.allocations].sort(byRelevance).slice(0, ALLOCATIONS_MAX) }
  }

  #order() {
    const order = { run: this.#run, sequence: ++this.#sequence, digest: this.#digest }
    return { version: WIRE_VERSION, sentAtMs: Date.now(), ...order }
  }

  #send(kind: NodeMessage['kind'], message: NodeMessage): void {
    const { bus, subjects, nodeId, key, logger } = this.#options
    const subject = subjects.roster(nodeId, kind)
    const bytes = signNodeMessage(message, subject, key)
    const bytesMax = Math.min(bus.payloadBytesMax, STATE_BYTES_MAX)
    if (bytes.length > bytesMax) {
      // Logged once: each heartbeat retries.
      if (this.#isTooLarge) return
      this.#isTooLarge = true
      const next = 'run "outpost node gc", or raise max_payload of NATS'
      logger.error('node state exceeds the message size', { bytes: bytes.length, bytes_max: bytesMax, next })
      return
    }
    if (kind === 'state') [this.#isTooLarge, this.#stateBytes] = [false, bytes.length]
    bus.publish(subject, bytes)
  }
}

/** Running and pending ones first, then the newest. */
function byRelevance(a: AllocationDescription, b: AllocationDescription): number {
  return Number(isLive(b)) - Number(isLive(a)) || b.createTimeMs - a.createTimeMs
}

function isLive({ clientStatus }: AllocationDescription): boolean {
  return clientStatus === 'running' || clientStatus === 'pending'
}
