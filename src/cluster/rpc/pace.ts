/**
 * How slowly a node may give an answer that has an end. A node that sends a word now and then is not silent, and could hold its
 * caller for ever; so it has to send a least amount in each stretch of time in which its caller waits for it, and may keep it
 * waiting for so long in all. The time in which a caller takes nothing does not count: neither a long log nor a slow
 * caller meets the bound, only a node that works on one answer for ten minutes and has nothing of it to send.
 */
import { Refusal } from '../../platform/errors.ts'
import { TIMINGS } from '../nats/timings.ts'

/** 1.7 KiB/s in a stretch of ten minutes, which any line carries. */
const BYTES_MIN = 1 << 20
/** Stretches in all: six hours of mere waiting. */
const STRETCHES_MAX = 36

/** Of one answer, or of several that a caller takes from one node together. */
export class Pace {
  readonly #now: () => number
  /** Reads that wait at present, and since when at least one does. */
  #waiting = 0
  #sinceMs = 0
  /** Waited before that. */
  #waitedMs = 0
  /** Where in the time that was waited this stretch began, and what has come in it. */
  #fromMs = 0
  #bytes = 0

  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** A read begins to wait. */
  wait(): void {
    if (this.#waiting++ === 0) this.#sinceMs = this.#now()
  }

  /** A read waits no more. */
  go(): void {
    if (--this.#waiting === 0) this.#waitedMs += this.#now() - this.#sinceMs
  }

  came(bytes: number): void {
    this.#bytes += bytes
  }

  /** Whether the node is too slow by now. Call it every second or so. */
  isTooSlow(): boolean {
    const waitedMs = this.#waitedMs + (this.#waiting > 0 ? this.#now() - this.#sinceMs : 0)
    if (waitedMs > STRETCHES_MAX * TIMINGS.paceMs) return true
    if (waitedMs - this.#fromMs < TIMINGS.paceMs) return false
    if (this.#bytes < BYTES_MIN) return true
    this.#fromMs = waitedMs
    this.#bytes = 0
    return false
  }
}

export function tooSlow(): Refusal {
  const least = `less than ${BYTES_MIN >> 20} MiB in ${TIMINGS.paceMs / 60_000} minutes`
  return new Refusal('no_answer', `the node is too slow: it sent ${least} in which it was waited for`)
}
