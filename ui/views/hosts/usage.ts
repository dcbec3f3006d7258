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
  /** Sums of the interfaces; undefined if they were not requested or the host does not report them. */
  readonly network: NetworkCounters | undefined
}

/** Bytes since an interface was created. */
export interface NetworkCounters {
  readonly received: number
  readonly sent: number
}

/** Bytes per second between two samples; undefined after a counter was reset, as when a host restarts. */
export function networkRates(
  before: NetworkCounters,
  now: NetworkCounters,
  seconds: number,
): NetworkCounters | undefined {
  if (seconds <= 0 || now.received < before.received || now.sent < before.sent) return undefined
  return { received: (now.received - before.received) / seconds, sent: (now.sent - before.sent) / seconds }
}

function networkOf(interfaces: HostStats['NetworkStats'] = []): NetworkCounters | undefined {
  if (interfaces.length === 0) return undefined
  return {
    received: interfaces.reduce((sum, { ReceivedBytes }) => sum + ReceivedBytes, 0),
    sent: interfaces.reduce((sum, { SentBytes }) => sum + SentBytes, 0),
  }
}

/** File systems of equal size whose use differs by less are the same one. */
const SAME_DISK_PERCENT = 1
const NO_DISK: FileSystemUse = { name: '', percent: 0, used: 0, size: 0 }

function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length
}

export function hostUsage({ AllocDirStats, CPU, DiskStats, Memory, NetworkStats, Uptime }: HostStats): HostUsage {
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
    network: networkOf(NetworkStats),
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
