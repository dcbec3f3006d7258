import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { Allocation, Task } from '../../../src/host/allocations/allocation.ts'
import { kernelUnits } from '../../../src/host/stats/proc-file.ts'
import { parseProcessStat, ProcessTree } from '../../../src/host/stats/process-tree.ts'
import { StatsSampler } from '../../../src/host/stats/sampler.ts'
import { anAllocation, aTask, FakeTable, HandClock, samplerOptions, statLine, Tree } from './stats-trees.ts'

function metered(context: TestContext, fixture: string, ...tasks: Task[]) {
  const tree = new Tree(context, fixture)
  const clock = new HandClock()
  const allocation = anAllocation(tasks)
  const options = samplerOptions(tree, clock, allocation)
  const sampler = new StatsSampler(options)
  const table = options.allocations instanceof FakeTable ? options.allocations : new FakeTable()
  /** Ten seconds later on every clock. */
  const later = () => {
    clock.atMs += 10_000
    const [seconds = 0] = tree.read('proc/uptime').split(' ').map(Number)
    tree.write('proc/uptime', `${(seconds + 10).toFixed(2)} 0.00\n`)
  }
  const ask = async (of: Allocation = allocation, task?: string) => sampler.allocationStats(of, task)
  return { tree, clock, allocation, sampler, table, later, ask }
}

const ZERO =
  '{"ResourceUsage":{"CpuStats":{"Measured":null,"Percent":0,"SystemMode":0,"ThrottledPeriods":0,"ThrottledTime":0,"TotalTicks":0,"UserMode":0},"DeviceStats":[],"MemoryStats":{"Cache":0,"KernelMaxUsage":0,"KernelUsage":0,"MappedFile":0,"MaxUsage":0,"Measured":null,"RSS":0,"Swap":0,"Usage":0}},"Tasks":{},"Timestamp":0}'

test('an allocation without samples has the zero form, byte for byte as recorded', async (context) => {
  const { ask } = metered(context, 'process-tree', aTask('web', []), aTask('db', [100], { state: 'dead' }))
  assert.equal(JSON.stringify(await ask()), ZERO)
  const { ask: askGone } = metered(context, 'process-tree', aTask('web', [4242]))
  assert.equal(JSON.stringify(await askGone()), ZERO)
})

test('cgroup version 1 reports all memory values, totals of the group and both controllers', async (context) => {
  const { ask, later, tree } = metered(context, 'cgroup-v1', aTask('web', [200]))
  const first = (await ask()).Tasks['web']
  assert.equal(first?.Pids, null)
  assert.deepEqual(first?.ResourceUsage, {
    CpuStats: {
      Measured: ['System Mode', 'User Mode', 'Throttled Periods', 'Throttled Time', 'Percent'],
      // 5 s of 500.5 s since the task was started.
      Percent: (5000 / 500_500) * 100,
      SystemMode: (1500 / 500_500) * 100,
      ThrottledPeriods: 3,
      ThrottledTime: 70_000_000,
      TotalTicks: (5000 / 500_500) * 2000,
      UserMode: (3500 / 500_500) * 100,
    },
    DeviceStats: null,
    MemoryStats: {
      Cache: 40_960,
      KernelMaxUsage: 5000,
      KernelUsage: 4000,
      MappedFile: 10_240,
      MaxUsage: 300_000,
      Measured: ['RSS', 'Cache', 'Swap', 'Usage', 'Max Usage', 'Kernel Usage', 'Kernel Max Usage'],
      RSS: 81_920,
      Swap: 5120,
      Usage: 200_000,
    },
  })
  later()
  tree.write('sys/fs/cgroup/cpu,cpuacct/task/abc/cpuacct.usage', '20000000000\n')
  tree.write('sys/fs/cgroup/cpu,cpuacct/task/abc/cpuacct.stat', 'user 1350\nsystem 650\n')
  const second = (await ask()).ResourceUsage.CpuStats
  assert.deepEqual([second.Percent, second.UserMode, second.SystemMode, second.TotalTicks], [150, 100, 50, 3000])
})

