/**
 * Resource usage of one task. Memory and CPU time are read from its control group if that contains only this task, else from
 * its processes.
 */
import type { Clock } from '../../platform/clock.ts'
import type { Task } from '../allocations/allocation.ts'
import { readCgroupCpu, readCgroupMemory, type CgroupCpu, type CgroupLocator, type ProcessCgroups } from './cgroup.ts'
import type { CgroupFolder, CgroupMemory } from './cgroup.ts'
import { keyedNumbers, readProcFile, type KernelUnits } from './proc-file.ts'
import type { ProcessTree } from './process-tree.ts'
import { MEASURED, processMemory, type CpuStats, type MemoryStats } from './resource-usage.ts'
import type { ResourceUsage, TaskResourceUsage } from './resource-usage.ts'
import { TaskProcesses, type TaskProcessSample, type CpuTime } from './task-processes.ts'

/** Shared by the meters of all tasks. */
export interface MeterSources {
  readonly procRoot: string
  readonly units: KernelUnits
  readonly tree: ProcessTree
  readonly cgroups: CgroupLocator
  readonly clock: Clock
  readonly host: {
    /** MHz. */
    readonly coreMhz: number
    readonly cores: number
    readonly swapInUse: boolean
    uptimeSeconds(): number
  }
}

/** Time of a sample and source of its CPU time: counters of different sources are not comparable. */
interface SamplePoint {
  readonly atMs: number
  readonly uptimeSeconds: number
  readonly source: string
  readonly group: CgroupCpu | undefined
}

/**
 * A process may be moved to another group, mostly right after its start. Its groups are looked up again after this number
 * of samples, which doubles, up to the maximum, after each lookup without an exclusive group.
 */
const LOOKUP_EVERY_SAMPLES = 4
const LOOKUP_EVERY_SAMPLES_MAX = 64

export class TaskMeter {
  /** The last sample; kept after the end of the task. */
  usage: TaskResourceUsage | undefined
  /** The task had processes at the last sample. */
  live = false
  /** Monotonic time of the last sample, also of one without processes. */
  checkedAtMs = Number.NEGATIVE_INFINITY
  readonly #processes = new TaskProcesses()
  #previous: SamplePoint | undefined
  #cgroups: ProcessCgroups = {}
  #samplesToLookup = 0
  #lookupEverySamples = LOOKUP_EVERY_SAMPLES

  /** Number of member processes. */
  get size(): number {
    return this.#processes.size
  }

  /** Called at the end of the task: keeps only its last sample. */
  end(): void {
    this.live = false
    this.#processes.clear()
    this.#restart()
  }

