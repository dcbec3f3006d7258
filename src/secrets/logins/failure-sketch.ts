/**
 * Failed logins of more names than a table holds, in a fixed amount of memory: a count-min sketch. Each row has one cell for
 * a name, chosen by a hash with a key of this process; the smallest count of its cells is that of the name, or more where
 * all of its cells are shared. A count may so be too high for a name, and is never too low: what is written here of other names
 * takes nothing away from it.
 */
import { createHmac, randomBytes } from 'node:crypto'

const ROWS = 4
/** 2.4 MB in all. With 10,000 names in it, a name shares all of its cells with others in 1 of 2,000 cases. */
const CELLS = 1 << 16
const FAILURES_MAX = 255

export interface FailureCount {
  readonly failures: number
  readonly lastMs: number
}

export class FailureSketch {
  readonly #key = randomBytes(32)
  /** Absent until something is written. */
  #failures: Uint8Array | undefined
  #lastMs: Float64Array | undefined
  /** The longest time for which any of the counts matters. */
  #windowMs = 0

  /** Adds the count of a name, which matters for `windowMs` from its last failure. */
  add(name: string, count: FailureCount, { nowMs, windowMs }: { nowMs: number; windowMs: number }): void {
    this.#windowMs = Math.max(this.#windowMs, windowMs)
    const failures = (this.#failures ??= new Uint8Array(ROWS * CELLS))
    const lastMs = (this.#lastMs ??= new Float64Array(ROWS * CELLS))
    for (const at of this.#cellsOf(name)) {
      const isOver = nowMs - (lastMs[at] ?? 0) >= this.#windowMs
      failures[at] = Math.min(FAILURES_MAX, isOver ? count.failures : Math.max(failures[at] ?? 0, count.failures))
      lastMs[at] = isOver ? count.lastMs : Math.max(lastMs[at] ?? 0, count.lastMs)
    }
  }

  /** Undefined where the name was never added. */
  of(name: string): FailureCount | undefined {
    const [failures, lastMs] = [this.#failures, this.#lastMs]
    if (!failures || !lastMs) return undefined
    const counts = this.#cellsOf(name).map((at) => ({ failures: failures[at] ?? 0, lastMs: lastMs[at] ?? 0 }))
    const least = counts.reduce((a, b) => (b.failures < a.failures ? b : a))
    if (least.failures === 0) return undefined
    return { failures: least.failures, lastMs: Math.min(...counts.map((count) => count.lastMs)) }
  }

  #cellsOf(name: string): number[] {
    const digest = createHmac('sha256', this.#key).update(name).digest()
    return Array.from({ length: ROWS }, (_, row) => row * CELLS + (digest.readUInt32LE(row * 4) % CELLS))
  }
}
