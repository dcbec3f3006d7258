/**
 * Counts of requests by operation: what the HTTP room counts into while it answers, and the families made of it when
 * somebody asks. Operations are few and known, so what is held is bounded, whatever callers ask for.
 */
import { Histogram, Spread } from './histogram.ts'
import type { AnyFamily, Labels, Taken } from './metric.ts'

/** Upper bounds in milliseconds; answers here take from tens of microseconds to the 90 s they are allowed. */
const BOUNDS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000]

/** Counts of one operation; the HTTP room's `OperationMeter`. */
export class OperationCounts {
  underway = 0
  bytes = 0
  readonly recent = new Spread()
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

  /** The classes that there were: `2xx` and how often. */
  classes(): [string, number][] {
    return this.#classes.flatMap((count, digit): [string, number][] => (count > 0 ? [[`${digit}xx`, count]] : []))
  }
}

/** Durations that the compatible system has a name for. */
const KNOWN_NAMES: Readonly<Record<string, string>> = {
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
  readonly spread: Taken
}

/** In milliseconds, as the compatible system has them. */
function summaryOf({ durations }: OperationCounts): { count: number; sum: number } {
  const { count, sum } = durations.distribution()
  return { count, sum }
}

/** The counts of all operations; the HTTP room's `Meter`. */
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
        help: 'Requests that are over, by operation and class of status.',
        points: each.flatMap(({ labels, counts }) =>
          counts.classes().map(([status, value]) => ({ labels: { ...labels, status }, value })),
        ),
      },
      {
        name: 'outpost.http.requests_underway',
        kind: 'gauge',
        help: 'Requests that are being answered, streams included.',
        points: each.map(({ labels, counts }) => ({ labels, value: counts.underway })),
      },
      {
        name: 'outpost.http.sent_bytes',
        kind: 'counter',
        help: 'Bytes of answers, without their heads, those of streams that go on included.',
        points: each.map(({ labels, counts }) => ({ labels, value: counts.bytes })),
      },
      {
        name: 'outpost.http.request_duration_seconds',
        kind: 'histogram',
        help: 'From the head of a request to the end of its answer. Streams that follow are left out.',
        points: each.map(({ labels, counts }) => ({ labels, value: counts.durations.distribution(0.001) })),
      },
      ...this.#knownFamilies(),
    ]
  }

  #knownFamilies(): AnyFamily[] {
    return Object.entries(KNOWN_NAMES).map(([operation, name]) => ({
      name,
      kind: 'summary' as const,
      help: `Milliseconds that ${operation} took, streams that follow left out.`,
      points: [{ value: summaryOf(this.operation(operation)) }],
    }))
  }

  /** Durations in milliseconds since the last call; operations that nobody called are left out. */
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