  #restart(): void {
    this.#previous = undefined
    this.#cgroups = {}
    this.#samplesToLookup = 0
    this.#lookupEverySamples = LOOKUP_EVERY_SAMPLES
  }

  /** Takes a sample with one short step per `next()`. The tree must be refreshed just before. */
  *sample(task: Task, from: MeterSources): Generator<void> {
    this.checkedAtMs = from.clock.monotonicMs()
    if (this.#processes.find(task, from.tree)) this.#restart()
    if (this.#processes.size === 0) {
      this.end()
      return
    }
    yield
    const cgroups = this.#exclusiveCgroups(from)
    yield
    const groupMemory = cgroups.memory && readCgroupMemory(cgroups.memory)
    const groupCpu = cgroups.cpu && readCgroupCpu(cgroups.cpu, cgroups.throttling, from.units.ticksPerSecond)
    const source = (groupCpu && cgroups.cpu?.path) ?? 'processes'
    if (groupMemory && groupCpu) {
      const point = this.#point(from, source, groupCpu)
      this.#publish(from, cgroupMemoryStats(groupMemory), this.#groupCpuStats(from, point, groupCpu), null, point)
      this.#processes.dropCounters()
      return
    }
    const sample = yield* this.#processes.read(from.tree)
    if (sample.stats.size === 0) {
      this.end()
      return
    }
    const point = this.#point(from, source, groupCpu)
    // Minus one tick, because start times are rounded down.
    const sinceTicks = this.#previous ? this.#previous.uptimeSeconds * from.units.ticksPerSecond - 1 : 0
    const { all, byPid } = this.#processes.spent(sample, sinceTicks, from.units)
    const pids = yield* this.#pidUsages(from, point, sample, byPid)
    const memory = groupMemory ? cgroupMemoryStats(groupMemory) : sumOfProcesses(pids)
    const cpu = groupCpu ? this.#groupCpuStats(from, point, groupCpu) : this.#processCpuStats(from, point, all)
    this.#publish(from, memory, cpu, pids, point)
    this.#processes.keep(sample)
  }

  *#pidUsages(
    from: MeterSources,
    point: SamplePoint,
    sample: TaskProcessSample,
    byPid: ReadonlyMap<number, CpuTime>,
  ): Generator<void, Record<string, ResourceUsage>> {
    const elapsedMs = this.#elapsedMs(from, point)
    const pids: Record<string, ResourceUsage> = {}
    for (const stat of sample.stats.values()) {
      const swap = from.host.swapInUse ? swapOf(stat.pid, from.procRoot) : 0
      pids[stat.pid] = {
        CpuStats: cpuStats(from, byPid.get(stat.pid), elapsedMs, MEASURED.processCpu),
        DeviceStats: null,
        MemoryStats: processMemory(stat.rssPages * from.units.pageBytes, swap),
      }
      if (from.host.swapInUse) yield
    }
    return pids
  }

  #publish(
    from: MeterSources,
    memory: MemoryStats,
    cpu: CpuStats,
    pids: Record<string, ResourceUsage> | null,
    point: SamplePoint,
  ): void {
    this.live = true
    this.#previous = point
    this.usage = {
      Pids: pids,
      ResourceUsage: { CpuStats: cpu, DeviceStats: null, MemoryStats: memory },
      Timestamp: from.clock.nowMs() * 1e6,
    }
  }

  /** The control groups that contain only this task. */
  #exclusiveCgroups(from: MeterSources): ProcessCgroups {
    const lookupDue = this.#samplesToLookup <= 0
    if (lookupDue) {
      const pid = this.#processes.anyPid()
      this.#cgroups = pid === undefined ? {} : from.cgroups.cgroupsOf(pid)
    }
    const verdicts = new Map<string, boolean>()
    const owned = (folder: CgroupFolder | undefined) => {
      if (!folder) return false
      const verdict = verdicts.get(folder.path) ?? this.#processes.owns(folder.path, from.tree)
      verdicts.set(folder.path, verdict)
      return verdict
    }
    const { memory, cpu, throttling } = this.#cgroups
    // Other groups are not checked again before the next lookup.
    this.#cgroups = {
      ...(memory && owned(memory) ? { memory } : {}),
      ...(cpu && owned(cpu) ? { cpu } : {}),
      ...(throttling && owned(throttling) ? { throttling } : {}),
    }
    const found = this.#cgroups.memory !== undefined || this.#cgroups.cpu !== undefined
    if (lookupDue) {
      this.#lookupEverySamples = found
        ? LOOKUP_EVERY_SAMPLES
        : Math.min(LOOKUP_EVERY_SAMPLES_MAX, this.#lookupEverySamples * 2)
      this.#samplesToLookup = this.#lookupEverySamples
    }
    this.#samplesToLookup--
    return this.#cgroups
  }

  #groupCpuStats(from: MeterSources, point: SamplePoint, now: CgroupCpu): CpuStats {
    const before = this.#previous?.group
    const delta = (field: 'totalNs' | 'userNs' | 'systemNs') => Math.max(0, now[field] - (before?.[field] ?? 0)) / 1e6
    const spent = { totalMs: delta('totalNs'), userMs: delta('userNs'), systemMs: delta('systemNs') }
    const fresh = cpuStats(from, spent, this.#elapsedMs(from, point), MEASURED.cgroupCpu)
    const throttled = { ThrottledPeriods: now.throttledPeriods, ThrottledTime: now.throttledNs }
    return { ...fresh, ...this.#carried(point), ...throttled }
  }

  #processCpuStats(from: MeterSources, point: SamplePoint, spent: CpuTime): CpuStats {
    return { ...cpuStats(from, spent, this.#elapsedMs(from, point), MEASURED.processCpu), ...this.#carried(point) }
  }

  /** After a change of the source there is no difference of counters: the last values are repeated once. */
  #carried(point: SamplePoint): Partial<CpuStats> {
    const last = this.usage?.ResourceUsage.CpuStats
    if (!last || !this.#previous || this.#previous.source === point.source) return {}
    const { Percent, SystemMode, TotalTicks, UserMode } = last
    return { Percent, SystemMode, TotalTicks, UserMode }
  }

  /** Since the last sample; for the first, since the start of the task. */
  #elapsedMs(from: MeterSources, point: SamplePoint): number {
    if (this.#previous) return point.atMs - this.#previous.atMs
    return (point.uptimeSeconds - this.#processes.oldestStartTicks() / from.units.ticksPerSecond) * 1000
  }

  #point(from: MeterSources, source: string, group: CgroupCpu | undefined): SamplePoint {
    return { atMs: from.clock.monotonicMs(), uptimeSeconds: from.host.uptimeSeconds(), source, group }
  }
}

/** CPU time in percent of one core, limited to the host's cores: counters in steps of 10 ms could exceed them. */
function cpuStats(
  from: MeterSources,
  spent: CpuTime | undefined,
  elapsedMs: number,
  measured: readonly string[],
): CpuStats {
  const most = Math.max(1, from.host.cores) * 100
  const percent = (ms: number | undefined) => (elapsedMs > 0 ? Math.min(most, ((ms ?? 0) / elapsedMs) * 100) : 0)
  const total = percent(spent?.totalMs)
  return {
    Measured: measured,
    Percent: total,
    SystemMode: percent(spent?.systemMs),
    ThrottledPeriods: 0,
    ThrottledTime: 0,
    TotalTicks: (total / 100) * from.host.coreMhz,
    UserMode: percent(spent?.userMs),
  }
}

function swapOf(pid: number, procRoot: string): number {
  return (keyedNumbers(readProcFile(`${procRoot}/${pid}/status`) ?? '').get('VmSwap') ?? 0) * 1024
}

function sumOfProcesses(pids: Readonly<Record<string, ResourceUsage>>): MemoryStats {
  let [rss, swap] = [0, 0]
  for (const { MemoryStats: memory } of Object.values(pids)) {
    rss += memory.RSS
    swap += memory.Swap
  }
  return processMemory(rss, swap)
}

function cgroupMemoryStats(memory: CgroupMemory): MemoryStats {
  return {
    Cache: memory.cache,
    KernelMaxUsage: memory.kernelMaxUsage,
    KernelUsage: memory.kernelUsage,
    MappedFile: memory.mappedFile,
    MaxUsage: memory.maxUsage,
    Measured: memory.version === 2 ? MEASURED.cgroup2Memory : MEASURED.cgroup1Memory,
    RSS: memory.rss,
    Swap: memory.swap,
    Usage: memory.usage,
  }
}
