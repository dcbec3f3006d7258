/**
 * What one task uses: memory and CPU time each from the task's control group when that holds this task and nothing
 * else, and otherwise from its processes.
 */
import type { Clock } from '../../platform/clock.ts'
import type { Task } from '../allocations/allocation.ts'
import { readCgroupCpu, readCgroupMemory, type CgroupCpu, type CgroupLocator, type CgroupPlace } from './cgroup.ts'
import type { CgroupFolder, CgroupMemory } from './cgroup.ts'
import { keyedNumbers, readProcFile, type KernelUnits } from './proc-file.ts'
import type { ProcessTree } from './process-tree.ts'
import { MEASURED, processMemory, type CpuStats, type MemoryStats } from './resource-usage.ts'
import type { ResourceUsage, TaskResourceUsage } from './resource-usage.ts'
import { TaskFamily, type Reading, type Spent } from './task-family.ts'

/** What the meters of all tasks share. */
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

/** When a sample was taken, and where its CPU time was read: another place has other counters. */
interface Moment {
  readonly atMs: number
  readonly uptimeSeconds: number
  readonly source: string
  readonly group: CgroupCpu | undefined
}

/**
 * A process may be moved to another group after it was started, mostly right then. Where it is is looked up again after
 * so many samples; twice as many after each look that found no group of its own, up to the larger number.
 */
const PLACE_EVERY_SAMPLES = 4
const PLACE_EVERY_SAMPLES_MAX = 64

export class TaskMeter {
  /** The last sample; stays when the task stops. */
  usage: TaskResourceUsage | undefined
  /** The task had processes at the last look. */
  live = false
  /** Monotonic time of the last look, whether it found anything or not. */
  checkedAtMs = Number.NEGATIVE_INFINITY
  readonly #family = new TaskFamily()
  #previous: Moment | undefined
  #place: CgroupPlace = {}
  #samplesToPlace = 0
  #placeEvery = PLACE_EVERY_SAMPLES

  /** Processes whose counters are held. */
  get size(): number {
    return this.#family.size
  }

  /** The task has stopped: everything but its last sample is let go. */
  end(): void {
    this.live = false
    this.#family.clear()
    this.#restart()
  }