test('cgroup version 2 counts anonymous memory as RSS and child groups, and ignores decreasing counters', async (context) => {
  const { ask, later, tree } = metered(context, 'cgroup-v2', aTask('web', [300]))
  const { MemoryStats: memory, CpuStats: cpu } = (await ask()).ResourceUsage
  assert.deepEqual(memory.Measured, ['RSS', 'Cache', 'Swap', 'Usage'])
  assert.deepEqual([memory.RSS, memory.Cache, memory.Swap, memory.Usage], [81_920, 40_960, 5120, 200_000])
  assert.deepEqual([cpu.ThrottledPeriods, cpu.ThrottledTime], [3, 70_000_000])
  later()
  tree.write('sys/fs/cgroup/work.slice/task.scope/cpu.stat', 'usage_usec 4000000\nuser_usec 4500000\n')
  const second = (await ask()).ResourceUsage.CpuStats
  assert.deepEqual([second.Percent, second.UserMode, second.SystemMode], [0, 10, 0])
})

const WALKED = { memory: ['RSS', 'Swap'], cpu: ['System Mode', 'User Mode', 'Percent'] }

for (const [why, change] of [
  ['a stranger is in it', (tree: Tree) => tree.write('sys/fs/cgroup/work.slice/task.scope/cgroup.procs', '300\n999\n')],
  [
    'a stranger is in a group inside',
    (tree: Tree) => tree.write('sys/fs/cgroup/work.slice/task.scope/inner/cgroup.procs', '301\n999\n'),
  ],
  [
    'a process of another pid namespace is in it',
    (tree: Tree) => tree.write('sys/fs/cgroup/work.slice/task.scope/cgroup.procs', '300\n0\n'),
  ],
  ['a process of the task is outside of it', (tree: Tree) => tree.remove('sys/fs/cgroup/work.slice/task.scope/inner')],
  ['it is the root group', (tree: Tree) => tree.write('proc/300/cgroup', '0::/\n')],
  ['it is outside our namespace', (tree: Tree) => tree.write('proc/300/cgroup', '0::/../work.slice/task.scope\n')],
  ['its files are gone', (tree: Tree) => tree.remove('sys/fs/cgroup/work.slice')],
] as const) {
  test(`a group is not used when ${why}`, async (context) => {
    const { ask, tree } = metered(context, 'cgroup-v2', aTask('web', [300]))
    change(tree)
    const task = (await ask()).Tasks['web']
    assert.deepEqual(task?.ResourceUsage.MemoryStats.Measured, WALKED.memory)
    assert.deepEqual(task?.ResourceUsage.CpuStats.Measured, WALKED.cpu)
    assert.deepEqual(Object.keys(task?.Pids ?? {}), ['300', '301'])
    assert.equal(task?.ResourceUsage.MemoryStats.RSS, 3000 * 4096)
  })
}

test('a foreign process in the group ends its use without a jump of Percent', async (context) => {
  const { ask, tree, later } = metered(context, 'cgroup-v2', aTask('web', [300]))
  const before = (await ask()).ResourceUsage.CpuStats
  later()
  tree.write('sys/fs/cgroup/work.slice/task.scope/cgroup.procs', '300\n999\n')
  const after = (await ask()).ResourceUsage.CpuStats
  assert.deepEqual(after.Measured, WALKED.cpu)
  assert.equal(after.Percent, before.Percent)
  later()
  tree.write('proc/301/stat', statLine(301, { parent: 300, user: 550, system: 50, start: 60_000 }))
  assert.equal((await ask()).ResourceUsage.CpuStats.Percent, 50)
})

test('without the memory controller, CPU is read from the group and memory from the processes', async (context) => {
  const { ask, tree } = metered(context, 'cgroup-v2', aTask('web', [300]))
  tree.remove('sys/fs/cgroup/work.slice/task.scope/memory.current')
  const usage = (await ask()).ResourceUsage
  assert.deepEqual(usage.MemoryStats.Measured, WALKED.memory)
  assert.equal(usage.CpuStats.ThrottledPeriods, 3)
})

test('in a container with its group as root, only groups below it are used', async (context) => {
  const { ask, tree, later } = metered(context, 'cgroup-v2', aTask('web', [300]))
  const mounts = tree.read('proc/self/mountinfo').replace('0:50 / /sys', '0:50 /work.slice /sys')
  tree.write('proc/self/mountinfo', mounts)
  tree.write('sys/fs/cgroup/task.scope/cgroup.procs', '300\n301\n')
  tree.write('sys/fs/cgroup/task.scope/cpu.stat', 'usage_usec 1\n')
  assert.equal((await ask()).ResourceUsage.CpuStats.Measured?.length, 5)
  later()
  tree.write('proc/300/cgroup', '0::/work.slice\n')
  tree.remove('sys/fs/cgroup/task.scope')
  assert.deepEqual((await ask()).ResourceUsage.CpuStats.Measured, WALKED.cpu)
})

