/**
 * Counts of failed logins for more names than a table holds, in a fixed amount of memory: a count-min sketch. Each row has one cell
 * for a name, chosen by a hash with a key of this process. The count of a name is the smallest one in its cells. It is never too low, so a
 * flood of other names unlocks no name. It is too high where all cells of a name are shared: a flood can then lock names that the caller does
 * not know. So there are many cells: to lock 1 % of all other names, 400,000 names must be locked within a lockout (15 minutes), by
 * 2,000,000 failed logins.
 */
import { createHmac, randomBytes } from 'node:crypto'

const ROWS = 4
/** 20 MiB in all, allocated with the first name. With 100,000 names in it, a name shares all of its cells in 1 of 15,000 cases. */
const CELLS = 1 << 20
const FAILURES_MAX = 255
const MS_PER_SECOND = 1000

export interface FailureCount {
  readonly failures: number
  readonly lastMs: number
}

export class FailureSketch {
  readonly #key = randomBytes(32)
  /** Absent until something is written. */
  #failures: Uint8Array | undefined
  /** Unix time in seconds, rounded up. */
  #lastSeconds: Uint32Array | undefined
  /** The longest time for which any of the counts matters. */
  #windowMs = 0

  /** Adds the count of a name, which matters for `windowMs` from its last failure. */
  add(name: string, count: FailureCount, { nowMs, windowMs }: { nowMs: number; windowMs: number }): void {
    this.#windowMs = Math.max(this.#windowMs, windowMs)
    const failures = (this.#failures ??= new Uint8Array(ROWS * CELLS))
    const lastSeconds = (this.#lastSeconds ??= new Uint32Array(ROWS * CELLS))
    const seconds = Math.ceil(count.lastMs / MS_PER_SECOND)
    for (const at of this.#cellsOf(name)) {
      const isOver = nowMs - (lastSeconds[at] ?? 0) * MS_PER_SECOND >= this.#windowMs
      failures[at] = Math.min(FAILURES_MAX, isOver ? count.failures : Math.max(failures[at] ?? 0, count.failures))
      lastSeconds[at] = isOver ? seconds : Math.max(lastSeconds[at] ?? 0, seconds)
    }
  }

  /** Undefined where the name was never added. */
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
