/**
 * Counts of requests by operation, and their families. Operations are a fixed set, so the memory is bounded.
 */
import { Histogram, IntervalValues } from './histogram.ts'
import type { AnyFamily, IntervalSummary, Labels } from './metric.ts'
import type { MetricName } from './metric-docs.ts'

/** Upper bounds in milliseconds, for answers of tens of microseconds to 90 s. */
const BOUNDS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000]

/** Counts of one operation; implements `OperationMeter` of the http module. */
class OperationCounts {
  underway = 0
  bytes = 0
  readonly recent = new IntervalValues()
  /** Answers by the first digit of their status. */
  readonly #classes = [0, 0, 0, 0, 0, 0]
  /** In milliseconds. */
  readonly durations = new Histogram(BOUNDS_MS)

  answered(status: number, ms: number | undefined): void {
    const digit = Math.trunc(status / 100)
    this.#classes[digit] = (this.#classes[digit] ?? 0) + 1
    if (ms === undefined) return
    this.durations.add(ms)
    this.recent.add(ms)
  }

  /** Status classes with answers: `2xx` and their number. */
  classes(): [string, number][] {
    return this.#classes.flatMap((count, digit): [string, number][] => (count > 0 ? [[`${digit}xx`, count]] : []))
  }
}

/** Names of durations in Nomad. */
const KNOWN_NAMES: Readonly<Record<string, MetricName>> = {
  'host.fs_ls': 'nomad.client.file_system.list',
  'host.fs_stat': 'nomad.client.file_system.stat',
  'host.fs_stream': 'nomad.client.file_system.stream',
  'host.logs': 'nomad.client.file_system.logs',
  'host.metadata_read': 'nomad.client.node_meta.read',
  'host.metadata_apply': 'nomad.client.node_meta.apply',
  'host.stats': 'nomad.client.client_stats.stats',
  'host.alloc_stats': 'nomad.client.allocations.stats',
  'host.allocation_gc': 'nomad.client.allocations.garbage_collect',
  'host.gc': 'nomad.client.allocations.garbage_collect_all',
}

/** One sample of the JSON form without its rate. */
export interface RecentSample {
  readonly name: string
  readonly labels?: Labels
  readonly spread: IntervalSummary
}

/** In milliseconds, as in Nomad. */
function summaryOf({ durations }: OperationCounts): { count: number; sum: number } {
  const { count, sum } = durations.distribution()
  return { count, sum }
}

/** Counts of all operations; implements `Meter` of the http module. */
export class RequestMeter {
  readonly #operations = new Map<string, OperationCounts>()

  operation(name: string): OperationCounts {
    const found = this.#operations.get(name)
    if (found) return found
    const made = new OperationCounts()
    this.#operations.set(name, made)
    return made
  }

  families(): AnyFamily[] {
    const each = [...this.#operations].map(([operation, counts]) => ({ labels: { operation }, counts }))
    return [
      {
        name: 'outpost.http.requests',
        kind: 'counter',
        help: 'Finished requests by operation and status class.',
        points: each.flatMap(({ labels, counts }) =>
          counts.classes().map(([status, value]) => ({ labels: { ...labels, status }, value })),
        ),
      },
      {
        name: 'outpost.http.requests_underway',
        kind: 'gauge',
        help: 'Requests in progress, streams included.',
        points: each.map(({ labels, counts }) => ({ labels, value: counts.underway })),
      },
      {
        name: 'outpost.http.sent_bytes',
        kind: 'counter',
        help: 'Bytes of response bodies, including streams in progress.',
        points: each.map(({ labels, counts }) => ({ labels, value: counts.bytes })),
      },
      {
        name: 'outpost.http.request_duration_seconds',
        kind: 'histogram',
        help: 'Duration from the request head to the end of the response, without follow streams.',
        points: each.map(({ labels, counts }) => ({ labels, value: counts.durations.distribution(0.001) })),
      },
      ...this.#knownFamilies(),
    ]
  }

  #knownFamilies(): AnyFamily[] {
    return Object.entries(KNOWN_NAMES).map(([operation, name]) => ({
      name,
      kind: 'summary' as const,
      help: `Duration of ${operation} in milliseconds, without follow streams.`,
      points: [{ value: summaryOf(this.operation(operation)) }],
    }))
  }

  /** Durations in milliseconds since the last call, of operations with requests. */
  takeSamples(): RecentSample[] {
    return [...this.#operations].flatMap(([operation, { recent }]): RecentSample[] => {
      if (recent.count === 0) return []
      const spread = recent.take()
      const ours = { name: 'outpost.http.request_duration', labels: { operation }, spread }
      const known = KNOWN_NAMES[operation]
      return known === undefined ? [ours] : [ours, { name: known, spread }]
    })
  }
}
