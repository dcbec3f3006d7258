/**
 * Where durable writes spend their time: secrets of 1 KiB written over HTTP with 1, 16 and 64 in flight, with the CPU per
 * write of the main thread, the writer thread and all others; commits per transaction and the time of a transaction;
 * with strace, the time of the syncs of the write-ahead log and of the database (checkpoints), in a separate round.
 *
 * `node bench/writes-trace.ts [--against CHECKOUT] [--node-options OPTIONS] [--rounds N] [--writes N] [--in-flight 1,16,64] [--cpu-prof DIRECTORY] [--syncs]`
 *
 * `--against`: another checkout of the program, in alternating rounds. `--node-options`: for the Node of this checkout's server alone.
 * `--cpu-prof`: profiles of the threads, one server each.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { LAUNCHER } from './support/agent.ts'
import { removeDirectory, temporaryDirectory } from './support/child.ts'
import { CoreServer } from './support/core.ts'
import { plainNumber, WrongContent } from './support/figure.ts'
import { load, type Load, type Request } from './support/load.ts'
import { cpuByThread, inTurn, median, percentile } from './support/measure.ts'

const { values: options } = parseArgs({
  options: {
    against: { type: 'string' },
    'node-options': { type: 'string', default: '' },
    rounds: { type: 'string', default: '3' },
    writes: { type: 'string', default: '20000' },
    'in-flight': { type: 'string', default: '1,16,64' },
    'cpu-prof': { type: 'string' },
    syncs: { type: 'boolean', default: false },
  },
})
const PAD = 'x'.repeat(980)
/** Number of writes until most code is compiled. */
const WARM_WRITES = 6000
/** Each single write needs its own sync, so the rounds have fewer writes. */
const LONE_PART = 8

interface Run {
  readonly load: Load
  /** Microseconds of CPU per write, by thread. */
  readonly threads: ReadonlyMap<string, number>
  readonly perTransaction: number
  readonly transactionMs: number
}

const created: Request['fault'] = (status, body) =>
  status === 200 && body.includes('"version":1}') ? undefined : `status ${status}: ${body.toString()}`

/** One server and the writes to it. */
class Traced {
  readonly core: CoreServer
  #written = 0

  private constructor(core: CoreServer) {
    this.core = core
  }

  static async start(launcher: string, nodeOptions: string): Promise<Traced> {
    const core = new CoreServer(launcher, { OUTPOST_NODE_OPTIONS: nodeOptions })
    await core.start()
    await core.initialise()
    const traced = new Traced(core)
    await traced.write(64, WARM_WRITES)
    return traced
  }

