/**
 * The node's side of the roster: a beat every ten seconds, the whole state when it has changed (an allocation that begins
 * or ends within a second, anything else with the next beat) or when a server asks for it. Changes in between are folded
 * into one message; what is sent is always how things are then. Large states are sent less often, and a host with more
 * allocations than servers take leaves out those that ended and are oldest.
 */
import type { KeyObject } from 'node:crypto'
import type { Logger } from '../../platform/log.ts'
import { RateLimitedLogger } from '../../platform/rate-limited-log.ts'
import {
  ALLOCATIONS_MAX,
  type AllocationDescription,
  digestOf,
  type NodeMessage,
  type NodeState,
  signMessage,
  STATE_BYTES_MAX,
} from './description.ts'
import type { MessageBus, BusSubscription } from '../nats/message-bus.ts'
import { decodeSpeaker } from './node-owner.ts'
import type { Subjects } from '../nats/subjects.ts'
import { TIMINGS } from '../nats/timings.ts'
import { WIRE_VERSION } from '../rpc/wire.ts'

/** Bytes of states a second: half of what a server takes of a node. */
const STATE_BYTES_PER_SECOND = 512 * 1024
/** Beats are this much apart, more or less, so that a thousand nodes do not beat as one. */
const JITTER = 0.1

/** A server says it again with each beat. */
const SUPERSEDED_MS = 3.5 * TIMINGS.heartbeatMs

export interface AnnounceOptions {
  readonly bus: MessageBus
  readonly subjects: Subjects
  readonly nodeId: string
  readonly key: { readonly privateKey: KeyObject; readonly publicKey: Buffer }
  /** A number that is higher than in any run before and than `above`, whatever the clock says. */
  readonly nextRun: (above: number) => number
  /** How things are now. */
  readonly state: () => NodeState
  readonly logger: Logger
}

export class Announcer {
  readonly #options: AnnounceOptions
  #asked: BusSubscription | undefined
  #beatTimer: NodeJS.Timeout | undefined
  #stateTimer: NodeJS.Timeout | undefined
  #stateAtMs = Number.NEGATIVE_INFINITY
  #stateBytes = 0
  #run: number
  #sequence = 0
  /** Until then another process is taken for this node. */
  #supersededUntilMs = Number.NEGATIVE_INFINITY
  readonly #complaints: RateLimitedLogger
  #digest = ''
  #isStopped = false
  #isTooMuch = false

  constructor(options: AnnounceOptions) {
    this.#options = options
    this.#run = options.nextRun(0)
    this.#complaints = new RateLimitedLogger(options.logger)
  }

  /** True while servers take another process for this node: this one must not answer in its place. */
  get isSuperseded(): boolean {
    return performance.now() < this.#supersededUntilMs
  }

  start(): void {
    const { bus, subjects, nodeId } = this.#options
    this.#asked = bus.subscribe(subjects.describe(nodeId), ({ payload }) => this.#heed(payload))
    bus.onChange((isConnected) => {
      if (isConnected) this.#soon()
    })
    this.#sendState()
    this.#scheduleBeat()
  }

  /** A server asks, or says whom it takes for this node. */
  #heed(payload: Uint8Array): void {
    if (payload.length === 0) return this.#soon()
    const speaker = decodeSpeaker(payload)
    const isOurKey = speaker !== undefined && this.#options.key.publicKey.equals(speaker.publicKey)
    if (!speaker || (isOurKey && speaker.run <= this.#run)) return
    if (isOurKey && !speaker.isThere) {
      this.#run = this.#options.nextRun(speaker.run)
      this.#supersededUntilMs = Number.NEGATIVE_INFINITY
      return this.#soon()
    }
    this.#supersededUntilMs = performance.now() + SUPERSEDED_MS
    this.#complaints.error('another process is taken for this node, so this one serves no calls that are forwarded', {
      node_id: this.#options.nodeId,
      reason: isOurKey
        ? 'it has the same key and began later: was the state directory copied? Each host needs its own'
        : 'its key was seen first: was the node ID given twice? If this host is the right one, end the other',
    })
  }

  /** Says that the node goes away, so that nobody waits for its beats. */
  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#beatTimer)
    clearTimeout(this.#stateTimer)
    this.#asked?.close()
    this.#send('leave', { kind: 'leave', ...this.#order() })
  }

  /** Something has changed that is worth a message of its own, and not only the next beat. */
  changed(): void {
    this.#soon()
  }

  #soon(): void {
    if (this.#isStopped || this.#stateTimer) return
    const restMs = Math.max(TIMINGS.stateIntervalMs, (this.#stateBytes / STATE_BYTES_PER_SECOND) * 1000)
    const waitMs = Math.max(0, this.#stateAtMs + restMs - performance.now())
    this.#stateTimer = setTimeout(() => {
      this.#stateTimer = undefined
      this.#sendState()
    }, waitMs)
  }

  #scheduleBeat(): void {
    const waitMs = TIMINGS.heartbeatMs * (1 + JITTER * (2 * Math.random() - 1))
    this.#beatTimer = setTimeout(() => {
      this.#beat()
      this.#scheduleBeat()
    }, waitMs)
  }

  /** With the state when that has changed meanwhile. */
  #beat(): void {
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

  /** As much of the present state as servers take. */
  #state(): NodeState {
    const state = this.#options.state()
    const left = state.allocations.length - ALLOCATIONS_MAX
    if (left <= 0) return state
    this.#complaints.error('this host has more allocations than it may announce, collect some', {
      node_id: this.#options.nodeId,
      left_out: left,
    })
    return { ...state, allocations: [...state.allocations].sort(byWeight).slice(0, ALLOCATIONS_MAX) }
  }

  #order() {
    const order = { run: this.#run, sequence: ++this.#sequence, digest: this.#digest }
    return { version: WIRE_VERSION, sentAtMs: Date.now(), ...order }
  }

  #send(kind: NodeMessage['kind'], message: NodeMessage): void {
    const { bus, subjects, nodeId, key, logger } = this.#options
    const subject = subjects.roster(nodeId, kind)
    const bytes = signMessage(message, subject, key)
    const bytesMax = Math.min(bus.payloadBytesMax, STATE_BYTES_MAX)
    if (bytes.length > bytesMax) {
      // Once: it is tried again with every beat.
      if (this.#isTooMuch) return
      this.#isTooMuch = true
      logger.error(
        'this node has more to say than a message may hold: collect allocations, or raise max_payload of NATS',
        {
          bytes: bytes.length,
          bytes_max: bytesMax,
        },
      )
      return
    }
    if (kind === 'state') [this.#isTooMuch, this.#stateBytes] = [false, bytes.length]
    bus.publish(subject, bytes)
  }
}

/** Those that may still write come first, then the newest. */
function byWeight(a: AllocationDescription, b: AllocationDescription): number {
  return Number(isLive(b)) - Number(isLive(a)) || b.createTimeMs - a.createTimeMs
}

function isLive({ clientStatus }: AllocationDescription): boolean {
  return clientStatus === 'running' || clientStatus === 'pending'
}
