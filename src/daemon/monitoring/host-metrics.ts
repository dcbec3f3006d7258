/**
 * Metrics of host, HTTP listener and configuration: with Nomad's names where Nomad has them (`nomad.`), else `outpost.`. Reads known
 * values and measures nothing.
 */
import { type AnyFamily, type Family, type Labels, type Point, single } from '../../telemetry/metric.ts'
import type { MetricName } from '../../telemetry/metric-docs.ts'
import type { Allocation } from '../../host/allocations/allocation.ts'
import type { DiskStats } from '../../host/stats/host-disks.ts'
import type { Host } from '../../host/host.ts'
import type { HostStats } from '../../host/stats/host-stats.ts'
import type { ResourceUsage } from '../../host/stats/resource-usage.ts'
import type { Connections } from '../../http/connections.ts'

type MetricReader<T, Name extends string = string> = readonly [name: Name, help: string, read: (from: T) => number]

function gauges<T, Prefix extends string, Name extends string>(
  prefix: Prefix,
  readings: readonly MetricReader<T, Name>[],
  from: readonly { labels: Labels; of: T }[],
): Family<`${Prefix}${Name}`>[] {
  return readings.map(([name, help, read]) => ({
    name: `${prefix}${name}` as const,
    kind: 'gauge',
    help,
    points: from.map(({ labels, of }): Point => ({ labels, value: read(of) })),
  }))
}

const MEMORY = [
  ['total', 'Memory of the host in bytes.', (memory) => memory.Total],
  ['available', 'Available memory in bytes.', (memory) => memory.Available],
  ['used', 'Used memory in bytes, without caches.', (memory) => memory.Used],
  ['free', 'Free memory in bytes.', (memory) => memory.Free],
] as const satisfies readonly MetricReader<HostStats['Memory']>[]

const CORE = [
  ['user', 'User time of a core in percent.', (core) => core.User],
  ['system', 'System time of a core in percent.', (core) => core.System],
  ['idle', 'Idle time of a core in percent.', (core) => core.Idle],
  ['total_percent', 'Usage of a core in percent.', (core) => core.TotalPercent],
  ['total_ticks', 'MHz of a core used.', (core) => core.TotalTicks],
] as const satisfies readonly MetricReader<HostStats['CPU'][number]>[]

const DISK = [
  ['size', 'Size of a file system in bytes.', (disk) => disk.Size],
  ['used', 'Used bytes of a file system.', (disk) => disk.Used],
  ['available', 'Available bytes of a file system.', (disk) => disk.Available],
  ['used_percent', 'Usage of a file system in percent.', (disk) => disk.UsedPercent],
  ['inodes_percent', 'Usage of inodes in percent.', (disk) => disk.InodesUsedPercent],
] as const satisfies readonly MetricReader<DiskStats>[]

const USAGE = [
  ['memory.rss', 'Resident memory in bytes.', ({ MemoryStats }) => MemoryStats.RSS],
  ['memory.cache', 'Page cache in bytes.', ({ MemoryStats }) => MemoryStats.Cache],
  ['memory.swap', 'Swap in bytes.', ({ MemoryStats }) => MemoryStats.Swap],
  ['memory.mapped_file', 'Mapped files in bytes.', ({ MemoryStats }) => MemoryStats.MappedFile],
  ['memory.usage', 'Memory charged to the limit in bytes.', ({ MemoryStats }) => MemoryStats.Usage],
  ['memory.max_usage', 'Maximum memory usage in bytes.', ({ MemoryStats }) => MemoryStats.MaxUsage],
  ['memory.kernel_usage', 'Kernel memory in bytes.', ({ MemoryStats }) => MemoryStats.KernelUsage],
  ['memory.kernel_max_usage', 'Maximum kernel memory in bytes.', ({ MemoryStats }) => MemoryStats.KernelMaxUsage],
  ['cpu.total_percent', 'CPU usage in percent of one core.', ({ CpuStats }) => CpuStats.Percent],
  ['cpu.system', 'System CPU time in percent of one core.', ({ CpuStats }) => CpuStats.SystemMode],
  ['cpu.user', 'User CPU time in percent of one core.', ({ CpuStats }) => CpuStats.UserMode],
  ['cpu.throttled_time', 'Throttled time in nanoseconds.', ({ CpuStats }) => CpuStats.ThrottledTime],
  ['cpu.throttled_periods', 'Throttled periods.', ({ CpuStats }) => CpuStats.ThrottledPeriods],
  ['cpu.total_ticks', 'CPU usage in MHz.', ({ CpuStats }) => CpuStats.TotalTicks],
] as const satisfies readonly MetricReader<ResourceUsage>[]