  #restart(): void {
    this.#previous = undefined
    this.#place = {}
    this.#samplesToPlace = 0
    this.#placeEvery = PLACE_EVERY_SAMPLES
  }

  /** Takes a sample, one short step for each `next()`. The tree has been refreshed just before. */
  *sample(task: Task, from: MeterSources): Generator<void> {
    this.checkedAtMs = from.clock.monotonicMs()
    if (this.#family.find(task, from.tree)) this.#restart()
    yield
    if (this.#family.size === 0) {
      this.end()
      return
    }
    const place = this.#ownPlace(from)
    yield
    const groupMemory = place.memory && readCgroupMemory(place.memory)
    const groupCpu = place.cpu && readCgroupCpu(place.cpu, place.throttling, from.units.ticksPerSecond)
    const source = (groupCpu && place.cpu?.path) ?? 'processes'
    if (groupMemory && groupCpu) {
      const moment = this.#moment(from, source, groupCpu)
      this.#publish(from, cgroupMemoryStats(groupMemory), this.#groupCpuStats(from, moment, groupCpu), null, moment)
      this.#family.dropCounters()
      return
    }
    const reading = yield* this.#family.read(from.tree)
    if (reading.stats.size === 0) {
      this.end()
      return
    }
    const moment = this.#moment(from, source, groupCpu)
    // One tick earlier: a start time is rounded down.
    const sinceTicks = this.#previous ? this.#previous.uptimeSeconds * from.units.ticksPerSecond - 1 : 0
    const { all, byPid } = this.#family.spent(reading, sinceTicks, from.units)
    const pids = yield* this.#pidUsages(from, moment, reading, byPid)
    const memory = groupMemory ? cgroupMemoryStats(groupMemory) : sumOfProcesses(pids)
    const cpu = groupCpu ? this.#groupCpuStats(from, moment, groupCpu) : this.#processCpuStats(from, moment, all)
    this.#publish(from, memory, cpu, pids, moment)
    this.#family.keep(reading)
  }

  *#pidUsages(
    from: MeterSources,
    moment: Moment,
    reading: Reading,
    byPid: ReadonlyMap<number, Spent>,
  ): Generator<void, Record<string, ResourceUsage>> {
    const elapsedMs = this.#elapsedMs(from, moment)
    const pids: Record<string, ResourceUsage> = {}
    for (const stat of reading.stats.values()) {
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
    moment: Moment,
  ): void {
    this.live = true
    this.#previous = moment
    this.usage = {
      Pids: pids,
      ResourceUsage: { CpuStats: cpu, DeviceStats: null, MemoryStats: memory },
      Timestamp: from.clock.nowMs() * 1e6,
    }
  }

  /** The control groups that hold this task and nothing else, as of now. */
  #ownPlace(from: MeterSources): CgroupPlace {
    const looking = this.#samplesToPlace <= 0
    if (looking) {
      const pid = this.#family.anyPid()
      this.#place = pid === undefined ? {} : from.cgroups.place(pid)
    }
    const verdicts = new Map<string, boolean>()
    const owned = (folder: CgroupFolder | undefined) => {
      if (!folder) return false
      const verdict = verdicts.get(folder.path) ?? this.#family.owns(folder.path, from.tree)
      verdicts.set(folder.path, verdict)
      return verdict
    }
    const { memory, cpu, throttling } = this.#place
    // What is not ours is not asked again before the next look at where the task is.
    this.#place = {
      ...(memory && owned(memory) ? { memory } : {}),
      ...(cpu && owned(cpu) ? { cpu } : {}),
      ...(throttling && owned(throttling) ? { throttling } : {}),
    }
    const found = this.#place.memory !== undefined || this.#place.cpu !== undefined
    if (looking) {
      this.#placeEvery = found ? PLACE_EVERY_SAMPLES : Math.min(PLACE_EVERY_SAMPLES_MAX, this.#placeEvery * 2)
      this.#samplesToPlace = this.#placeEvery
    }
    this.#samplesToPlace--
    return this.#place
  }

  #groupCpuStats(from: MeterSources, moment: Moment, now: CgroupCpu): CpuStats {
    const before = this.#previous?.group
    const moved = (field: 'totalNs' | 'userNs' | 'systemNs') => Math.max(0, now[field] - (before?.[field] ?? 0)) / 1e6
    const spent = { totalMs: moved('totalNs'), userMs: moved('userNs'), systemMs: moved('systemNs') }
    const fresh = cpuStats(from, spent, this.#elapsedMs(from, moment), MEASURED.cgroupCpu)
    const throttled = { ThrottledPeriods: now.throttledPeriods, ThrottledTime: now.throttledNs }
    return { ...fresh, ...this.#carried(moment), ...throttled }
  }

  #processCpuStats(from: MeterSources, moment: Moment, spent: Spent): CpuStats {
    return { ...cpuStats(from, spent, this.#elapsedMs(from, moment), MEASURED.processCpu), ...this.#carried(moment) }
  }

  /** After a change of counters there is no difference to take: the last figures stand for one more sample. */
  #carried(moment: Moment): Partial<CpuStats> {
    const last = this.usage?.ResourceUsage.CpuStats
    if (!last || !this.#previous || this.#previous.source === moment.source) return {}
    const { Percent, SystemMode, TotalTicks, UserMode } = last
    return { Percent, SystemMode, TotalTicks, UserMode }
  }

  /** Since the last sample; before there was one, since the task was started. */
  #elapsedMs(from: MeterSources, moment: Moment): number {
    if (this.#previous) return moment.atMs - this.#previous.atMs
    return (moment.uptimeSeconds - this.#family.oldestStartTicks() / from.units.ticksPerSecond) * 1000
  }

  #moment(from: MeterSources, source: string, group: CgroupCpu | undefined): Moment {
    return { atMs: from.clock.monotonicMs(), uptimeSeconds: from.host.uptimeSeconds(), source, group }
  }
}

/** CPU time as percent of one core; never more than the host has, which counters in steps of 10 ms could make it. */
function cpuStats(
  from: MeterSources,
  spent: Spent | undefined,
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

/** Bytes of a process that are swapped out. */
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
