import assert from 'node:assert/strict'
import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { setTimeout as pause } from 'node:timers/promises'
import { test, type TestContext } from 'node:test'
import { StatsSampler } from '../../../src/host/stats/sampler.ts'
import { anAllocation, aTask, FakeTable, HandClock, samplerOptions, statLine, Tree } from './stats-trees.ts'

const DEADLINE_MS = 60_000

const openDescriptors = () => readdirSync('/proc/self/fd').length

/** Polls, because how soon a starved machine gets there is not what is tested. */
async function until<T>(what: string, look: () => Promise<T | undefined> | T | undefined): Promise<T> {
  const deadline = Date.now() + DEADLINE_MS
  while (Date.now() < deadline) {
    const found = await look()
    if (found !== undefined) return found
    await pause(50)
  }
  throw new Error(`not in ${DEADLINE_MS} ms: ${what}`)
}

async function start(
  context: TestContext,
  command: string,
  ...args: string[]
): Promise<ChildProcess & { pid: number }> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'], detached: true })
  await once(child, 'spawn')
  const { pid } = child
  assert.ok(pid !== undefined)
  // The group: a shell's children are not killed with it.
  context.after(() => child.exitCode === null && child.signalCode === null && process.kill(-pid, 'SIGKILL'))
  return Object.assign(child, { pid })
}

function watching(context: TestContext, ...pids: number[]) {
  const allocation = anAllocation([aTask('web', pids)])
  const table = new FakeTable(allocation)
  const sampler = new StatsSampler({ allocations: table, allocDir: tmpdir(), sampleIntervalMs: 300 })
  sampler.start()
  context.after(() => sampler.stop())
  return { allocation, table, sampler }
}

test('a busy process uses about one core, and a busy child counts for its task', async (context) => {
  const shell = await start(context, 'sh', '-c', `"${process.execPath}" -e 'for (;;) {}' & wait`)
  const { sampler, allocation } = watching(context, shell.pid)
  const usage = await until('a busy sample', async () => {
    const { Tasks } = await sampler.allocationStats(allocation)
    return (Tasks['web']?.ResourceUsage.CpuStats.Percent ?? 0) > 40 ? Tasks['web'] : undefined
  })
  // A little above one core: Node's other threads, and clock ticks of 10 ms in an interval of 300.
  assert.ok(usage.ResourceUsage.CpuStats.Percent < 140, JSON.stringify(usage.ResourceUsage))
  assert.ok(usage.ResourceUsage.CpuStats.TotalTicks > 0)
  const pids = usage.Pids ?? {}
  assert.ok(Object.keys(pids).length >= 2 && String(shell.pid) in pids)
  assert.ok((pids[shell.pid]?.CpuStats.Percent ?? 100) < 20, 'the shell itself only waits')
})

test('short-lived children are counted', async (context) => {
  const shell = await start(context, 'sh', '-c', 'while :; do ls / > /dev/null; done')
  const { sampler, allocation } = watching(context, shell.pid)
  await until('the time of the children', async () => {
    const { Tasks } = await sampler.allocationStats(allocation)
    const own = Tasks['web']?.Pids?.[shell.pid]?.CpuStats.Percent ?? 0
    const all = Tasks['web']?.ResourceUsage.CpuStats.Percent ?? 0
    return all > 30 && all > own + 15 ? true : undefined
  })
})

test('memory of a process agrees with ps', async (context) => {
  const script = 'const held = Buffer.alloc(150 << 20, 1); console.log("ready"); setInterval(() => held, 1000)'
  const child = await start(context, process.execPath, '-e', script)
  assert.ok(child.stdout)
  await once(child.stdout, 'data')
  const { sampler, allocation } = watching(context, child.pid)
  const rss = (await sampler.allocationStats(allocation)).ResourceUsage.MemoryStats.RSS
  assert.ok(rss > 150 << 20 && rss < 600 << 20, String(rss))
  let said: number
  try {
    said = Number(execFileSync('ps', ['-o', 'rss=', '-p', String(child.pid)], { encoding: 'utf8' })) * 1024
  } catch {
    return context.diagnostic('no ps on this machine')
  }
  assert.ok(Math.abs(rss - said) < 0.1 * said, `${rss} here, ${said} in ps`)
})

test('a task that stops keeps its last sample, its state is freed, and a removed allocation leaves nothing', async (context) => {
  const child = await start(context, 'sleep', '1000')
  const { sampler, allocation, table } = watching(context, child.pid)
  const live = await sampler.allocationStats(allocation)
  assert.ok(live.Timestamp > 0)
  await until('a background run', () => (sampler.state().processes > 0 ? true : undefined))
  child.kill('SIGKILL')
  await once(child, 'exit')
  await until('its members to be let go', () => (sampler.state().members === 0 ? true : undefined))
  const dead = await sampler.allocationStats(allocation)
  assert.equal(dead.Timestamp, 0)
  assert.equal(dead.ResourceUsage.MemoryStats.Measured, null)
  assert.ok(String(child.pid) in (dead.Tasks['web']?.Pids ?? {}))
  table.map.delete(allocation.id)
  await until('everything to be let go', () => {
    const { meters, allocations, processes } = sampler.state()
    return meters + allocations + processes === 0 ? true : undefined
  })
})

