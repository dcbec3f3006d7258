/** Counts of values by their size, since the start: a few additions for each value, whoever reads them. */
import type { Distribution, Taken } from './metric.ts'

export class Histogram {
  readonly #bounds: readonly number[]
  /** Values up to each bound and above the one before; the last for those above all bounds. */
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

  /** What came in, multiplied by `scale`: 0.001 for seconds of milliseconds. */
  distribution(scale = 1): Distribution & { readonly buckets: NonNullable<Distribution['buckets']> } {
    let count = 0
    const buckets = this.#bounds.map((bound, index) => ({
      // Scaled bounds are printed: 0.1 and not 0.1000000001.
      upTo: Number((bound * scale).toPrecision(12)),
      count: (count += this.#buckets[index] ?? 0),
    }))
    return { count: this.#count, sum: this.#sum * scale, buckets }
  }
}

/** Values that have come in since `take()`. */
export class Spread {
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

  /** What came in, in the words of the JSON form; starts anew. */
  take(): Taken {
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
