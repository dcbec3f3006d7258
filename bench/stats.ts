/**
 * Cost of statistics: sampling 50 running tasks and an idle agent, compared with naive reading of the same processes in the
 * same run. Prints one line per measurement. `node bench/stats.ts [seconds]`; 50 real processes, 10 seconds each by default.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readFile, readdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setTimeout as pause } from 'node:timers/promises'
import type { Allocation } from '../src/host/allocations/allocation.ts'
import { StatsSampler } from '../src/host/stats/sampler.ts'

const TASKS = 50
const SECONDS = Number(process.argv[2] ?? 10)
/** At one round a second, the code is compiled only after about twenty rounds. The measurement is about the time after them. */
const WARM_UP_MS = 25_000

function allocationOf(pid: number, index: number): Allocation {
  const logs = { logsDisabled: false, maxFiles: 10, maxFileSizeMb: 10 }
  const task = { name: 'web', state: 'running', failed: false, startedAtMs: 1, finishedAtMs: undefined } as const
  return {
    id: `00000000-0000-4000-8000-${String(index).padStart(12, '0')}`,
    name: 'bench',
    namespace: 'default',
    jobId: 'bench',
    taskGroup: 'bench',
    desiredStatus: 'run',
    clientStatus: 'running',
    createTimeMs: 0,
    tasks: new Map([['web', { ...task, pids: [pid], ...logs }]]),
    directory: tmpdir(),
    collected: false,
  }
}

interface Cost {
  /** Percent of one core, all threads of this process. */
  readonly cpuPercent: number
  readonly longestDelayMs: number
}

/** CPU use of this process beyond `baseline` during `work`; without work, the baseline itself. */
async function cost(baselinePercent: number, begin: () => () => void): Promise<Cost> {
  const end = begin()
  await pause(WARM_UP_MS)
  const delay = monitorEventLoopDelay({ resolution: 1 })
  const [cpu, beganMs] = [process.cpuUsage(), performance.now()]
  await pause(SECONDS * 1000)
  const used = process.cpuUsage(cpu)
  const cpuPercent = ((used.user + used.system) / 1000 / (performance.now() - beganMs)) * 100
  // The timer of the histogram costs more than the measured work, so the delay is measured in a second window.
  delay.enable()
  await pause(SECONDS * 1000)
  delay.disable()
  end()
  return { cpuPercent: cpuPercent - baselinePercent, longestDelayMs: delay.max / 1e6 }
}

function sampling(allocations: readonly Allocation[]): { begin: () => () => void; longestSliceMs: () => number } {
  const table = new Map(allocations.map((allocation) => [allocation.id, allocation]))
  const lookup = { get: (id: string) => table.get(id), all: () => table.values() }
  const sampler = new StatsSampler({ allocations: lookup, allocDir: tmpdir(), sampleIntervalMs: 1000 })
  return {
    begin: () => {
      sampler.start()
      // Slices of the warm-up run code that is not compiled yet and are ignored.
      setTimeout(() => sampler.resetLongestSlice(), WARM_UP_MS)
      return () => sampler.stop()
    },
    longestSliceMs: () => sampler.state().longestSliceMs,
  }
}

/** Reads the files of all processes every second, in parallel through the thread pool: the usual way. */
async function naiveRound(): Promise<void> {
  const names = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  await Promise.all(
    names.flatMap((pid) => ['stat', 'statm', 'status'].map((file) => readFile(`/proc/${pid}/${file}`).catch(() => ''))),
  )
}

function naive(): () => void {
  const timer = setInterval(() => void naiveRound(), 1000)
  return () => clearInterval(timer)
}

function line(name: string, value: string): void {
  process.stdout.write(`${name.padEnd(58)} ${value}\n`)
}

async function main(): Promise<void> {
  const children: ChildProcess[] = []
  try {
    for (let index = 0; index < TASKS; index++) children.push(spawn('sleep', ['100000'], { stdio: 'ignore' }))
    await Promise.all(children.map((child) => once(child, 'spawn')))
    const allocations = children.flatMap((child, index) => (child.pid ? [allocationOf(child.pid, index)] : []))
    const floor = await cost(0, () => () => {})
    const idle = await cost(floor.cpuPercent, sampling([]).begin)
    const fifty = sampling(allocations)
    const busy = await cost(floor.cpuPercent, fifty.begin)
    const usual = await cost(floor.cpuPercent, naive)
    const processes = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).length
    line('processes on this machine', String(processes))
    line('CPU, no allocations, sampled every second', `${idle.cpuPercent.toFixed(3)} % of a core`)
    line(`CPU, ${TASKS} running tasks, sampled every second`, `${busy.cpuPercent.toFixed(3)} % of a core`)
    line('CPU, naive read of all processes every second', `${usual.cpuPercent.toFixed(3)} % of a core`)
    line('ratio naive / ours', (usual.cpuPercent / busy.cpuPercent).toFixed(1))
    line(`longest slice, ${TASKS} tasks`, `${fifty.longestSliceMs().toFixed(2)} ms`)
    line('longest event loop delay, nothing on (the machine)', `${floor.longestDelayMs.toFixed(2)} ms`)
    line(`longest event loop delay, ${TASKS} tasks`, `${busy.longestDelayMs.toFixed(2)} ms`)
    line('longest event loop delay, naive', `${usual.longestDelayMs.toFixed(2)} ms`)
  } finally {
    for (const child of children) child.kill('SIGKILL')
  }
}

await main()
