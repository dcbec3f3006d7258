/** CPU, memory and disk use of a host or a task, from its statistics. */
import type { HostAllocStats, HostStats } from '../../api/types.ts'

export interface FileSystemUse {
  readonly name: string
  readonly percent: number
  readonly used: number
  readonly size: number
}

export interface HostUsage {
  readonly cpuPercent: number
  readonly systemPercent: number
  readonly memoryPercent: number
  readonly memoryUsed: number
  readonly memoryTotal: number
  /** The fullest file system. */
  readonly fullest: FileSystemUse
  readonly fileSystems: readonly FileSystemUse[]
  readonly uptimeSeconds: number
}

/** File systems of equal size whose use differs by less are the same one. */
const SAME_DISK_PERCENT = 1
const NO_DISK: FileSystemUse = { name: '', percent: 0, used: 0, size: 0 }

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length
}

export function hostUsage({ AllocDirStats, CPU, DiskStats, Memory, Uptime }: HostStats): HostUsage {
  const disks = (DiskStats ?? []).map((disk) => ({
    name: disk.Mountpoint,
    percent: disk.UsedPercent,
    used: disk.Used,
    size: disk.Size,
  }))
  // The two are measured one after the other, so their use may differ.
  const isListed = disks.some(
    ({ percent, size }) =>
      size === AllocDirStats.Size && Math.abs(percent - AllocDirStats.UsedPercent) < SAME_DISK_PERCENT,
  )
  const fileSystems = isListed
    ? disks
    : [
        ...disks,
        { name: 'allocations', percent: AllocDirStats.UsedPercent, used: AllocDirStats.Used, size: AllocDirStats.Size },
      ]
  return {
    cpuPercent: mean(CPU.map(({ TotalPercent }) => TotalPercent)),
    systemPercent: mean(CPU.map(({ System }) => System)),
    memoryPercent: Memory.Total === 0 ? 0 : (100 * (Memory.Total - Memory.Available)) / Memory.Total,
    memoryUsed: Memory.Total - Memory.Available,
    memoryTotal: Memory.Total,
    fullest: fileSystems.reduce((most, each) => (each.percent > most.percent ? each : most), NO_DISK),
    fileSystems,
    uptimeSeconds: Uptime,
  }
}

export interface TaskUsage {
  readonly cpuPercent: number
  readonly memoryBytes: number
}

/** By name of the task. A control group has `Usage`; otherwise the sum of the processes' resident memory is known. */
export function taskUsages({ Tasks }: HostAllocStats): ReadonlyMap<string, TaskUsage> {
  return new Map(
    Object.entries(Tasks).map(([name, { ResourceUsage }]) => {
      const { CpuStats, MemoryStats } = ResourceUsage
      const memoryBytes = MemoryStats.Usage > 0 ? MemoryStats.Usage : MemoryStats.RSS
      return [name, { cpuPercent: CpuStats.Percent, memoryBytes }]
    }),
  )
}
