/**
 * What the rooms count, under the names that others know: those of the compatible system where it has one (`nomad.`),
 * our own otherwise (`outpost.`). Reads what the rooms know already and measures nothing.
 */
import { type AnyFamily, type Family, type Labels, type Point, single } from '../telemetry/metric.ts'
import type { Allocation } from '../host/allocations/allocation.ts'
import type { DiskStats } from '../host/stats/host-disks.ts'
import type { Host } from '../host/host.ts'
import type { HostStats } from '../host/stats/host-stats.ts'
import type { ResourceUsage } from '../host/stats/resource-usage.ts'
import type { Connections } from '../http/connections.ts'

type Reading<T> = readonly [name: string, help: string, read: (from: T) => number]

function gauges<T>(
  prefix: string,
  readings: readonly Reading<T>[],
  from: readonly { labels: Labels; of: T }[],
): Family[] {
  return readings.map(([name, help, read]) => ({
    name: `${prefix}${name}`,
    kind: 'gauge',
    help,
    points: from.map(({ labels, of }): Point => ({ labels, value: read(of) })),
  }))
}

const MEMORY: readonly Reading<HostStats['Memory']>[] = [
  ['total', 'Memory of the host in bytes.', (memory) => memory.Total],
  ['available', 'Bytes that a new task could use.', (memory) => memory.Available],
  ['used', 'Bytes used, caches left out.', (memory) => memory.Used],
  ['free', 'Bytes that hold nothing at all.', (memory) => memory.Free],
]

const CORE: readonly Reading<HostStats['CPU'][number]>[] = [
  ['user', 'Per cent of a core spent in programs.', (core) => core.User],
  ['system', 'Per cent of a core spent in the kernel.', (core) => core.System],
  ['idle', 'Per cent of a core not used.', (core) => core.Idle],
  ['total_percent', 'Per cent of a core used.', (core) => core.TotalPercent],
  ['total_ticks', 'MHz of a core used.', (core) => core.TotalTicks],
]

const DISK: readonly Reading<DiskStats>[] = [
  ['size', 'Bytes of a file system.', (disk) => disk.Size],
  ['used', 'Bytes of a file system in use.', (disk) => disk.Used],
  ['available', 'Bytes of a file system that programs may still use.', (disk) => disk.Available],
  ['used_percent', 'Per cent of a file system in use.', (disk) => disk.UsedPercent],
  ['inodes_percent', 'Per cent of the inodes of a file system in use.', (disk) => disk.InodesUsedPercent],
]

const USAGE: readonly Reading<ResourceUsage>[] = [
  ['memory.rss', 'Bytes in RAM.', ({ MemoryStats }) => MemoryStats.RSS],
  ['memory.cache', 'Bytes of page cache.', ({ MemoryStats }) => MemoryStats.Cache],
  ['memory.swap', 'Bytes swapped out.', ({ MemoryStats }) => MemoryStats.Swap],
  ['memory.mapped_file', 'Bytes of mapped files.', ({ MemoryStats }) => MemoryStats.MappedFile],
  ['memory.usage', 'Bytes counted against the limit.', ({ MemoryStats }) => MemoryStats.Usage],
  ['memory.max_usage', 'Most bytes so far.', ({ MemoryStats }) => MemoryStats.MaxUsage],
  ['memory.kernel_usage', 'Bytes of the kernel.', ({ MemoryStats }) => MemoryStats.KernelUsage],
  ['memory.kernel_max_usage', 'Most bytes of the kernel so far.', ({ MemoryStats }) => MemoryStats.KernelMaxUsage],
  ['cpu.total_percent', 'Per cent of one core.', ({ CpuStats }) => CpuStats.Percent],
  ['cpu.system', 'Per cent of one core spent in the kernel.', ({ CpuStats }) => CpuStats.SystemMode],
  ['cpu.user', 'Per cent of one core spent in programs.', ({ CpuStats }) => CpuStats.UserMode],
  ['cpu.throttled_time', 'Nanoseconds held back by the limit.', ({ CpuStats }) => CpuStats.ThrottledTime],
  ['cpu.throttled_periods', 'Periods held back by the limit.', ({ CpuStats }) => CpuStats.ThrottledPeriods],
  ['cpu.total_ticks', 'MHz.', ({ CpuStats }) => CpuStats.TotalTicks],
]

