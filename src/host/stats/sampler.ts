/**
 * Samples the statistics of the host and of every running task once per interval, in time slices.
 *
 * Promises: statistics are at most `FRESH_MS` old, or sampled on request; no slice blocks the event loop for more than about
 * `SLICE_MS` plus one step; memory is bounded by the existing tasks and processes. Without a running task /proc is not
 * walked. Assumes that `allocations` is up to date. Failure modes: a process, a group or a mount disappears between two
 * reads; then its values are missing.
 *
 * One run is active at a time; requests during a run wait for it and use its result. A background run pauses between its
 * slices, unless a request waits for it.
 */
import { nextTurn } from '../../platform/scheduler.ts'
import { systemClock, type Clock } from '../../platform/clock.ts'
import { messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { Allocation, AllocationTable, Task } from '../allocations/allocation.ts'
import { CgroupLocator } from './cgroup.ts'
import { HostStatsReader, type HostStats, type HostStatsOptions } from './host-stats.ts'
import { kernelUnits } from './proc-file.ts'
import { ProcessTree } from './process-tree.ts'
import { sumOf, type AllocResourceUsage, type ResourceUsage, type TaskResourceUsage } from './resource-usage.ts'
import { TaskMeter, type MeterSources } from './task-stats.ts'

export interface SamplerOptions extends HostStatsOptions {
  readonly allocations: AllocationTable
  /** Interval of the samples in the background; `telemetry.collection_interval`, with its default in `src/config/defaults.ts`. */
  readonly sampleIntervalMs: number
  readonly log?: Logger
}

/** Maximum age of returned statistics. */
const FRESH_MS = 2000
/**
 * Duration of a slice before it yields, without its last step: that takes usually tens of microseconds, about 1 ms with a
 * garbage collection.
 */
const SLICE_MS = 0.5
/** Between slices of a background run: it spreads 25 ms of work over the interval. */
const PAUSE_MS = 20

interface PendingSample {
  readonly meter: TaskMeter
  readonly task: Task
}

export interface SamplerState {
  readonly allocations: number
  readonly meters: number
  /** Recorded in the process tree, and members of tasks. */
  readonly processes: number
  readonly members: number
  /** Since the start or the last reset. */
  readonly longestSliceMs: number
}

export class StatsSampler {
  readonly #allocations: AllocationTable
  readonly #sampleIntervalMs: number
  readonly #clock: Clock
  readonly #log: Logger | undefined
  readonly #host: HostStatsReader
  readonly #sources: MeterSources
  readonly #meters = new Map<string, Map<string, TaskMeter>>()
  #timer: NodeJS.Timeout | undefined
  #hostAtMs = Number.NEGATIVE_INFINITY
  #hostRun: Promise<void> | undefined
  #disksAtMs = Number.NEGATIVE_INFINITY
  #diskRun: Promise<void> | undefined
  #taskRun: Promise<void> | undefined
  #waiters = 0
  #wake: (() => void) | undefined
  #longestSliceMs = 0

  constructor(options: SamplerOptions) {
    this.#allocations = options.allocations
    this.#sampleIntervalMs = options.sampleIntervalMs
    this.#clock = options.clock ?? systemClock
    this.#log = options.log
    this.#host = new HostStatsReader(options)
    const roots = { procRoot: options.procRoot ?? '/proc', sysRoot: options.sysRoot ?? '/sys' }
    this.#sources = {
      procRoot: roots.procRoot,
      units: kernelUnits(roots.procRoot),
      tree: new ProcessTree(roots.procRoot),
      cgroups: new CgroupLocator(roots),
      clock: this.#clock,
      host: this.#host,
    }
  }

  /** Starts sampling in the background. Does not keep the process alive. */
  start(): void {
    this.#timer ??= setInterval(() => this.#tick(), this.#sampleIntervalMs).unref()
    this.#tick()
  }

  /** Stops sampling in the background and closes descriptors; later requests sample on demand. */
  stop(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
    this.#wake?.()
    this.#host.close()
  }

  /** Statistics of the host, at most `FRESH_MS` old. */
  async hostStats(options: { readonly network?: boolean } = {}): Promise<HostStats> {
    const isFresh = this.#isFresh(this.#hostAtMs)
    await Promise.all([isFresh ? undefined : this.#sampleHost(), this.#sampleDisks()])
    return options.network ? this.#host.statsWithNetwork() : this.#host.stats()
  }

  /**
   * Usage of an allocation's tasks, or of the one `taskName`. The usage of running tasks is at most `FRESH_MS` old. Stopped
   * tasks keep their last sample in `Tasks` and are not in the sum.
   */
  async allocationStats(allocation: Allocation, taskName?: string): Promise<AllocResourceUsage> {
    await this.#freshen(allocation, taskName)
    const tasks: Record<string, TaskResourceUsage> = {}
    const running: TaskResourceUsage[] = []
    for (const [name, meter] of this.#meters.get(allocation.id) ?? []) {
      if (!meter.usage || (taskName !== undefined && name !== taskName)) continue
      // An assignment would fail for a task named `__proto__`.
      Object.defineProperty(tasks, name, { value: meter.usage, enumerable: true })
      const task = allocation.tasks.get(name)
      if (meter.live && task && isRunning(allocation, task)) running.push(meter.usage)
    }
    return {
      ResourceUsage: sumOf(running.map((usage) => usage.ResourceUsage)),
      Tasks: tasks,
      Timestamp: running.reduce((newest, usage) => Math.max(newest, usage.Timestamp), 0),
    }
  }

  /** The last sampled statistics of the host, of any age; undefined before the first sample. */
  latestHostStats(): HostStats | undefined {
    return this.#hostAtMs === Number.NEGATIVE_INFINITY ? undefined : this.#host.stats()
  }

  /** The last sample of each running task, of any age. */
  *latestTaskUsages(): Generator<{ allocation: Allocation; task: string; usage: ResourceUsage }> {
    for (const [id, meters] of this.#meters) {
      const allocation = this.#allocations.get(id)
      if (!allocation) continue
      for (const [task, { live, usage }] of meters) {
        if (live && usage) yield { allocation, task, usage: usage.ResourceUsage }
      }
    }
  }

  state(): SamplerState {
    const meters = [...this.#meters.values()].flatMap((tasks) => [...tasks.values()])
    return {
      allocations: this.#meters.size,
      meters: meters.length,
      processes: this.#sources.tree.size,
      members: meters.reduce((sum, meter) => sum + meter.size, 0),
      longestSliceMs: this.#longestSliceMs,
    }
  }

  resetLongestSlice(): void {
    this.#longestSliceMs = 0
  }

  /** MHz of an average core; 0 before the first sample. */
  get coreMhz(): number {
    return this.#host.coreMhz
  }

  #tick(): void {
    const hostIsDue = this.#clock.monotonicMs() - this.#hostAtMs > this.#sampleIntervalMs / 2
    const host = hostIsDue ? this.#sampleHost() : this.#hostRun
    const run = async () => {
      await host
      if (this.#timer) await (this.#taskRun ?? this.#startTaskRun(this.#sampleIntervalMs / 2))
    }
    run().catch((error: unknown) => this.#log?.warn('sampling statistics failed', { cause: messageOf(error) }))
  }

  #sampleHost(): Promise<void> {
    this.#hostRun ??= this.#host.sample().finally(() => {
      this.#hostAtMs = this.#clock.monotonicMs()
      this.#hostRun = undefined
      if (!this.#timer) this.#host.close()
    })
    return this.#hostRun
  }

  /** Only on request: disk usage needs no earlier sample, so it is not sampled in the background. */
  async #sampleDisks(): Promise<void> {
    if (this.#isFresh(this.#disksAtMs)) return
    this.#diskRun ??= this.#host.sampleDisks().finally(() => {
      this.#disksAtMs = this.#clock.monotonicMs()
      this.#diskRun = undefined
    })
    await this.#diskRun
  }

  #isFresh(takenAtMs: number): boolean {
    return this.#clock.monotonicMs() - takenAtMs <= FRESH_MS
  }

  async #freshen(allocation: Allocation, taskName: string | undefined): Promise<void> {
    const isStale = () => {
      const nowMs = this.#clock.monotonicMs()
      for (const task of allocation.tasks.values()) {
        if (!isRunning(allocation, task) || (taskName !== undefined && task.name !== taskName)) continue
        const checkedAtMs = this.#meters.get(allocation.id)?.get(task.name)?.checkedAtMs
        if (checkedAtMs === undefined || nowMs - checkedAtMs > FRESH_MS) return true
      }
      return false
    }
    if (!isStale()) return
    this.#waiters++
    try {
      this.#wake?.()
      await this.#hostRun
      if (this.#host.cores === 0) await this.#sampleHost()
      await this.#taskRun
      if (isStale()) await (this.#taskRun ?? this.#startTaskRun(FRESH_MS))
    } finally {
      this.#waiters--
    }
  }

  #startTaskRun(staleAfterMs: number): Promise<void> {
    this.#taskRun = this.#runTasks(staleAfterMs).finally(() => {
      this.#taskRun = undefined
      if (!this.#timer) this.#host.close()
    })
    return this.#taskRun
  }

  async #runTasks(staleAfterMs: number): Promise<void> {
    const pending: PendingSample[] = []
    await this.#runInSlices(this.#collect(pending, staleAfterMs))
    if (pending.length === 0) return
    const { tree } = this.#sources
    await this.#runInSlices(tree.refresh(await tree.list()))
    await this.#runInSlices(this.#sampleAll(pending))
  }

  /** Adds the running tasks with stale samples to `pending`, and deletes the meters of removed tasks. */
  *#collect(pending: PendingSample[], staleAfterMs: number): Generator<void> {
    const nowMs = this.#clock.monotonicMs()
    let running = 0
    for (const allocation of this.#allocations.all()) {
      for (const task of allocation.tasks.values()) {
        if (!isRunning(allocation, task)) {
          this.#meters.get(allocation.id)?.get(task.name)?.end()
          continue
        }
        running++
        const meter = this.#meterOf(allocation, task)
        if (nowMs - meter.checkedAtMs > staleAfterMs) pending.push({ meter, task })
      }
      yield
    }
    if (running === 0) this.#sources.tree.clear()
    for (const [id, meters] of this.#meters) {
      const allocation = this.#allocations.get(id)
      for (const name of meters.keys()) if (!allocation?.tasks.has(name)) meters.delete(name)
      if (meters.size === 0) this.#meters.delete(id)
      yield
    }
  }

  #meterOf(allocation: Allocation, task: Task): TaskMeter {
    let meters = this.#meters.get(allocation.id)
    if (!meters) this.#meters.set(allocation.id, (meters = new Map()))
    let meter = meters.get(task.name)
    if (!meter) meters.set(task.name, (meter = new TaskMeter()))
    return meter
  }

  *#sampleAll(pending: readonly PendingSample[]): Generator<void> {
    for (const { meter, task } of pending) yield* meter.sample(task, this.#sources)
  }

  /** Runs `steps` to the end and yields after each `SLICE_MS`. */
  async #runInSlices(steps: Generator<void>): Promise<void> {
    for (;;) {
      const beganMs = performance.now()
      let nowMs = beganMs
      let done = false
      while (!done && nowMs - beganMs < SLICE_MS) {
        done = steps.next().done === true
        nowMs = performance.now()
      }
      this.#longestSliceMs = Math.max(this.#longestSliceMs, nowMs - beganMs)
      if (done) return
      await this.#pause()
    }
  }

  async #pause(): Promise<void> {
    if (this.#waiters > 0 || !this.#timer) {
      await nextTurn()
      return
    }
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#wake = resolve
    const timer = setTimeout(resolve, PAUSE_MS).unref()
    await promise
    clearTimeout(timer)
    this.#wake = undefined
  }
}

function isRunning(allocation: Allocation, task: Task): boolean {
  return task.state === 'running' && task.pids.length > 0 && !allocation.collected
}