function nodeFamilies(stats: HostStats): Family[] {
  const cores = stats.CPU.map((core) => ({ labels: { cpu: core.CPU }, of: core }))
  const disks = (stats.DiskStats ?? []).map((disk) => ({
    labels: { disk: disk.Device, mountpoint: disk.Mountpoint },
    of: disk,
  }))
  const allocDir = [{ labels: {}, of: stats.AllocDirStats }]
  return [
    single('gauge', 'nomad.client.uptime', 'Uptime of the host in seconds.', stats.Uptime),
    ...gauges('nomad.client.host.memory.', MEMORY, [{ labels: {}, of: stats.Memory }]),
    ...gauges('nomad.client.host.cpu.', CORE, cores),
    single(
      'gauge',
      'nomad.client.host.cpu.total_ticks_consumed',
      'CPU usage of all cores in MHz.',
      stats.CPUTicksConsumed,
    ),
    ...gauges('nomad.client.host.disk.', DISK, disks),
    ...gauges('outpost.alloc_dir.', DISK, allocDir),
  ]
}

function usageFamilies(host: Host): Family[] {
  const running = [...host.sampler.latestTaskUsages()].map(({ allocation, task, usage }) => ({
    labels: {
      alloc_id: allocation.id,
      job: allocation.jobId,
      namespace: allocation.namespace,
      task,
      task_group: allocation.taskGroup,
    },
    of: usage,
  }))
  return gauges('nomad.client.allocs.', USAGE, running)
}

const ALLOCATION_STATES = ['pending', 'running', 'terminal'] as const
const TASK_STATES = ['pending', 'running', 'dead'] as const

function allocationFamilies(allocations: Iterable<Allocation>): Family[] {
  const counts = { pending: 0, running: 0, terminal: 0 }
  const tasks = { pending: 0, running: 0, dead: 0 }
  for (const allocation of allocations) {
    if (allocation.collected) continue
    const { clientStatus } = allocation
    counts[clientStatus === 'pending' || clientStatus === 'running' ? clientStatus : 'terminal']++
    for (const task of allocation.tasks.values()) tasks[task.state]++
  }
  return [
    ...ALLOCATION_STATES.map((state) =>
      single('gauge', `nomad.client.allocations.${state}`, `Allocations that are ${state}.`, counts[state]),
    ),
    ...TASK_STATES.map((state) =>
      single('gauge', `nomad.client.tasks.${state}`, `Tasks that are ${state}.`, tasks[state]),
    ),
  ]
}

function followFamilies({ followers }: Host): Family[] {
  const kinds = Object.entries(followers.metrics())
  const family = (name: MetricName, help: string, value: (of: (typeof kinds)[number][1]) => number): Family => ({
    name,
    kind: 'gauge',
    help,
    points: kinds.map(([kind, of]) => ({ labels: { kind }, value: value(of) })),
  })
  return [
    family('outpost.followers', 'Open follow streams.', ({ count }) => count),
    family('outpost.follower_lag_bytes', 'Bytes written but not yet sent, all followers.', ({ lagBytes }) => lagBytes),
    family(
      'outpost.follower_lag_max_bytes',
      'Bytes written but not yet sent, slowest follower.',
      ({ lagBytesMax }) => lagBytesMax,
    ),
    single('gauge', 'outpost.followed_files', 'Files with followers.', followers.files.size),
    {
      name: 'outpost.watched_directories',
      kind: 'gauge',
      help: 'Watched directories, by notification mode.',
      points: Object.entries(followers.watches.modes()).map(([mode, value]) => ({ labels: { mode }, value })),
    },
  ]
}

function hostFamilies(host: Host, publish: Publish): AnyFamily[] {
  const stats = publish.publishNodeMetrics ? host.sampler.latestHostStats() : undefined
  const { collected, failed } = host.collector.counts
  return [
    ...allocationFamilies(host.allocations.all()),
    ...(stats ? nodeFamilies(stats) : []),
    ...(publish.publishAllocationMetrics ? usageFamilies(host) : []),
    ...followFamilies(host),
    results('outpost.collections', 'Removals of allocation directories, by result.', {
      done: collected,
      failed,
    }),
  ]
}

/** A counter by result. */
function results(name: MetricName, help: string, counts: Readonly<Record<string, number>>): Family {
  const points = Object.entries(counts).map(([result, value]) => ({ labels: { result }, value }))
  return { name, kind: 'counter', help, points }
}

function connectionFamilies({ open, exceeded }: Connections): Family[] {
  return [
    single('gauge', 'nomad.nomad.agent.http.connections', 'Open connections.', open),
    single('counter', 'nomad.nomad.agent.http.exceeded', 'Connections refused by the limit for one address.', exceeded),
  ]
}

interface Publish {
  readonly publishNodeMetrics: boolean
  readonly publishAllocationMetrics: boolean
}

/** Current metrics, without those of requests and of the process. */
export function agentFamilies(from: {
  readonly host: Host | undefined
  readonly publish: Publish
  readonly connections: Connections | undefined
  /** Reloads that were applied, or refused. */
  readonly reloads: { readonly done: number; readonly refused: number }
}): AnyFamily[] {
  return [
    ...(from.host ? hostFamilies(from.host, from.publish) : []),
    ...(from.connections ? connectionFamilies(from.connections) : []),
    results('outpost.config_reloads', 'Configuration reloads, by result.', {
      ...from.reloads,
    }),
  ]
}
