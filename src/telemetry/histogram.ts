/** Histogram of values since the start. A value costs a few additions. */
import type { Distribution, IntervalSummary } from './metric.ts'

export class Histogram {
  readonly #bounds: readonly number[]
  /** Values between the previous bound and this one; the last one counts values above all bounds. */
  readonly #buckets: number[]
  #count = 0
  #sum = 0

  /** `bounds` are upper bounds in ascending order, in the unit of the values. */
  constructor(bounds: readonly number[]) {
    this.#bounds = bounds
    this.#buckets = Array.from({ length: bounds.length + 1 }, () => 0)
  }

  add(value: number): void {
    this.#count++
    this.#sum += value
    let bucket = 0
    while (bucket < this.#bounds.length && value > (this.#bounds[bucket] ?? 0)) bucket++
    this.#buckets[bucket] = (this.#buckets[bucket] ?? 0) + 1
  }

  /** The distribution multiplied by `scale`: 0.001 converts milliseconds to seconds. */
  distribution(scale = 1): Distribution & { readonly buckets: NonNullable<Distribution['buckets']> } {
    let count = 0
    const buckets = this.#bounds.map((bound, index) => ({
      // Without rounding a scaled bound prints as 0.1000000001.
      upTo: Number((bound * scale).toPrecision(12)),
      count: (count += this.#buckets[index] ?? 0),
    }))
    return { count: this.#count, sum: this.#sum * scale, buckets }
  }
}

/** Values since the last `take`. */
export class IntervalValues {
  count = 0
  sum = 0
  #squares = 0
  #min = Number.POSITIVE_INFINITY
  #max = 0

  add(value: number): void {
    this.count++
    this.sum += value
    this.#squares += value * value
    if (value < this.#min) this.#min = value
    if (value > this.#max) this.#max = value
  }

  /** Returns the summary and resets it. */
  take(): IntervalSummary {
    const { count, sum } = this
    const mean = count === 0 ? 0 : sum / count
    const variance = count < 2 ? 0 : Math.max(0, (this.#squares - count * mean * mean) / (count - 1))
    const taken = {
      Count: count,
      Max: this.#max,
      Mean: mean,
      Min: count === 0 ? 0 : this.#min,
      Stddev: Math.sqrt(variance),
      Sum: sum,
    }
    this.count = 0
    this.sum = 0
    this.#squares = 0
    this.#min = Number.POSITIVE_INFINITY
    this.#max = 0
    return taken
  }
}
