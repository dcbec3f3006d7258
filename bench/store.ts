/**
 * Durable writes of 1 KiB through barrier and store, compared with writing 1 KiB with a sync in a loop
 * in the same directory; event loop delay meanwhile; syncs of a single write, if strace is available;
 * and the time to open a store of many entries, compared with one of few.
 */
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { removeDirectory, temporaryDirectory } from './support/child.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { inTurn } from './support/measure.ts'
import type { Started, Written } from './support/store-load.ts'

const LOAD = join(import.meta.dirname, 'support/store-load.ts')
const MANY = 100_000
const FEW = 100

function load(args: readonly (string | number)[], before: readonly string[] = []): unknown {
  const [program = '', ...rest] = [...before, process.execPath, LOAD, ...args.map(String)]
  const printed = execFileSync(program, rest, { maxBuffer: 1 << 20 }).toString()
  return printed === '' ? {} : JSON.parse(printed)
}

function whole<T extends { isWhole: boolean }>(result: T): T {
  if (!result.isWhole) throw new WrongContent('read data differs from written data')
  return result
}

const written = (directory: string, inFlight: number, count: number) =>
  whole(load(['write', directory, inFlight, count]) as Written)
const limitOf = (directory: string, count: number) => whole(load(['limit', directory, count]) as Written)
const started = (directory: string) => whole(load(['start', directory]) as Started)

function inDirectory<T>(work: (directory: string) => T): T {
  const directory = temporaryDirectory()
  try {
    return work(directory)
  } finally {
    removeDirectory(directory)
  }
}

const of = (runs: readonly Written[], name: Exclude<keyof Written, 'isWhole'>) => runs.map((run) => run[name])

async function writes(options: Options, inFlight: number): Promise<Row[]> {
  const count = (options.quick ? 500 : 4000) * (inFlight === 1 ? 1 : 4)
  const [ours, limits, resting]: [Written[], Written[], number[]] = [[], [], []]
  await inTurn(options.rounds, [
    async () => void ours.push(inDirectory((directory) => written(directory, inFlight, count))),
    async () => void limits.push(inDirectory((directory) => limitOf(directory, options.quick ? 500 : 2000))),
    async () => void resting.push((load(['rest', '', 1000]) as { lateMs: number }).lateMs),
  ])
  const name = 'write + fdatasync in a loop'
  const title = `durable writes of 1 KiB, ${inFlight} in flight`
  const row = (what: string, field: 'p50Ms' | 'p99Ms'): Row => {
    return { figure: `${title}: ${what}`, unit: 'ms', ours: of(ours, field), peer: { name, runs: of(limits, field) } }
  }
  const peer = { name: 'ms, timers of an idle process', runs: resting }
  return [
    { figure: title, unit: 'writes/s', ours: of(ours, 'perSecond'), peer: { name, runs: of(limits, 'perSecond') } },
    row('median', 'p50Ms'),
    row('p99', 'p99Ms'),
    { figure: `${title}: time to queue, p99`, unit: 'ms', ours: of(ours, 'callMs') },
    { figure: `${title}: timer delay, p99`, unit: 'ms', ours: of(ours, 'lateMs'), peer },
  ]
}

function counted(writesDone: number): number {
  return inDirectory((directory) => {
    const log = join(directory, 'calls')
    load(['write', directory, 1, writesDone], ['strace', '-f', '-qq', '-e', 'trace=fsync,fdatasync', '-o', log])
    return readFileSync(log, 'utf8')
      .split('\n')
      .filter((line) => / f(data)?sync\(/.test(line)).length
  })
}

/** Number of syncs of a single write. */
function syncs(options: Options): Row[] {
  try {
    execFileSync('strace', ['-V'], { stdio: 'ignore' })
  } catch {
    return []
  }
  const count = options.quick ? 200 : 1000
  return [
    { figure: 'syncs of a single durable write', unit: 'per write', ours: [(counted(count) - counted(0)) / count] },
  ]
}

async function starts(options: Options): Promise<Row[]> {
  const [many, few] = [temporaryDirectory(), temporaryDirectory()]
  try {
    load(['fill', many, options.quick ? 5000 : MANY])
    load(['fill', few, FEW])
    const [ofMany, ofFew]: [number[], number[]] = [[], []]
    await inTurn(Math.max(options.rounds, 3), [
      async () => void ofMany.push(started(many).ms),
      async () => void ofFew.push(started(few).ms),
    ])
    const peer = { name: `ms, with ${FEW} entries`, runs: ofFew }
    const figure = `opening a store of ${options.quick ? 5000 : MANY} entries, to the first secret`
    return [{ figure, unit: 'ms', ours: ofMany, peer }]
  } finally {
    removeDirectory(many)
    removeDirectory(few)
  }
}

export async function store(options: Options): Promise<Row[]> {
  const rows: Row[] = []
  for (const inFlight of [1, 16, 64]) rows.push(...(await writes(options, inFlight)))
  return [...rows, ...syncs(options), ...(await starts(options))]
}

await alone(store)
