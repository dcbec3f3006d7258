/**
 * The time by which lives are measured: tokens, leases, versions that end. It is the machine's clock as long as that
 * behaves, and is not carried away when somebody sets it: it goes with the time that has really passed, never back, and
 * makes up for a difference from the machine's clock by going a tenth faster or slower until there is none. So a life of
 * an hour lasts between 54 and 67 minutes, whatever is done to the machine's clock while it runs.
 *
 * A start takes the machine's clock for true, as time has passed that nobody measured, but does not go back behind the
 * time that was last written down (the *mark*); only a mark more than a day ahead is taken for the mistake itself.
 */
import { uptime } from 'node:os'

const CORRECTION = 0.1
const MARK_AHEAD_MAX_MS = 86_400_000
const SLEPT_LOOKED_EVERY_MS = 1000

export interface ClockSources {
  /** The machine's clock, in milliseconds since 1970. */
  readonly wall: () => number
  /** Milliseconds that only ever grow, those that the machine slept included. */
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

  /** Milliseconds since 1970, whole. */
  now(): number {
    const elapsedMs = this.#sources.elapsed()
    const passedMs = Math.max(0, elapsedMs - this.#elapsedMs)
    this.#elapsedMs = elapsedMs
    const most = passedMs * CORRECTION
    const missingMs = this.#sources.wall() - (this.#timeMs + passedMs)
    this.#timeMs += passedMs + Math.max(-most, Math.min(most, missingMs))
    return Math.floor(this.#timeMs)
  }

  /** Begins anew from the machine's clock, or from the mark where that is later. True when a mark was not believed. */
  begin(markMs = 0): boolean {
    const wallMs = this.#sources.wall()
    const isBelieved = markMs - wallMs <= MARK_AHEAD_MAX_MS
    this.#timeMs = isBelieved ? Math.max(wallMs, markMs) : wallMs
    this.#elapsedMs = this.#sources.elapsed()
    return !isBelieved
  }

  /** The earlier of the two clocks: what has ended by this one has ended by any. */
  certain(): number {
    return Math.min(this.now(), this.#sources.wall())
  }
}

/** The sources of a real machine. */
export function machineClock(): ClockSources {
  // The monotonic clock stands still while the machine sleeps; its uptime does not.
  let [sleptMs, lookedAtMs] = [0, performance.now()]
  const awakeSinceMs = uptimeMs() - lookedAtMs
  return {
    wall: Date.now,
    elapsed() {
      const awakeMs = performance.now()
      if (awakeMs - lookedAtMs > SLEPT_LOOKED_EVERY_MS) {
        lookedAtMs = awakeMs
        const slept = uptimeMs() - awakeMs - awakeSinceMs
        // Anything shorter is the coarseness of the uptime.
        if (slept > sleptMs + 1000) sleptMs = slept
      }
      return awakeMs + sleptMs
    },
  }
}

function uptimeMs(): number {
  return uptime() * 1000
}