test('a task that its manifest reports as dead is not in the metrics any more, and its state is freed', async (context) => {
  const child = await start(context, 'sleep', '1000')
  const { sampler, allocation, table } = watching(context, child.pid)
  const tasks = () => Array.from(sampler.latestTaskUsages(), ({ task }) => task)
  await sampler.allocationStats(allocation)
  assert.deepEqual([tasks(), sampler.state().members], [['web'], 1])
  // The process continues, such as one that left its allocation.
  const ended = { ...allocation, tasks: new Map([['web', aTask('web', [], { state: 'dead' })]]) }
  table.map.set(allocation.id, ended)
  await until('the task to be let go', () => (tasks().length + sampler.state().members === 0 ? true : undefined))
  const { Tasks, Timestamp } = await sampler.allocationStats(ended)
  assert.deepEqual([Object.keys(Tasks), Timestamp], [['web'], 0])
})

test('sampling keeps the number of descriptors constant and stop closes them', async (context) => {
  const child = await start(context, 'sleep', '1000')
  const before = openDescriptors()
  const { sampler, allocation } = watching(context, child.pid)
  const counts: number[] = []
  for (let round = 0; round < 5; round++) {
    await Promise.all([sampler.allocationStats(allocation), sampler.hostStats()])
    counts.push(openDescriptors())
    await pause(350)
  }
  assert.ok(Math.max(...counts) <= before + 4, `${before} before, then ${counts.join(' ')}`)
  sampler.stop()
  await until('the descriptors back', () => (openDescriptors() <= before ? true : undefined))
  // What is asked of a stopped sampler is answered and leaves nothing open either.
  await sampler.hostStats()
  await sampler.allocationStats(allocation)
  await until('the descriptors back again', () => (openDescriptors() <= before ? true : undefined))
})

test('fresh statistics are reused, stale ones sampled again, and concurrent requests share a run', async (context) => {
  const tree = new Tree(context, 'process-tree')
  const clock = new HandClock()
  const allocation = anAllocation([aTask('web', [100])])
  let statfsCalls = 0
  const sampler = new StatsSampler({
    ...samplerOptions(tree, clock, allocation),
    statfs: () => {
      statfsCalls++
      return Promise.reject(new Error('none'))
    },
  })
  const answers = await Promise.all([sampler.hostStats(), sampler.hostStats(), sampler.hostStats()])
  assert.equal(new Set(answers).size, 1)
  const callsOfOne = statfsCalls
  clock.atMs += 2000
  assert.equal(await sampler.hostStats(), answers[0])
  clock.atMs += 1
  assert.notEqual(await sampler.hostStats(), answers[0])
  assert.equal(statfsCalls, 2 * callsOfOne)

  const asked = await Promise.all([sampler.allocationStats(allocation), sampler.allocationStats(allocation)])
  assert.deepEqual(asked[0], asked[1])
  assert.equal(asked[0]?.Timestamp, clock.nowMs() * 1e6)
  clock.atMs += 2000
  assert.equal((await sampler.allocationStats(allocation)).Timestamp, asked[0]?.Timestamp)
  clock.atMs += 1
  assert.equal((await sampler.allocationStats(allocation)).Timestamp, clock.nowMs() * 1e6)
})

test('a task that has just appeared is sampled at once', async (context) => {
  const tree = new Tree(context, 'process-tree')
  const clock = new HandClock()
  const allocation = anAllocation([aTask('web', [100])])
  const options = samplerOptions(tree, clock, allocation)
  const sampler = new StatsSampler(options)
  await sampler.allocationStats(allocation)
  const grown = { ...allocation, tasks: new Map([...allocation.tasks, ['new', aTask('new', [150])]]) }
  assert.ok(options.allocations instanceof FakeTable)
  options.allocations.map.set(allocation.id, grown)
  assert.deepEqual(Object.keys((await sampler.allocationStats(grown)).Tasks), ['web', 'new'])
})

test('a long run yields the event loop between its slices', async (context) => {
  const tree = new Tree(context, 'process-tree')
  const others = 3000
  for (let pid = 1000; pid < 1000 + others; pid++) tree.write(`proc/${pid}/stat`, statLine(pid, { start: 10 }))
  const allocation = anAllocation([aTask('web', [100])])
  const sampler = new StatsSampler(samplerOptions(tree, new HandClock(), allocation))
  let turns = 0
  let going = true
  const turn = () => {
    turns++
    if (going) setImmediate(turn)
  }
  turn()
  await sampler.allocationStats(allocation)
  going = false
  // Reading that many takes tens of milliseconds on any machine, in slices of one.
  assert.ok(turns > 10, `${turns} turns`)
  assert.ok(sampler.state().processes >= others)
})

test('a task may have any name', async (context) => {
  const tree = new Tree(context, 'process-tree')
  const allocation = anAllocation([aTask('__proto__', [100])])
  const { Tasks } = await new StatsSampler(samplerOptions(tree, new HandClock(), allocation)).allocationStats(
    allocation,
  )
  assert.match(JSON.stringify(Tasks), /^\{"__proto__":\{"Pids"/)
})
