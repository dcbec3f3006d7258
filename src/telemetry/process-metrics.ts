/**
 * What this process costs its host, and whether its event loop keeps up.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { buildCommit } from '../platform/build-commit.ts'
import { type AnyFamily, type Family, single } from './metric.ts'

type DelayHistogram = ReturnType<typeof monitorEventLoopDelay>

/** Each look wakes the process: often enough to notice a stall that callers notice, seldom enough to cost nothing. */
const LOOP_LOOK_MS = 50

export class ProcessFigures {
  readonly #version: string
  readonly #startedAtMs = Date.now() - process.uptime() * 1000
  /** Runs from the first question on. */
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
      single('gauge', 'outpost.build_info', 'The version and commit that run; always 1.', 1, {
        version: this.#version,
        commit: buildCommit(),
        node: process.version,
      }),
      single('counter', 'process.cpu_seconds', 'Processor time used.', (cpu.user + cpu.system) / 1e6),
      single('gauge', 'process.start_time_seconds', 'When the process began.', this.#startedAtMs / 1000),
      single('gauge', 'process.resident_memory_bytes', 'Memory in RAM.', memory.rss),
      {
        name: 'outpost.memory_bytes',
        kind: 'gauge',
        help: 'Memory of the process by kind: JavaScript heap in use and reserved, all memory outside it, and the buffers among that.',
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
      single('gauge', 'process.open_fds', 'Open file descriptors.', namesIn('/proc/self/fd')),
      ...(limit === undefined ? [] : [single('gauge', 'process.max_fds', 'Most of them there may be.', Number(limit))]),
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
        'Part of the time since the start that it was busy.',
        utilization,
      ),
      single('gauge', 'outpost.event_loop.delay_max_seconds', 'Latest timer of the last 10 to 20 seconds.', longest),
      {
        name: 'outpost.event_loop.delay_seconds',
        kind: 'summary',
        help: 'How late timers were, from the first time that somebody asked.',
        points: [{ value: { count: this.#count + now.count, sum: this.#seconds + now.seconds } }],
      },
    ]
  }

  #recent(): { count: number; seconds: number; longestSeconds: number } {
    const delay = this.#delay
    if (!delay || delay.count === 0) return { count: 0, seconds: 0, longestSeconds: 0 }
    // The histogram holds the time between looks, in nanoseconds.
    return {
      count: delay.count,
      seconds: lateSeconds(delay.mean) * delay.count,
      longestSeconds: lateSeconds(delay.max),
    }
  }

  /** An interval is over. */
  tick(): void {
    const { count, seconds, longestSeconds } = this.#recent()
    this.#count += count
    this.#seconds += seconds
    this.#longestSeconds = longestSeconds
    this.#delay?.reset()
  }
}

function lateSeconds(betweenLooksNs: number): number {
  return Math.max(0, betweenLooksNs / 1e6 - LOOP_LOOK_MS) / 1000
}

function started(): DelayHistogram {
  const delay = monitorEventLoopDelay({ resolution: LOOP_LOOK_MS })
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

function namesIn(path: string): number {
  try {
    return readdirSync(path).length
  } catch {
    return 0
  }
}
