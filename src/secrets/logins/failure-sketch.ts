/**
 * A count-min sketch of failed logins: counts for any number of names in a fixed amount of memory. Each row has one cell per name,
 * chosen by an HMAC with a key of this process. The count of a name is the smallest one in its cells. It is never too low, so failures
 * with other names unlock no name. It is too high if all cells of a name are shared, so a flood can lock names that the attacker does
 * not know. The number of cells makes that expensive: to lock 1 % of all other names, 400,000 names must be locked within one lockout
 * (15 minutes), by 2,000,000 failed logins.
 */
import { createHmac, randomBytes } from 'node:crypto'

const ROWS = 4
/** 20 MiB in total, allocated with the first name. With 100,000 names, one name in 15,000 shares all of its cells. */
const CELLS = 1 << 20
const FAILURES_MAX = 255
const MS_PER_SECOND = 1000

export interface FailureCount {
  readonly failures: number
  readonly lastMs: number
}

export class FailureSketch {
  readonly #key = randomBytes(32)
  /** Undefined until the first name is added. */
  #failures: Uint8Array | undefined
  /** Unix time in seconds, rounded up. */
  #lastSeconds: Uint32Array | undefined
  /** The longest window of all counts. */
  #windowMs = 0

  /** Adds the count of a name, which expires `windowMs` after its last failure. */
  add(name: string, count: FailureCount, { nowMs, windowMs }: { nowMs: number; windowMs: number }): void {
    this.#windowMs = Math.max(this.#windowMs, windowMs)
    const failures = (this.#failures ??= new Uint8Array(ROWS * CELLS))
    const lastSeconds = (this.#lastSeconds ??= new Uint32Array(ROWS * CELLS))
    const seconds = Math.ceil(count.lastMs / MS_PER_SECOND)
    for (const at of this.#cellsOf(name)) {
      const isExpired = nowMs - (lastSeconds[at] ?? 0) * MS_PER_SECOND >= this.#windowMs
      failures[at] = Math.min(FAILURES_MAX, isExpired ? count.failures : Math.max(failures[at] ?? 0, count.failures))
      lastSeconds[at] = isExpired ? seconds : Math.max(lastSeconds[at] ?? 0, seconds)
    }
  }

  /** Undefined for a name that was not added, unless other names share all of its cells. */
  of(name: string): FailureCount | undefined {
    const [failures, lastSeconds] = [this.#failures, this.#lastSeconds]
    if (!failures || !lastSeconds) return undefined
    const counts = this.#cellsOf(name).map((at) => ({
      failures: failures[at] ?? 0,
      lastMs: (lastSeconds[at] ?? 0) * MS_PER_SECOND,
    }))
    const least = counts.reduce((a, b) => (b.failures < a.failures ? b : a))
    if (least.failures === 0) return undefined
    return { failures: least.failures, lastMs: Math.min(...counts.map((count) => count.lastMs)) }
  }

  #cellsOf(name: string): number[] {
    const digest = createHmac('sha256', this.#key).update(name).digest()
    return Array.from({ length: ROWS }, (_, row) => row * CELLS + (digest.readUInt32LE(row * 4) % CELLS))
  }
}
