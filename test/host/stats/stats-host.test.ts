import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { cpus, freemem, tmpdir, totalmem, uptime } from 'node:os'
import { test, type TestContext } from 'node:test'
import { HostStatsReader, parseMemory, type HostStatsOptions } from '../../../src/host/stats/host-stats.ts'
import { coreUsage, parseCoreTimes, readCoreMhz } from '../../../src/host/stats/host-cpu.ts'
import { diskStats, physicalMounts } from '../../../src/host/stats/host-disks.ts'
import { HandClock, SIZES, Tree } from './stats-trees.ts'

const openDescriptors = () => readdirSync('/proc/self/fd').length

/** A reader whose every look is asked for. */
function sampled(host: HostStatsReader) {
  const sample = async () => {
    await host.sample()
    await host.sampleDisks()
    return host.stats()
  }
  return { sample }
}

function reader(context: TestContext, fixture: string, more: Partial<HostStatsOptions> = {}) {
  const tree = new Tree(context, fixture)
  const clock = new HandClock()
  const options = { ...tree.roots, allocDir: '/alloc', clock, statfs: () => Promise.resolve(SIZES), ...more }
  const stats = new HostStatsReader(options)
  context.after(() => stats.close())
  return { tree, clock, stats: sampled(stats) }
}

test('a sample has every field, in the order of the wire', async (context) => {
  const { stats, tree, clock } = reader(context, 'cgroup-v1')
  const sample = await stats.sample()
  assert.deepEqual(Object.keys(sample), [
    'AllocDirStats',
    'CPU',
    'CPUTicksConsumed',
    'DeviceStats',
    'DiskStats',
    'Memory',
    'Timestamp',
    'Uptime',
  ])
  const disk = {
    Available: 300 * 4096,
    InodesUsedPercent: 25,
    Size: 4_096_000,
    Used: 600 * 4096,
    UsedPercent: 66.66666666666666,
  }
  assert.deepEqual(sample.AllocDirStats, { ...disk, Device: '', Mountpoint: '' })
  assert.deepEqual(
    sample.DiskStats?.map((found) => [found.Device, found.Mountpoint, found.Used]),
    [
      ['/dev/root', '/', disk.Used],
      ['/dev/sdb1', '/data one', disk.Used],
      ['tank', '/tank', disk.Used],
    ],
  )
  assert.equal(sample.DeviceStats, null)
  assert.equal(sample.Uptime, 1000)
  assert.equal(sample.Timestamp, clock.nowMs() * 1e6)
  assert.deepEqual(sample.Memory, {
    Available: 5_000_000 * 1024,
    Free: 1_000_000 * 1024,
    Total: 8_000_000 * 1024,
    Used: 3_500_000 * 1024,
  })
  assert.deepEqual(Object.keys(sample.CPU[0] ?? {}), ['CPU', 'Idle', 'System', 'TotalPercent', 'TotalTicks', 'User'])

  tree.write('proc/stat', tree.read('proc/stat').replace('cpu0 600 10 250 4000', 'cpu0 630 20 270 4040'))
  const second = await stats.sample()
  assert.deepEqual(second.CPU, [
    { CPU: 'cpu0', Idle: 40, System: 20, TotalPercent: 60, TotalTicks: 1200, User: 30 },
    { CPU: 'cpu1', Idle: 100, System: 0, TotalPercent: 0, TotalTicks: 0, User: 0 },
  ])
  assert.equal(second.CPUTicksConsumed, 1200)
})

test('the first sample is since boot and counts guest time once', async (context) => {
  const { stats } = reader(context, 'cgroup-v1')
  const [first] = (await stats.sample()).CPU
  const total = 600 + 10 + 250 + 4000 + 50 + 0 + 10 + 15 // and 200 of guest time, which is in the 600
  assert.equal(first?.User, (600 / total) * 100)
  assert.equal(first?.Idle, (4000 / total) * 100)
  assert.equal(first?.TotalPercent, ((total - 4000) / total) * 100)
})

test('decreasing counters never give values below 0 or above 100 percent', async (context) => {
  const { stats, tree } = reader(context, 'counters-backwards')
  await stats.sample()
  tree.write('proc/stat', tree.read('later/stat'))
  const { CPU, CPUTicksConsumed } = await stats.sample()
  assert.deepEqual(CPU, [
    {
      CPU: 'cpu0',
      Idle: 66.66666666666666,
      System: 33.33333333333333,
      TotalPercent: 33.33333333333333,
      TotalTicks: 666.6666666666665,
      User: 0,
    },
    { CPU: 'cpu1', Idle: 100, System: 0, TotalPercent: 0, TotalTicks: 0, User: 0 },
  ])
  assert.ok(CPUTicksConsumed >= 0)
})

test('missing files give zeros and no disks instead of an error', async (context) => {
  const { stats } = reader(context, 'missing-files', { statfs: () => Promise.reject(new Error('no')) })
  const sample = await stats.sample()
  assert.deepEqual(sample.Memory, { Available: 0, Free: 0, Total: 0, Used: 0 })
  assert.equal(sample.DiskStats, null)
  assert.equal(sample.Uptime, 0)
  assert.equal(sample.CPU.length, 2)
  assert.deepEqual(
    sample.AllocDirStats,
    diskStats({ bsize: 0, blocks: 0, bfree: 0, bavail: 0, files: 0, ffree: 0 }, { device: '', mountpoint: '' }),
  )
  assert.equal(sample.AllocDirStats.UsedPercent, 0)
})