  #next(): Request {
    const at = this.#written++
    return this.core.request('POST', `secret/data/w/${at >> 10}/${at}`, created, `{"data":{"v":"${at}-${PAD}"}}`)
  }

  write(connections: number, count: number): Promise<Load> {
    let left = count
    const next = () => (left-- > 0 ? this.#next() : undefined)
    return load({ port: this.core.port, pid: this.core.pid, durationMs: 3_600_000, connections, next })
  }

  async run(connections: number, count: number): Promise<Run> {
    const [threadsBefore, before] = [cpuByThread(this.core.pid), await this.#transactions()]
    const loaded = await this.write(connections, count)
    const [threadsAfter, after] = [cpuByThread(this.core.pid), await this.#transactions()]
    const threads = new Map<string, number>()
    for (const [name, seconds] of threadsAfter) {
      threads.set(name, ((seconds - (threadsBefore.get(name) ?? 0)) * 1e6) / count)
    }
    const transactions = after.count - before.count
    return {
      load: loaded,
      threads,
      perTransaction: (after.commits - before.commits) / transactions,
      transactionMs: ((after.seconds - before.seconds) * 1000) / transactions,
    }
  }

  async #transactions(): Promise<{ count: number; seconds: number; commits: number }> {
    const { body } = await this.core.ask('GET', 'metrics?format=prometheus')
    const value = (name: string) => Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)`, 'm').exec(body)?.[1])
    return {
      count: value('outpost_store_commit_seconds_count'),
      seconds: value('outpost_store_commit_seconds_sum'),
      commits: value('outpost_store_commits(?:_total)?'),
    }
  }
}

/** CPU of the other threads of a server, which is small. */
function otherThreads(threads: ReadonlyMap<string, number>, named: readonly string[]): number {
  return [...threads].reduce((sum, [name, us]) => (named.includes(name) ? sum : sum + us), 0)
}

function line(name: string, inFlight: number, runs: readonly Run[]): string {
  const of = (value: (run: Run) => number) => plainNumber(median(runs.map(value)))
  const busiest = [...(runs[0]?.threads ?? [])].filter(([thread]) => thread !== 'main').toSorted((a, b) => b[1] - a[1])
  const writer = busiest[0]?.[0] ?? ''
  return [
    name.padEnd(8),
    `${inFlight} in flight`.padEnd(13),
    `${of(({ load: { requestsPerSecond } }) => requestsPerSecond)}/s`.padEnd(8),
    `p50 ${of(({ load: { p50Ms } }) => p50Ms)} p99 ${of(({ load: { p99Ms } }) => p99Ms)} ms`.padEnd(24),
    `µs a write: main ${of(({ threads }) => threads.get('main') ?? 0)}`,
    `${writer} ${of(({ threads }) => threads.get(writer) ?? 0)}`,
    ...busiest.slice(1, 3).map(([thread]) => `${thread} ${of(({ threads }) => threads.get(thread) ?? 0)}`),
    `others ${of(({ threads }) => otherThreads(threads, ['main', ...busiest.slice(0, 3).map(([thread]) => thread)]))}`,
    `all ${of(({ load: { cpuMsPerRequest } }) => cpuMsPerRequest * 1000)}`.padEnd(10),
    `commits a transaction ${of(({ perTransaction }) => perTransaction)}, ${of(({ transactionMs }) => transactionMs)} ms`,
  ].join('  ')
}

/** Medians of the ratios of neighboring rounds of both sides, because load on the machine slows both. */
function ratioLine(here: readonly Run[], against: readonly Run[]): string {
  const of = (value: (run: Run) => number) =>
    plainNumber(median(here.flatMap((run, at) => (against[at] ? [value(run) / value(against[at])] : []))))
  const main = of(({ threads }) => threads.get('main') ?? Number.NaN)
  return `here/against, median of the rounds: writes/s ${of(({ load: { requestsPerSecond } }) => requestsPerSecond)}, CPU main ${main}, all ${of(({ load: { cpuMsPerRequest } }) => cpuMsPerRequest)}`
}

interface Sync {
  readonly file: string
  readonly ms: number
}

/** The syncs of a process during `work`. strace stops the process only for these calls, so the overhead is small. */
async function syncsDuring(pid: number, work: () => Promise<unknown>): Promise<Sync[]> {
  const directory = temporaryDirectory()
  const log = join(directory, 'calls')
  const args = ['-f', '-T', '-y', '-qq', '-e', 'trace=fsync,fdatasync', '-o', log, '-p', String(pid)]
  const tracer = spawn('strace', args, { stdio: ['ignore', 'ignore', 'inherit'] })
  await once(tracer, 'spawn')
  // strace does not report when it has attached to all threads.
  await pause(500)
  await work()
  tracer.kill('SIGINT')
  await once(tracer, 'exit')
  const text = readFileSync(log, 'utf8')
  removeDirectory(directory)
  return text.split('\n').flatMap((call) => {
    const found = /f(?:data)?sync\(\d+<[^>]*\/([^/>]+)>.*<([\d.]+)>$/.exec(call)
    return found ? [{ file: found[1] ?? '', ms: Number(found[2]) * 1000 }] : []
  })
}

function syncLines(syncs: readonly Sync[], count: number): string[] {
  return [...new Set(syncs.map(({ file }) => file))].map((file) => {
    const times = syncs.flatMap((sync) => (sync.file === file ? [sync.ms] : []))
    const of = (part: number) => plainNumber(percentile(times, part))
    return `  syncs of ${file}: ${times.length} for ${count} writes, median ${of(0.5)}, p99 ${of(0.99)}, most ${of(1)} ms`
  })
}

const directory = options['cpu-prof']
const profile = directory === undefined ? '' : `--cpu-prof --cpu-prof-dir=${resolve(directory)}`
const sides: [string, Traced][] = [['here', await Traced.start(LAUNCHER, `${profile} ${options['node-options']}`)]]
if (options.against !== undefined) {
  sides.push(['against', await Traced.start(resolve(options.against, 'bin/outpost'), profile)])
}
try {
  for (const inFlight of options['in-flight'].split(',').map(Number)) {
    const count = Math.ceil(Number(options.writes) / (inFlight === 1 ? LONE_PART : 1))
    const runs = sides.map((): Run[] => [])
    await inTurn(
      Number(options.rounds),
      sides.map(
        ([, traced], side) =>
          async () =>
            void runs[side]?.push(await traced.run(inFlight, count)),
      ),
    )
    sides.forEach(([name], side) => process.stdout.write(`${line(name, inFlight, runs[side] ?? [])}\n`))
    if (sides.length > 1) process.stdout.write(`${ratioLine(runs[0] ?? [], runs[1] ?? [])}\n`)
    for (const [name, traced] of options.syncs ? sides : []) {
      const syncs = await syncsDuring(traced.core.pid, () => traced.write(inFlight, count))
      process.stdout.write(`${name}:\n${syncLines(syncs, count).join('\n')}\n`)
    }
  }
} catch (error) {
  if (!(error instanceof WrongContent)) throw error
  process.stderr.write(`WRONG: ${error.message}\n`)
  process.exitCode = 1
} finally {
  for (const [, traced] of sides) await traced.core.remove()
}
