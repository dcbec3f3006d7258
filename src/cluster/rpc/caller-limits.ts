/**
 * What one host may ask of a server. A host's own name stands in the subject of its calls, where NATS keeps it to that one, so what is too
 * much is known before anything is opened: each message that is opened costs a decryption, and each call a place that
 * other hosts need. Servers are not counted: they have the word for all hosts anyway.
 */
import { isNodeId } from '../../platform/schema.ts'
import { TokenBuckets } from '../../platform/token-bucket.ts'
import { NodeShares } from './node-shares.ts'

/** Calls of a host a second and at once: far more than one asks about its callers' tokens, or hands on for them. */
export const HOST_CALLS = { perSecond: 1000, capacity: 4000 }
/** Of those beyond, how many are told so; the others are dropped. */
const TOLD = { perSecond: 20, capacity: 100 }
/** Calls under way: a host has at most a quarter of what a server serves at once, all hosts together three, servers the rest. */
export const HOST_CALLS_UNDER_WAY = 1024
export const HOSTS_CALLS_UNDER_WAY = 3072

const nowMs = () => performance.now()

export class CallerLimits {
  readonly #calls: TokenBuckets
  readonly #told: TokenBuckets
  readonly #underWay: NodeShares

  /** `slots`: concurrent calls of all hosts, and of one. */
  constructor(slots = { slots: HOSTS_CALLS_UNDER_WAY, slotsPerNode: HOST_CALLS_UNDER_WAY }) {
    this.#calls = new TokenBuckets({ ...HOST_CALLS, now: nowMs })
    this.#told = new TokenBuckets({ ...TOLD, now: nowMs })
    this.#underWay = new NodeShares(slots)
  }

  /** Whether a message of this caller is looked at, and if not, whether it is told. */
  judge(caller: string): 'open' | 'refuse' | 'drop' {
    if (!isNodeId(caller) || this.#calls.take(caller, 1)) return 'open'
    return this.#told.take(caller, 1) ? 'refuse' : 'drop'
  }

  /**
   * Acquires a slot; undefined when the caller holds as many as it may. Returns the function that releases it. `onLost` is called
   * when a host that holds fewer gets the slot.
   */
  enter(caller: string, onLost: () => void): (() => void) | undefined {
    if (!isNodeId(caller)) return () => undefined
    const slot = this.#underWay.acquire(caller, onLost)
    return slot && (() => this.#underWay.release(slot))
  }

  /** Forgets callers that have been silent. */
  sweep(): void {
    this.#calls.sweep()
    this.#told.sweep()
  }
}