test('malformed files give finite values', async (context) => {
  const { stats } = reader(context, 'garbage')
  await stats.sample()
  const sample = await stats.sample()
  const visit = (value: unknown): void => {
    if (typeof value === 'number') assert.ok(Number.isFinite(value) && value >= 0, JSON.stringify(sample))
    else if (typeof value === 'object' && value !== null) for (const inner of Object.values(value)) visit(inner)
  }
  visit(sample)
  assert.deepEqual(
    sample.DiskStats?.map((disk) => disk.Mountpoint),
    ['/ok'],
  )
})

test('a core without elapsed time is idle', () => {
  const [[name, times] = ['', undefined]] = parseCoreTimes('cpu  1\ncpu7 5 0 5 90 0 0 0 0 0 0\n')
  assert.ok(times)
  assert.deepEqual(coreUsage(name, times, times, 1000), {
    CPU: 'cpu7',
    Idle: 100,
    System: 0,
    TotalPercent: 0,
    TotalTicks: 0,
    User: 0,
  })
})

test('without MemAvailable, available memory is free plus cached', () => {
  assert.equal(parseMemory('MemTotal: 100 kB\nMemFree: 10 kB\nCached: 20 kB\n').Available, 30 * 1024)
})

test('the clock rate is the base frequency, else the maximum, else that of cpuinfo, else a default', async (context) => {
  const tree = new Tree(context, 'cgroup-v1')
  assert.equal(await readCoreMhz(tree.roots, 2), 2000)
  tree.write('sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq', '3000000\n')
  tree.write('sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq', '3000000\n')
  assert.equal(await readCoreMhz(tree.roots, 2), 3000)
  tree.write('sys/devices/system/cpu/cpu1/cpufreq/base_frequency', '1000000\n')
  assert.equal(await readCoreMhz(tree.roots, 2), 2000)
  assert.equal(await readCoreMhz(new Tree(context, 'garbage').roots, 2), 1000)
})

test('/dev/root has its device name, and a bind mount counts only if its disk has no other mount', () => {
  const lines = ['22 1 8:1 / / rw - ext4 /dev/root rw', '23 22 8:17 /etc/hosts /etc/hosts rw - ext4 /dev/sdb1 rw']
  assert.deepEqual(
    physicalMounts(lines.join('\n'), undefined, (number) => `/dev/for-${number}`),
    [
      { device: '/dev/for-8:1', mountpoint: '/' },
      { device: '/dev/sdb1', mountpoint: '/etc/hosts' },
    ],
  )
})

test('a hanging mount is omitted, not read again, and never occupies more than two threads', async (context) => {
  const asked: string[] = []
  const statfs = (path: string) => {
    asked.push(path)
    return path === '/alloc' || path === '/' ? Promise.resolve(SIZES) : new Promise<never>(() => {})
  }
  const { stats } = reader(context, 'cgroup-v1', { statfs, statfsTimeoutMs: 10 })
  // The timer of a dead mount does not keep the process alive, and nothing else does here.
  const alive = setInterval(() => {}, 1000)
  context.after(() => clearInterval(alive))
  const first = await stats.sample()
  assert.deepEqual(
    first.DiskStats?.map((disk) => disk.Mountpoint),
    ['/'],
  )
  assert.deepEqual(asked, ['/alloc', '/', '/data one', '/tank'])
  await stats.sample()
  const third = await stats.sample()
  assert.deepEqual(asked.slice(4), ['/alloc', '/alloc'])
  assert.deepEqual(third.DiskStats, first.DiskStats)
  assert.deepEqual(third.AllocDirStats, first.AllocDirStats)
})

test('statistics of the real host agree with those of Node', async () => {
  const stats = new HostStatsReader({ allocDir: tmpdir() })
  await stats.sample()
  await stats.sample()
  await stats.sampleDisks()
  const sample = stats.stats()
  stats.close()
  assert.equal(sample.Memory.Total, totalmem())
  assert.ok(Math.abs(sample.Memory.Available - freemem()) < totalmem() / 5)
  assert.ok(sample.Memory.Used < sample.Memory.Total)
  assert.equal(sample.CPU.length, cpus().length)
  assert.ok(Math.abs(sample.Uptime - uptime()) < 5)
  assert.ok(sample.AllocDirStats.Size > 0 && sample.AllocDirStats.UsedPercent <= 100)
  assert.ok(stats.coreMhz > 100)
})

test('descriptors are reused and closed', async () => {
  const warm = new HostStatsReader({ allocDir: tmpdir() })
  await warm.sample()
  warm.close()
  const before = openDescriptors()
  const stats = new HostStatsReader({ allocDir: tmpdir() })
  for (let round = 0; round < 50; round++) await stats.sample()
  assert.ok(openDescriptors() <= before + 3)
  stats.close()
  assert.equal(openDescriptors(), before)
})
