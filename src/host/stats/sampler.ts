/**
 * When statistics are taken: the host and every running task once an interval, in slices.
 *
 * Promises: a figure handed out is at most `FRESH_MS` old, or it is taken for the one who asks; no slice holds the event
 * loop for more than about `SLICE_MS` and one step; what is held is bounded by the tasks and processes that exist. With
 * no running task nothing of /proc is walked. Assumes that `allocations` is kept true by somebody else. What can go
 * wrong: a process, a group or a mount disappears between two reads; then that figure is left out.
 *
 * One run is under way at a time, and whoever comes meanwhile waits for it and uses what it found. A run in the
 * background rests between its slices; as soon as somebody waits for one it goes on without resting.
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
  readonly intervalMs?: number
  readonly log?: Logger
}

const INTERVAL_MS = 1000
/** Older figures are not handed out. */
const FRESH_MS = 2000
/**
 * How long a slice works before it lets others run. The longest step comes on top: usually tens of microseconds, about
 * 1 ms when it meets the collector.
 */
const SLICE_MS = 0.5
/** Between slices in the background: at this rate a run of 25 ms of work is spread over the interval. */
const REST_MS = 20

interface Work {
  readonly meter: TaskMeter
  readonly task: Task
}

/** Counts for tests and metrics. */
export interface SamplerState {
  readonly allocations: number
  readonly meters: number
  /** On record for walking trees, and members of tasks. */
  readonly processes: number
  readonly members: number
  /** Longest slice since the start or the last reset, in milliseconds. */
  readonly longestSliceMs: number
}

export class StatsSampler {
  readonly #allocations: AllocationTable
  readonly #intervalMs: number
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
    this.#intervalMs = options.intervalMs ?? INTERVAL_MS
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

  /** Begins to sample in the background. Never keeps the process alive. */
  start(): void {
    this.#timer ??= setInterval(() => this.#tick(), this.#intervalMs).unref()
    this.#tick()
  }

  /** Ends sampling in the background and lets descriptors go; what is asked for later is taken at once. */
  stop(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
    this.#wake?.()
    this.#host.close()
  }

  /** The host's figures, at most `FRESH_MS` old. */
  async hostStats(): Promise<HostStats> {
    const isFresh = this.#isFresh(this.#hostAtMs)
    await Promise.all([isFresh ? undefined : this.#lookAtHost(), this.#lookAtDisks()])
    return this.#host.stats()
  }

  /**
   * What an allocation's tasks use, each figure of a running task at most `FRESH_MS` old; with `taskName` as if it had
   * no other task. Stopped tasks keep their last sample in `Tasks` and are not in the sum.
   */
  async allocationStats(allocation: Allocation, taskName?: string): Promise<AllocResourceUsage> {
    await this.#freshen(allocation, taskName)
    const tasks: Record<string, TaskResourceUsage> = {}
    const running: TaskResourceUsage[] = []
    for (const [name, meter] of this.#meters.get(allocation.id) ?? []) {
      if (!meter.usage || (taskName !== undefined && name !== taskName)) continue
      // Not by assignment: a task may be called `__proto__`.
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

  /** The host's figures as of the last looks, whenever those were; undefined before the first. Measures nothing. */
  latestHostStats(): HostStats | undefined {
    return this.#hostAtMs === Number.NEGATIVE_INFINITY ? undefined : this.#host.stats()
  }

  /** What each running task used at its last sample. Measures nothing. */
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

  /** Begins a new measurement of the longest slice. */
  resetLongestSlice(): void {
    this.#longestSliceMs = 0
  }

  /** MHz of an average core; 0 before the first sample. */
  get coreMhz(): number {
    return this.#host.coreMhz
  }

  #tick(): void {
    const hostIsDue = this.#clock.monotonicMs() - this.#hostAtMs > this.#intervalMs / 2
    const host = hostIsDue ? this.#lookAtHost() : this.#hostRun
    const work = async () => {
      await host
      if (this.#timer) await (this.#taskRun ?? this.#startTaskRun(this.#intervalMs / 2))
    }
    work().catch((error: unknown) => this.#log?.warn('statistics were not taken', { cause: messageOf(error) }))
  }

  #lookAtHost(): Promise<void> {
    this.#hostRun ??= this.#host.look().finally(() => {
      this.#hostAtMs = this.#clock.monotonicMs()
      this.#hostRun = undefined
      if (!this.#timer) this.#host.close()
    })
    return this.#hostRun
  }

  /** Only for those who ask: nothing of a disk needs two looks, so none are taken in the background. */
  async #lookAtDisks(): Promise<void> {
    if (this.#isFresh(this.#disksAtMs)) return
    this.#diskRun ??= this.#host.lookAtDisks().finally(() => {
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
      if (this.#host.cores === 0) await this.#lookAtHost()
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
    const work: Work[] = []
    await this.#inSlices(this.#collect(work, staleAfterMs))
    if (work.length === 0) return
    const { tree } = this.#sources
    await this.#inSlices(tree.refresh(await tree.list()))
    await this.#inSlices(this.#sampleAll(work))
  }

  /** Fills `work` with the running tasks whose figures are older than that, and lets go of what is no longer there. */
  *#collect(work: Work[], staleAfterMs: number): Generator<void> {
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
        if (nowMs - meter.checkedAtMs > staleAfterMs) work.push({ meter, task })
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

  *#sampleAll(work: readonly Work[]): Generator<void> {
    for (const { meter, task } of work) yield* meter.sample(task, this.#sources)
  }

  /** Drives `steps` to its end, giving way after each `SLICE_MS`. */
  async #inSlices(steps: Generator<void>): Promise<void> {
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
      await this.#rest()
    }
  }

  async #rest(): Promise<void> {
    if (this.#waiters > 0 || !this.#timer) {
      await nextTurn()
      return
    }
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#wake = resolve
    const timer = setTimeout(resolve, REST_MS).unref()
    await promise
    clearTimeout(timer)
    this.#wake = undefined
  }
}

function isRunning(allocation: Allocation, task: Task): boolean {
  return task.state === 'running' && task.pids.length > 0 && !allocation.collected
}