function nodeFamilies(stats: HostStats): Family[] {
  const cores = stats.CPU.map((core) => ({ labels: { cpu: core.CPU }, of: core }))
  const disks = (stats.DiskStats ?? []).map((disk) => ({
    labels: { disk: disk.Device, mountpoint: disk.Mountpoint },
    of: disk,
  }))
  const allocDir = [{ labels: {}, of: stats.AllocDirStats }]
  return [
    single('gauge', 'nomad.client.uptime', 'Seconds since the host was started.', stats.Uptime),
    ...gauges('nomad.client.host.memory.', MEMORY, [{ labels: {}, of: stats.Memory }]),
    ...gauges('nomad.client.host.cpu.', CORE, cores),
    single('gauge', 'nomad.client.host.cpu.total_ticks_consumed', 'MHz of all cores used.', stats.CPUTicksConsumed),
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
    ...Object.entries(counts).map(([status, count]) =>
      single('gauge', `nomad.client.allocations.${status}`, `Allocations that are ${status}.`, count),
    ),
    ...Object.entries(tasks).map(([state, count]) =>
      single('gauge', `nomad.client.tasks.${state}`, `Tasks that are ${state}.`, count),
    ),
  ]
}

function followFamilies({ followers }: Host): Family[] {
  const kinds = Object.entries(followers.metrics())
  const family = (name: string, help: string, value: (of: (typeof kinds)[number][1]) => number): Family => ({
    name,
    kind: 'gauge',
    help,
    points: kinds.map(([kind, of]) => ({ labels: { kind }, value: value(of) })),
  })
  return [
    family('outpost.followers', 'Open streams that follow a log or a file.', ({ count }) => count),
    family('outpost.follower_lag_bytes', 'Bytes written but not yet given, all followers.', ({ lagBytes }) => lagBytes),
    family('outpost.follower_lag_max_bytes', 'The same of the one furthest behind.', ({ lagBytesMax }) => lagBytesMax),
    single('gauge', 'outpost.followed_files', 'Files that somebody follows.', followers.files.size),
    {
      name: 'outpost.watched_directories',
      kind: 'gauge',
      help: 'Directories that somebody follows in, by how the agent hears of changes.',
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
    results('outpost.collections', 'Allocation directories that were removed, or could not be.', {
      done: collected,
      failed,
    }),
  ]
}

/** A counter by how it went. */
function results(name: string, help: string, counts: Readonly<Record<string, number>>): Family {
  const points = Object.entries(counts).map(([result, value]) => ({ labels: { result }, value }))
  return { name, kind: 'counter', help, points }
}

function connectionFamilies({ open, exceeded }: Connections): Family[] {
  return [
    single('gauge', 'nomad.nomad.agent.http.connections', 'Open connections.', open),
    single('counter', 'nomad.nomad.agent.http.exceeded', 'Connections turned away: too many of one address.', exceeded),
  ]
}

interface Publish {
  readonly publishNodeMetrics: boolean
  readonly publishAllocationMetrics: boolean
}

/** Everything besides requests and the process itself, as of now. */
export function agentFamilies(from: {
  readonly host: Host | undefined
  readonly publish: Publish
  readonly connections: Connections | undefined
  /** Configurations that were read again and taken over, or refused. */
  readonly reloads: { readonly done: number; readonly refused: number }
}): AnyFamily[] {
  return [
    ...(from.host ? hostFamilies(from.host, from.publish) : []),
    ...(from.connections ? connectionFamilies(from.connections) : []),
    results('outpost.config_reloads', 'Configurations read again that were taken over, or refused.', {
      ...from.reloads,
    }),
  ]
}
