/**
 * Resource usage of this process, and the delay of its event loop.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { buildCommit } from '../platform/build-commit.ts'
import { type AnyFamily, type Family, single } from './metric.ts'

type DelayHistogram = ReturnType<typeof monitorEventLoopDelay>

/** Sampling interval of the event loop delay. Each sample wakes the process. */
const LOOP_SAMPLE_MS = 50

/** Delays of timers beyond their time, in milliseconds, of the last 10 to 20 seconds. */
export interface LoopDelay {
  readonly Samples: number
  readonly MeanMs: number
  readonly P50Ms: number
  readonly P99Ms: number
  readonly MaxMs: number
}

export class ProcessMetrics {
  readonly #version: string
  readonly #startedAtMs = Date.now() - process.uptime() * 1000
  /** Started by the first scrape. */
  #delay: DelayHistogram | undefined
  #count = 0
  #seconds = 0
  #longestSeconds = 0

  constructor(version: string) {
    this.#version = version
  }

  stop(): void {
    this.#delay?.disable()
  }

  families(): AnyFamily[] {
    const memory = process.memoryUsage()
    const cpu = process.cpuUsage()
    return [
      single('gauge', 'outpost.build_info', 'Version and commit of the program; always 1.', 1, {
        version: this.#version,
        commit: buildCommit(),
        node: process.version,
      }),
      single('counter', 'process.cpu_seconds', 'CPU time.', (cpu.user + cpu.system) / 1e6),
      single(
        'gauge',
        'process.start_time_seconds',
        'Start time of the process since the Unix epoch.',
        this.#startedAtMs / 1000,
      ),
      single('gauge', 'process.resident_memory_bytes', 'Resident memory.', memory.rss),
      {
        name: 'outpost.memory_bytes',
        kind: 'gauge',
        help: 'Memory by kind: used and reserved JavaScript heap, external memory, and buffers (part of external).',
        points: [
          { labels: { kind: 'heap_used' }, value: memory.heapUsed },
          { labels: { kind: 'heap_reserved' }, value: memory.heapTotal },
          { labels: { kind: 'external' }, value: memory.external },
          { labels: { kind: 'buffers' }, value: memory.arrayBuffers },
        ],
      },
      ...this.#descriptors(),
      ...this.#loop(),
    ]
  }

  #descriptors(): Family[] {
    const limit = /^Max open files +(\d+)/m.exec(textOf('/proc/self/limits'))?.[1]
    return [
      single('gauge', 'process.open_fds', 'Open file descriptors.', namesIn('/proc/self/fd').length),
      ...(limit === undefined
        ? []
        : [single('gauge', 'process.max_fds', 'Limit of open file descriptors.', Number(limit))]),
    ]
  }

  #loop(): AnyFamily[] {
    const { utilization } = performance.eventLoopUtilization()
    this.#delay ??= started()
    const now = this.#recent()
    const longest = Math.max(this.#longestSeconds, now.longestSeconds)
    return [
      single(
        'gauge',
        'outpost.event_loop.busy_ratio',
        'Fraction of time since the start in which the event loop was busy.',
        utilization,
      ),
      single(
        'gauge',
        'outpost.event_loop.delay_max_seconds',
        'Largest timer delay of the last 10 to 20 seconds.',
        longest,
      ),
      {
        name: 'outpost.event_loop.delay_seconds',
        kind: 'summary',
        help: 'Timer delays since the first scrape.',
        points: [{ value: { count: this.#count + now.count, sum: this.#seconds + now.seconds } }],
      },
    ]
  }

  /** Starts sampling at its first call. */
  loopDelay(): LoopDelay {
    this.#delay ??= started()
    const { longestSeconds } = this.#recent()
    const delay = this.#delay
    const lateMs = (betweenSamplesNs: number) => (delay.count === 0 ? 0 : lateSeconds(betweenSamplesNs) * 1000)
    return {
      Samples: delay.count,
      MeanMs: lateMs(delay.mean),
      P50Ms: lateMs(delay.percentile(50)),
      P99Ms: lateMs(delay.percentile(99)),
      MaxMs: Math.max(this.#longestSeconds, longestSeconds) * 1000,
    }
  }

  #recent(): { count: number; seconds: number; longestSeconds: number } {
    const delay = this.#delay
    if (!delay || delay.count === 0) return { count: 0, seconds: 0, longestSeconds: 0 }
    // The histogram has the time between samples, in nanoseconds.
    return {
      count: delay.count,
      seconds: lateSeconds(delay.mean) * delay.count,
      longestSeconds: lateSeconds(delay.max),
    }
  }

  /** Ends an interval. */
  tick(): void {
    const { count, seconds, longestSeconds } = this.#recent()
    this.#count += count
    this.#seconds += seconds
    this.#longestSeconds = longestSeconds
    this.#delay?.reset()
  }
}

function lateSeconds(betweenSamplesNs: number): number {
  return Math.max(0, betweenSamplesNs / 1e6 - LOOP_SAMPLE_MS) / 1000
}

function started(): DelayHistogram {
  const delay = monitorEventLoopDelay({ resolution: LOOP_SAMPLE_MS })
  delay.enable()
  return delay
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

/** Empty for a directory that cannot be read. */
export function namesIn(directory: string): string[] {
  try {
    return readdirSync(directory)
  } catch {
    return []
  }
}
