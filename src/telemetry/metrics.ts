/**
 * `/v1/metrics`: the figures of this process and of what it serves, as JSON for the field's own clients and as text for
 * Prometheus.
 *
 * Figures are read from their sources when somebody asks, and once an interval for the JSON form, which shows the last
 * complete interval: states at its end, counters and durations by what they grew. Nothing is measured for a question:
 * sources give what they know from their own looks. What is held is one interval's picture, so that allocations that
 * have gone are gone here too.
 */
import type { Logger } from '../platform/log.ts'
import { messageOf } from '../platform/errors.ts'
import { type AnyFamily, type CommonLabels, isWanted, type Labels, labelsOf, type NameFilter } from './metric.ts'
import type { RecentSample, RequestMeter } from './request-metrics.ts'

const INTERVAL_MS = 10_000

export interface MetricsOptions {
  readonly meter: RequestMeter
  /** Families of the rest of the process, as of now. */
  readonly families: () => readonly AnyFamily[]
  /** Called when an interval is over. */
  readonly completed: () => void
  /** Called once an interval, for what costs too much to be known at any time. May reject. */
  readonly refresh: () => Promise<unknown>
  readonly labels: CommonLabels
  readonly filter: NameFilter
  readonly logger: Logger
}

interface Summed {
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

/** Properties stand in alphabetical order because that is the order on the wire. */
export interface MetricsPicture {
  readonly Counters: readonly Summed[]
  readonly Gauges: readonly { readonly Labels: Labels; readonly Name: string; readonly Value: number }[]
  readonly Points: readonly never[]
  readonly PrecisionGauges: readonly never[]
  readonly Samples: readonly Summed[]
  /** Begin of the interval. */
  readonly Timestamp: string
}

export class Metrics {
  readonly #options: MetricsOptions
  #timer: NodeJS.Timeout | undefined
  #beganAtMs = Date.now()
  #last: MetricsPicture | undefined
  /** Counters at the begin of the interval. */
  #before = new Map<string, number>()

  constructor(options: MetricsOptions) {
    this.#options = options
  }

  /** Begins to take intervals. Never keeps the process alive. */
  start(): void {
    this.#refresh()
    this.#timer ??= setInterval(() => this.complete(), INTERVAL_MS).unref()
  }

  /** Ends the interval that runs and begins the next. */
  complete(): void {
    this.#refresh()
    this.#last = this.#picture()
    this.#beganAtMs = Date.now()
    this.#options.completed()
  }

  stop(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** The last complete interval; in the first one, what there is of it when somebody asks first. */
  json(): MetricsPicture {
    this.#last ??= this.#picture()
    return this.#last
  }

  /** The text form, as of now. */
  async text(): Promise<string> {
    const { prometheusText } = await import('./prometheus.ts')
    return prometheusText(this.#families(), this.#options.labels)
  }

  #families(): AnyFamily[] {
    const { meter, families, filter } = this.#options
    return [...meter.families(), ...families()].filter(({ name }) => isWanted(name, filter))
  }

  #refresh(): void {
    this.#options.refresh().catch((error: unknown) => {
      this.#options.logger.warn('figures were not refreshed', { error: messageOf(error) })
    })
  }

  #picture(): MetricsPicture {
    const { labels, meter, filter } = this.#options
    const gauges: { Labels: Labels; Name: string; Value: number }[] = []
    const counters: Summed[] = []
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
          const grown = value - (this.#before.get(key) ?? 0)
          if (grown > 0) counters.push({ ...rated(grown), Labels: all, Name: name })
        }
      }
    }
    this.#before = counts
    samples.push(...meter.takeSamples().filter(({ name }) => isWanted(name, filter)))
    return {
      Counters: counters.map(ordered),
      Gauges: gauges,
      Points: [],
      PrecisionGauges: [],
      Samples: samples.map(({ name, labels: own, spread }) =>
        ordered({ ...spread, Rate: rate(spread.Sum), Labels: labelsOf(name, own, labels), Name: name }),
      ),
      Timestamp: `${new Date(this.#beganAtMs).toISOString().slice(0, 19).replace('T', ' ')} +0000 UTC`,
    }
  }
}

/** What a counter grew by, as one step. */
function rated(grown: number): Omit<Summed, 'Labels' | 'Name'> {
  return { Count: 1, Max: grown, Mean: grown, Min: grown, Rate: rate(grown), Stddev: 0, Sum: grown }
}

function rate(sum: number): number {
  return sum / (INTERVAL_MS / 1000)
}

function ordered({ Count, Labels: own, Max, Mean, Min, Name, Rate, Stddev, Sum }: Summed): Summed {
  return { Count, Labels: own, Max, Mean, Min, Name, Rate, Stddev, Sum }
}
