/**
 * Resource usage of a task or an allocation in the types of the client API. The alphabetical order of the properties is the
 * order on the wire. `Measured` lists the measured values by names that clients depend on.
 */

/** Bytes. */
export interface MemoryStats {
  readonly Cache: number
  readonly KernelMaxUsage: number
  readonly KernelUsage: number
  readonly MappedFile: number
  readonly MaxUsage: number
  readonly Measured: readonly string[] | null
  readonly RSS: number
  readonly Swap: number
  readonly Usage: number
}

export interface CpuStats {
  readonly Measured: readonly string[] | null
  /** Percent of one core, as are the two modes: two busy cores are 200. */
  readonly Percent: number
  readonly SystemMode: number
  readonly ThrottledPeriods: number
  /** Nanoseconds. */
  readonly ThrottledTime: number
  /** MHz. */
  readonly TotalTicks: number
  readonly UserMode: number
}

export interface ResourceUsage {
  readonly CpuStats: CpuStats
  /** Null for a task, empty for a sum: there are no device plugins. */
  readonly DeviceStats: readonly never[] | null
  readonly MemoryStats: MemoryStats
}

export interface TaskResourceUsage {
  /** By PID in decimal; null if the usage is that of a control group. */
  readonly Pids: Readonly<Record<string, ResourceUsage>> | null
  readonly ResourceUsage: ResourceUsage
  /** Nanoseconds since the Unix epoch. */
  readonly Timestamp: number
}

export interface AllocResourceUsage {
  readonly ResourceUsage: ResourceUsage
  readonly Tasks: Readonly<Record<string, TaskResourceUsage>>
  /** Of the newest sample of a running task; 0 without one. */
  readonly Timestamp: number
}

export const MEASURED = {
  processMemory: ['RSS', 'Swap'],
  cgroup1Memory: ['RSS', 'Cache', 'Swap', 'Usage', 'Max Usage', 'Kernel Usage', 'Kernel Max Usage'],
  cgroup2Memory: ['RSS', 'Cache', 'Swap', 'Usage'],
  processCpu: ['System Mode', 'User Mode', 'Percent'],
  cgroupCpu: ['System Mode', 'User Mode', 'Throttled Periods', 'Throttled Time', 'Percent'],
} as const

const NOTHING: ResourceUsage = {
  CpuStats: {
    Measured: null,
    Percent: 0,
    SystemMode: 0,
    ThrottledPeriods: 0,
    ThrottledTime: 0,
    TotalTicks: 0,
    UserMode: 0,
  },
  DeviceStats: [],
  MemoryStats: {
    Cache: 0,
    KernelMaxUsage: 0,
    KernelUsage: 0,
    MappedFile: 0,
    MaxUsage: 0,
    Measured: null,
    RSS: 0,
    Swap: 0,
    Usage: 0,
  },
}

/** Memory of processes, in bytes. */
export function processMemory(rss: number, swap: number): MemoryStats {
  return { ...NOTHING.MemoryStats, Measured: MEASURED.processMemory, RSS: rss, Swap: swap }
}

/** The total of several tasks. */
export function sumOf(usages: Iterable<ResourceUsage>): ResourceUsage {
  let sum = NOTHING
  for (const usage of usages) {
    sum = {
      CpuStats: addCpu(sum.CpuStats, usage.CpuStats),
      DeviceStats: [],
      MemoryStats: addMemory(sum.MemoryStats, usage.MemoryStats),
    }
  }
  return sum
}

function union(a: readonly string[] | null, b: readonly string[] | null): readonly string[] | null {
  return a && b ? [...new Set([...a, ...b])] : (a ?? b)
}

function addCpu(a: CpuStats, b: CpuStats): CpuStats {
  return {
    Measured: union(a.Measured, b.Measured),
    Percent: a.Percent + b.Percent,
    SystemMode: a.SystemMode + b.SystemMode,
    ThrottledPeriods: a.ThrottledPeriods + b.ThrottledPeriods,
    ThrottledTime: a.ThrottledTime + b.ThrottledTime,
    TotalTicks: a.TotalTicks + b.TotalTicks,
    UserMode: a.UserMode + b.UserMode,
  }
}

function addMemory(a: MemoryStats, b: MemoryStats): MemoryStats {
  return {
    Cache: a.Cache + b.Cache,
    KernelMaxUsage: a.KernelMaxUsage + b.KernelMaxUsage,
    KernelUsage: a.KernelUsage + b.KernelUsage,
    MappedFile: a.MappedFile + b.MappedFile,
    MaxUsage: a.MaxUsage + b.MaxUsage,
    Measured: union(a.Measured, b.Measured),
    RSS: a.RSS + b.RSS,
    Swap: a.Swap + b.Swap,
    Usage: a.Usage + b.Usage,
  }
}
