/** Values over time for a plot: a limited number of the newest. */

import type { PlotData } from '../../components/plot-times.ts'

export class TimeSeries {
  readonly #capacity: number
  readonly #gapSeconds: number
  #times: number[] = []
  #lines: (number | null)[][]

  /** Between samples that are further apart than `gapSeconds` the plot has a gap. */
  constructor(lines: number, { capacity, gapSeconds }: { readonly capacity: number; readonly gapSeconds: number }) {
    this.#capacity = capacity
    this.#gapSeconds = gapSeconds
    this.#lines = Array.from({ length: lines }, () => [])
  }

  add(atSeconds: number, values: readonly (number | null)[]): void {
    const last = this.#times.at(-1)
    if (last !== undefined && atSeconds <= last) return
    if (last !== undefined && atSeconds - last > this.#gapSeconds) this.#push(last + this.#gapSeconds / 2, [])
    this.#push(atSeconds, values)
    const excess = this.#times.length - this.#capacity
    if (excess <= 0) return
    this.#times.splice(0, excess)
    for (const line of this.#lines) line.splice(0, excess)
  }

  #push(atSeconds: number, values: readonly (number | null)[]): void {
    this.#times.push(atSeconds)
    for (const [index, line] of this.#lines.entries()) line.push(values[index] ?? null)
  }

  /** Changes with each `add`, as a plot expects. */
  get data(): PlotData {
    return [this.#times, ...this.#lines]
  }

  get length(): number {
    return this.#times.length
  }

  latest(line: number): number | undefined {
    return this.#lines[line]?.at(-1) ?? undefined
  }
}