test('additional mounts of the hierarchy do not disable accounting by groups', async (context) => {
  const path = 'proc/self/mountinfo'
  const { ask, tree } = metered(context, 'cgroup-v2', aTask('web', [300]))
  const measured = (await ask()).ResourceUsage.CpuStats.Measured
  assert.equal(measured?.length, 5)
  const own = tree.read(path)
  const [line = ''] = own.split('\n').filter((each) => each.includes(' - cgroup2 '))
  const at = (root: string, mountpoint: string) => line.replace(/ \/ \/sys\S*/, ` ${root} ${mountpoint}`)
  const further = [
    at('/other.slice', '/srv/other'),
    at('/work.slice/task.scope', '/srv/task'),
    at('/work.slice', '/srv/work'),
    at('/', '/srv/all'),
  ]
  for (const before of [false, true]) {
    const again = metered(context, 'cgroup-v2', aTask('web', [300]))
    again.tree.write(path, (before ? [...further, own] : [own, ...further.toReversed()]).join('\n'))
    assert.deepEqual((await again.ask()).ResourceUsage.CpuStats.Measured, measured)
  }
})

test('children, waited-for children and orphans are counted exactly once', async (context) => {
  const { ask, tree, later } = metered(context, 'process-tree', aTask('web', [100]))
  const first = (await ask()).Tasks['web']
  assert.deepEqual(Object.keys(first?.Pids ?? {}), ['100', '101', '102'])
  assert.equal(first?.ResourceUsage.MemoryStats.RSS, 1800 * 4096)
  // 3.2 s of user time in all, 100 of these ticks by children that were gone before.
  assert.equal(first?.ResourceUsage.CpuStats.UserMode, (330 * 10 * 100) / 500_500)
  later()
  // 101 ends after 50 + 20 ticks more and is waited for; its child goes on under init; a new child works for 40 ticks.
  tree.remove('proc/101')
  tree.write(
    'proc/100/stat',
    statLine(100, { user: 10, system: 10, childUser: 350, childSystem: 170, start: 50_000 }, 500),
  )
  tree.write('proc/102/stat', statLine(102, { parent: 1, user: 50, system: 10, start: 50_200 }, 300))
  tree.write('proc/103/stat', statLine(103, { parent: 100, user: 40, start: 100_500 }, 100))
  const second = await ask()
  assert.deepEqual(Object.keys(second.Tasks['web']?.Pids ?? {}), ['100', '102', '103'])
  const { UserMode, SystemMode, Percent, TotalTicks } = second.ResourceUsage.CpuStats
  assert.deepEqual([UserMode, SystemMode, Math.round(Percent * 1e6) / 1e6, TotalTicks], [12, 2, 14, 280])
  assert.equal(second.ResourceUsage.MemoryStats.RSS, 900 * 4096)
  assert.equal(second.Tasks['web']?.Pids?.['103']?.CpuStats.Percent, 4)
  assert.equal(second.Tasks['web']?.Pids?.['100']?.CpuStats.Percent, 0)
})

test('a reused PID is another process', async (context) => {
  const { ask, tree, later } = metered(context, 'process-tree', aTask('web', [100]))
  await ask()
  later()
  tree.write('proc/102/stat', statLine(102, { parent: 1, user: 9000, start: 100_700 }, 9000))
  assert.deepEqual(Object.keys((await ask()).Tasks['web']?.Pids ?? {}), ['100', '101'])
  later()
  tree.write('proc/100/stat', statLine(100, { parent: 1, user: 9000, start: 100_900 }, 9000))
  tree.remove('proc/101')
  const gone = await ask()
  assert.equal(gone.Timestamp, 0)
  assert.equal(gone.ResourceUsage.MemoryStats.RSS, 0)
  assert.deepEqual(Object.keys(gone.Tasks['web']?.Pids ?? {}), ['100', '101'], 'the last sample stays')
})

test('swap is read per process only if swap is in use', async (context) => {
  const { ask, tree, later, sampler } = metered(context, 'process-tree', aTask('web', [100]))
  tree.write('proc/101/status', 'Name:\tx\nVmSwap:\t     12 kB\n')
  assert.equal((await ask()).ResourceUsage.MemoryStats.Swap, 0)
  const meminfo = tree.read('proc/meminfo').replace(/SwapTotal: +0/, 'SwapTotal:  500')
  tree.write('proc/meminfo', meminfo)
  later()
  await sampler.hostStats()
  assert.equal((await ask()).ResourceUsage.MemoryStats.Swap, 12 * 1024)
})

