/** The lag of each peer while the page is open. */
import type { PlotData } from '../../components/plot-times.ts'

/** Two hours at one measurement in two seconds. */
export const HISTORY_MAX = 3600

export interface LagSeries {
  readonly names: readonly string[]
  /** With a line for each name. */
  readonly data: PlotData
}

interface Measurement {
  readonly atMs: number
  readonly lags: ReadonlyMap<string, number | null>
}

export class LagHistory {
  #all: Measurement[] = []

  /** A measurement that is not newer than the last one is ignored. */
  add(atMs: number, lags: ReadonlyMap<string, number | null>): void {
    const last = this.#all.at(-1)
    if (last && atMs <= last.atMs) return
    this.#all.push({ atMs, lags })
    if (this.#all.length > HISTORY_MAX) this.#all = this.#all.slice(-HISTORY_MAX)
  }

  get length(): number {
    return this.#all.length
  }

  get series(): LagSeries {
    const names = [...new Set(this.#all.flatMap(({ lags }) => [...lags.keys()]))].toSorted()
    const values = names.map((name) => this.#all.map(({ lags }) => lags.get(name) ?? null))
    return { names, data: [this.#all.map(({ atMs }) => atMs / 1000), ...values] }
  }
}
