/**
 * Clock skew between this process and others, from the send times of their messages. A measurement contains the transmission time: some
 * milliseconds, or seconds under load. It is unknown which of the two clocks is wrong. Nothing is measured while this process reads
 * messages that have waited because it did not run.
 */
import type { LogFields, Logger } from '../../platform/log.ts'
import { type PauseDetector, pauseDetector } from '../../platform/clock.ts'
import { TokenBuckets } from '../../platform/token-bucket.ts'

/** Tolerated difference between the clocks of two hosts. */
export const CLOCK_SKEW_MS = 60_000
/** Skew above which a warning is logged: half of what hosts and servers reject in each other's messages. */
export const SKEW_WARNING_MS = CLOCK_SKEW_MS / 2

export interface ClockSkew {
  /** ID of the node, or public key of the server. */
  readonly id: string
  readonly name: string
  readonly skewMs: number
}

interface Measurement extends ClockSkew {
  /** Monotonic clock. */
  readonly measuredAtMs: number
}

export interface ClockSkewOptions {
  readonly logger: Logger
  /** Log message of the warning. */
  readonly message: string
  /** Log fields that identify the other process. */
  readonly fieldsOf: (clock: Pick<ClockSkew, 'id' | 'name'>) => LogFields
  /** Age at which a measurement expires. Default: never. */
  readonly expiryMs?: number
  /** Beyond it, the oldest measurement is dropped. Default: no limit. */
  readonly countMax?: number
  /** Log lines per minute: for measurements whose number and values the senders choose. Default: no limit. */
  readonly linesPerMinuteMax?: number
  /** Default: that of the process. */
  readonly pauses?: Pick<PauseDetector, 'isCatchingUp'>
}

export class ClockSkews {
  readonly #options: ClockSkewOptions
  /** By ID. */
  readonly #clocks = new Map<string, Measurement>()
  readonly #lines: TokenBuckets | undefined
  readonly #pauses: Pick<PauseDetector, 'isCatchingUp'>

  constructor(options: ClockSkewOptions) {
    this.#options = options
    this.#pauses = options.pauses ?? pauseDetector()
    const { linesPerMinuteMax: capacity } = options
    this.#lines =
      capacity === undefined
        ? undefined
        : new TokenBuckets({ perSecond: capacity / 60, capacity, now: () => performance.now() })
  }

  /**
   * Replaces the measurement of a process. Logs when the skew crosses the limit, in either direction. `skewMs` is undefined for a
   * process of an older version, which sends no time and is never reported.
   */
  measure(id: string, name: string, skewMs: number | undefined): void {
    if (skewMs === undefined) return this.remove(id)
    if (this.#pauses.isCatchingUp) return
    const { fieldsOf, logger, message } = this.#options
    const wasSkewed = isSkewed(this.#clocks.get(id))
    const clock = { id, name, skewMs, measuredAtMs: performance.now() }
    this.#clocks.set(id, clock)
    this.#dropOldest()
    if (isSkewed(clock) === wasSkewed || this.#lines?.take(message, 1) === false) return
    const facts = { ...fieldsOf(clock), skew_seconds: Math.round(skewMs / 1000) }
    if (wasSkewed) logger.info(`${message} resolved`, facts)
    else logger.warn(message, { ...facts, next: 'synchronize both clocks (NTP)' })
  }

  #dropOldest(): void {
    if (this.#clocks.size <= (this.#options.countMax ?? Number.POSITIVE_INFINITY)) return
    const oldest = [...this.#clocks.values()].reduce((a, b) => (b.measuredAtMs < a.measuredAtMs ? b : a))
    this.#clocks.delete(oldest.id)
  }

  remove(id: string): void {
    this.#clocks.delete(id)
  }

  /** Zero for an unknown process. */
  of(id: string): number {
    return this.#clocks.get(id)?.skewMs ?? 0
  }

  /** Measurements that have not expired. */
  get all(): ClockSkew[] {
    const sinceMs = performance.now() - (this.#options.expiryMs ?? Number.POSITIVE_INFINITY)
    return [...this.#clocks.values()].filter(({ measuredAtMs }) => measuredAtMs > sinceMs)
  }

  /** The largest skews. */
  largest(count: number): ClockSkew[] {
    return this.all.sort((a, b) => Math.abs(b.skewMs) - Math.abs(a.skewMs)).slice(0, count)
  }

  /** Those above the limit. */
  get skewed(): ClockSkew[] {
    return this.all.filter(isSkewed)
  }
}

function isSkewed(clock: ClockSkew | undefined): boolean {
  return Math.abs(clock?.skewMs ?? 0) > SKEW_WARNING_MS
}