test('malformed entries of /proc are skipped', async (context) => {
  const { ask } = metered(context, 'garbage', aTask('bad', [77, 79]), aTask('good', [78]))
  const { Tasks } = await ask()
  assert.deepEqual(Object.keys(Tasks), ['good'])
  assert.equal(Tasks['good']?.ResourceUsage.MemoryStats.RSS, 10 * 4096)
  const { ask: askEmpty } = metered(context, 'missing-files', aTask('web', [1]))
  assert.equal(JSON.stringify(await askEmpty()), ZERO)
})

test('the sum covers running tasks, a filter selects one task, an unknown task none', async (context) => {
  const tasks = [aTask('web', [100]), aTask('other', [150])]
  const { ask, allocation, table, later } = metered(context, 'process-tree', ...tasks)
  const both = await ask()
  assert.equal(both.ResourceUsage.MemoryStats.RSS, (1800 + 9000) * 4096)
  assert.deepEqual(both.ResourceUsage.MemoryStats.Measured, WALKED.memory)
  assert.deepEqual(both.ResourceUsage.DeviceStats, [])
  const one = await ask(allocation, 'other')
  assert.deepEqual(Object.keys(one.Tasks), ['other'])
  assert.equal(one.ResourceUsage.MemoryStats.RSS, 9000 * 4096)
  assert.equal(JSON.stringify(await ask(allocation, 'nope')), ZERO)
  const stopped = { ...allocation, tasks: new Map([['web', aTask('web', [100], { state: 'dead' })]]) }
  table.map.set(allocation.id, stopped)
  later()
  const after = await ask(stopped)
  assert.deepEqual(Object.keys(after.Tasks).sort(), ['other', 'web'])
  assert.equal(after.Timestamp, 0)
  assert.equal(after.ResourceUsage.MemoryStats.RSS, 0)
})

test('a stat line is parsed with any process name', () => {
  const stat = parseProcessStat(statLine(7, { parent: 3, user: 1, start: 9 }).replace('(x)', '(a) S 1 (b\n) 2)'))
  assert.deepEqual([stat?.pid, stat?.parentPid, stat?.userTicks, stat?.startTicks], [7, 3, 1, 9])
  for (const bad of ['', '7', '7 (x', '7 (x) S 1', 'x (x) S']) assert.equal(parseProcessStat(bad), undefined)
})

test('children of a dead process do not become those of a process that reuses its PID', (context) => {
  const tree = new Tree(context, 'process-tree')
  const processes = new ProcessTree(tree.roots.procRoot)
  const refresh = (...pids: number[]) => [...processes.refresh(pids.map(String))]
  refresh(1, 100, 101, 102)
  assert.deepEqual([...processes.family([100])], [100, 101, 102])
  tree.remove('proc/100')
  refresh(1, 101, 102)
  tree.write('proc/100/stat', statLine(100, { start: 99_999 }))
  tree.write('proc/101/stat', statLine(101, { parent: 1, start: 50_100 }))
  refresh(1, 100, 101, 102)
  assert.deepEqual([...processes.family([100])], [100])
  assert.deepEqual([...processes.family([101])], [101, 102])
  processes.clear()
  assert.equal(processes.size, 0)
})

test('the kernel units are read from the auxiliary vector', () => {
  const { pageBytes, ticksPerSecond } = kernelUnits('/proc')
  assert.ok(pageBytes >= 4096 && (pageBytes & (pageBytes - 1)) === 0)
  assert.equal(ticksPerSecond, 100)
})

test('a task with only zombies left keeps its last sample', async (context) => {
  const { ask, tree, later } = metered(context, 'process-tree', aTask('web', [150]))
  const alive = await ask()
  later()
  tree.write('proc/150/stat', statLine(150, { user: 900, start: 40_000 }, 0).replace(' S ', ' Z '))
  const over = await ask()
  assert.equal(over.Timestamp, 0)
  assert.deepEqual(over.Tasks, alive.Tasks)
})

test('a task that is moved to its own group after the start is measured there', async (context) => {
  const { ask, tree, later } = metered(context, 'cgroup-v2', aTask('web', [300]))
  tree.write('proc/300/cgroup', '0::/\n')
  assert.deepEqual((await ask()).ResourceUsage.CpuStats.Measured, WALKED.cpu)
  tree.write('proc/300/cgroup', '0::/work.slice/task.scope\n')
  let samples = 1
  for (; samples < 20; samples++) {
    later()
    if ((await ask()).ResourceUsage.CpuStats.Measured?.length === 5) break
  }
  assert.ok(samples <= 10, `${samples} samples`)
})
