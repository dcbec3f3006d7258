/**
 * `/v1/metrics` as JSON in the format of Nomad, and as text for Prometheus.
 *
 * The Prometheus form reads the sources at each scrape. The JSON form shows the last complete interval: gauges at its end,
 * counters and durations as increments. Sources return known values and measure nothing. Only one interval is held, so removed
 * allocations disappear.
 */
import type { Logger } from '../platform/log.ts'
import { messageOf } from '../platform/errors.ts'
import { type AnyFamily, type CommonLabels, isIncluded, type Labels, labelsOf, type NameFilter } from './metric.ts'
import type { RecentSample, RequestMeter } from './request-metrics.ts'

const INTERVAL_MS = 10_000

export interface MetricsOptions {
  readonly meter: RequestMeter
  /** Current families besides those of requests. */
  readonly families: () => readonly AnyFamily[]
  /** Called at the end of an interval. */
  readonly completed: () => void
  /** Measures expensive values, once an interval. May reject. */
  readonly refresh: () => Promise<unknown>
  readonly labels: CommonLabels
  readonly filter: NameFilter
  readonly logger: Logger
}

interface MetricSummary {
  readonly Count: number
  readonly Labels: Labels
  readonly Max: number
  readonly Mean: number
  readonly Min: number
  readonly Name: string
  readonly Rate: number
  readonly Stddev: number
  readonly Sum: number
}

/** Properties in alphabetical order, the order on the wire. */
export interface MetricsSnapshot {
  readonly Counters: readonly MetricSummary[]
  readonly Gauges: readonly { readonly Labels: Labels; readonly Name: string; readonly Value: number }[]
  readonly Points: readonly never[]
  readonly PrecisionGauges: readonly never[]
  readonly Samples: readonly MetricSummary[]
  /** Start of the interval. */
  readonly Timestamp: string
}

export class Metrics {
  readonly #options: MetricsOptions
  #timer: NodeJS.Timeout | undefined
  #startedAtMs = Date.now()
  #last: MetricsSnapshot | undefined
  /** Counters at the start of the interval. */
  #before = new Map<string, number>()

  constructor(options: MetricsOptions) {
    this.#options = options
  }

  /** Starts the intervals. Does not keep the process alive. */
  start(): void {
    this.#refresh()
    this.#timer ??= setInterval(() => this.complete(), INTERVAL_MS).unref()
  }

  /** Ends the current interval and starts the next one. */
  complete(): void {
    this.#refresh()
    this.#last = this.#snapshot()
    this.#startedAtMs = Date.now()
    this.#options.completed()
  }

  stop(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** The last complete interval; before that, the first one up to the first request. */
  json(): MetricsSnapshot {
    this.#last ??= this.#snapshot()
    return this.#last
  }

  /** The Prometheus form with current values. */
  async text(): Promise<string> {
    const { prometheusText } = await import('./prometheus.ts')
    return prometheusText(this.#families(), this.#options.labels)
  }

  #families(): AnyFamily[] {
    const { meter, families, filter } = this.#options
    return [...meter.families(), ...families()].filter(({ name }) => isIncluded(name, filter))
  }

  #refresh(): void {
    this.#options.refresh().catch((error: unknown) => {
      this.#options.logger.warn('metrics refresh failed', { error: messageOf(error) })
    })
  }

  #snapshot(): MetricsSnapshot {
    const { labels, meter, filter } = this.#options
    const gauges: { Labels: Labels; Name: string; Value: number }[] = []
    const counters: MetricSummary[] = []
    const samples: RecentSample[] = []
    const counts = new Map<string, number>()
    for (const { name, kind, points } of this.#families()) {
      for (const point of points) {
        if ('recent' in point && point.recent && point.recent.count > 0) {
          samples.push({ name, ...(point.labels && { labels: point.labels }), spread: point.recent.take() })
        }
        if (typeof point.value !== 'number') continue
        const { value } = point
        const all = labelsOf(name, point.labels, labels)
        if (kind === 'gauge') gauges.push({ Labels: all, Name: name, Value: value })
        else if (kind === 'counter') {
          const key = JSON.stringify([name, point.labels])
          counts.set(key, value)
          const increment = value - (this.#before.get(key) ?? 0)
          if (increment > 0) counters.push({ ...incrementOf(increment), Labels: all, Name: name })
        }
      }
    }
    this.#before = counts
    samples.push(...meter.takeSamples().filter(({ name }) => isIncluded(name, filter)))
    return {
      Counters: counters.map(ordered),
      Gauges: gauges,
      Points: [],
      PrecisionGauges: [],
      Samples: samples.map(({ name, labels: own, spread }) =>
        ordered({ ...spread, Rate: rate(spread.Sum), Labels: labelsOf(name, own, labels), Name: name }),
      ),
      Timestamp: `${new Date(this.#startedAtMs).toISOString().slice(0, 19).replace('T', ' ')} +0000 UTC`,
    }
  }
}

/** The increment of a counter as one sample. */
function incrementOf(increment: number): Omit<MetricSummary, 'Labels' | 'Name'> {
  return { Count: 1, Max: increment, Mean: increment, Min: increment, Rate: rate(increment), Stddev: 0, Sum: increment }
}

function rate(sum: number): number {
  return sum / (INTERVAL_MS / 1000)
}

function ordered({ Count, Labels: own, Max, Mean, Min, Name, Rate, Stddev, Sum }: MetricSummary): MetricSummary {
  return { Count, Labels: own, Max, Mean, Min, Name, Rate, Stddev, Sum }
}
