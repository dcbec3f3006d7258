/**
 * The clock for the TTLs of tokens, leases and versions. It follows the machine's clock but does not jump when that is set: it
 * advances with the monotonic clock, never backward, and corrects a difference from the machine's clock by running at most 10 %
 * faster or slower. So a TTL of an hour lasts between 54 and 67 minutes, regardless of changes to the machine's clock.
 *
 * At a start the machine's clock is trusted, because the elapsed time is unknown. The clock does not go back before its *marks*: the last
 * persisted time, and the time of the last active server (`clock-mark.ts`). A mark that is more than a day ahead of the machine's clock is
 * wrong and ignored.
 */
import { uptime } from 'node:os'

const CORRECTION = 0.1
const MARK_AHEAD_MAX_MS = 86_400_000
const UPTIME_RESOLUTION_MS = 1000
const SLEEP_CHECK_INTERVAL_MS = 1000

export interface ClockSources {
  /** The machine's clock, in milliseconds since 1970. */
  readonly wall: () => number
  /** Monotonic milliseconds, including the time that the machine was suspended. */
  readonly elapsed: () => number
}

export class CoreClock {
  readonly #sources: ClockSources
  #timeMs: number
  #elapsedMs: number

  constructor(sources: ClockSources) {
    this.#sources = sources
    this.#timeMs = sources.wall()
    this.#elapsedMs = sources.elapsed()
  }

  /** Integer milliseconds since 1970. */
  now(): number {
    const elapsedMs = this.#sources.elapsed()
    const passedMs = Math.max(0, elapsedMs - this.#elapsedMs)
    this.#elapsedMs = elapsedMs
    const correctionMaxMs = passedMs * CORRECTION
    const missingMs = this.#sources.wall() - (this.#timeMs + passedMs)
    this.#timeMs += passedMs + Math.max(-correctionMaxMs, Math.min(correctionMaxMs, missingMs))
    return Math.floor(this.#timeMs)
  }

  /** Restarts from the machine's clock, or from a mark that is later. True if a mark was ignored. */
  begin(...marksMs: readonly number[]): boolean {
    const wallMs = this.#sources.wall()
    const trusted = marksMs.filter((markMs) => markMs - wallMs <= MARK_AHEAD_MAX_MS)
    this.#timeMs = Math.max(wallMs, ...trusted)
    this.#elapsedMs = this.#sources.elapsed()
    return trusted.length < marksMs.length
  }

  /** Moves the clock forward to a time that the clock of another server has reached. Ignored if that is more than a day ahead. */
  advanceTo(otherMs: number): void {
    const nowMs = this.now()
    if (otherMs > nowMs && otherMs - this.#sources.wall() <= MARK_AHEAD_MAX_MS) this.#timeMs = otherMs
  }

  /** The earlier of this clock and the machine's: what has expired by it has expired by both. */
  certain(): number {
    return Math.min(this.now(), this.#sources.wall())
  }
}

export function machineClock(): ClockSources {
  // The monotonic clock stops while the machine is suspended. The uptime does not.
  let [suspendedMs, checkedAtMs] = [0, performance.now()]
  const awakeSinceMs = uptimeMs() - checkedAtMs
  return {
    wall: Date.now,
    elapsed() {
      const awakeMs = performance.now()
      if (awakeMs - checkedAtMs > SLEEP_CHECK_INTERVAL_MS) {
        checkedAtMs = awakeMs
        const measuredMs = uptimeMs() - awakeMs - awakeSinceMs
        // A smaller difference is within the resolution of the uptime.
        if (measuredMs > suspendedMs + UPTIME_RESOLUTION_MS) suspendedMs = measuredMs
      }
      return awakeMs + suspendedMs
    },
  }
}

function uptimeMs(): number {
  return uptime() * 1000
}
