/**
 * Counts of requests by operation: what the HTTP room counts into while it answers, and the families made of it when
 * somebody asks. Operations are few and known, so what is held is bounded, whatever callers ask for.
 */
import type { AnyFamily, Distribution, Labels } from './metric.ts'

/** Upper bounds in milliseconds; answers here take from tens of microseconds to the 90 s they are allowed. */
const BOUNDS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 10_000]

/** Durations in milliseconds that have come in since `take()`. */
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
  take(): { Count: number; Max: number; Mean: number; Min: number; Stddev: number; Sum: number } {
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

/** Counts of one operation; the HTTP room's `OperationMeter`. */
export class OperationCounts {
  underway = 0
  bytes = 0
  readonly recent = new Spread()
  /** Answers by the first digit of their status. */
  readonly #classes = [0, 0, 0, 0, 0, 0]
  /** Answers that took up to each bound and longer than the one before; the last for those beyond. */
  readonly #buckets = Array.from({ length: BOUNDS_MS.length + 1 }, () => 0)
  #sumMs = 0
  #count = 0

  answered(status: number, ms: number | undefined): void {
    const digit = Math.trunc(status / 100)
    this.#classes[digit] = (this.#classes[digit] ?? 0) + 1
    if (ms === undefined) return
    this.#count++
    this.#sumMs += ms
    let bucket = 0
    while (bucket < BOUNDS_MS.length && ms > (BOUNDS_MS[bucket] ?? 0)) bucket++
    this.#buckets[bucket] = (this.#buckets[bucket] ?? 0) + 1
    this.recent.add(ms)
  }

  /** The classes that there were: `2xx` and how often. */
  classes(): [string, number][] {
    return this.#classes.flatMap((count, digit): [string, number][] => (count > 0 ? [[`${digit}xx`, count]] : []))
  }

  /** Milliseconds since the start. */
  get durations(): { count: number; sum: number } {
    return { count: this.#count, sum: this.#sumMs }
  }

  /** For each bound, in milliseconds, how many answers took up to that long. */
  buckets(): { upTo: number; count: number }[] {
    let count = 0
    return BOUNDS_MS.map((upTo, index) => ({ upTo, count: (count += this.#buckets[index] ?? 0) }))
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
  readonly spread: ReturnType<Spread['take']>
}

/** Durations of one operation in seconds. */
function secondsOf(counts: OperationCounts): Distribution {
  return {
    count: counts.durations.count,
    sum: counts.durations.sum / 1000,
    buckets: counts.buckets().map(({ upTo, count }) => ({ upTo: upTo / 1000, count })),
  }
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
        points: each.map(({ labels, counts }) => ({ labels, value: secondsOf(counts) })),
      },
      ...this.#knownFamilies(),
    ]
  }

  #knownFamilies(): AnyFamily[] {
    return Object.entries(KNOWN_NAMES).map(([operation, name]) => ({
      name,
      kind: 'summary' as const,
      help: `Milliseconds that ${operation} took, streams that follow left out.`,
      points: [{ value: this.operation(operation).durations }],
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
