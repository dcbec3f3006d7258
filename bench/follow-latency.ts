/**
 * Latency from an appended line to the caller, framed and plain, at 50 lines a second, compared with a process
 * that only waits for inotify, reads and writes; and time to the response head of a follow of an idle log.
 */
import { writeFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { logsPath, type RunningAgent, startAgent } from './support/agent.ts'
import type { CannedAnswer } from './support/bare/http.ts'
import { Helper, type Said } from './support/child.ts'
import { line, LINE_BYTES, lines } from './support/content.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { checkAgainst, Follower } from './support/follower.ts'
import { inTurn, percentile } from './support/measure.ts'
import type { Answer, Order } from './support/writer.ts'

const EVERY_MS = 20
/** Longer than any line takes; after this time it counts as lost. */
const LOST_MS = 5000
/** Time for the watches to be established and the work of the start to end. */
const SETTLE_MS = 500

interface Latencies {
  readonly p50: number[]
  readonly p99: number[]
  readonly max: number[]
}

const noLatencies = (): Latencies => ({ p50: [], p99: [], max: [] })

export type Writer = Helper<Order, Answer>

export async function followLatency(options: Options): Promise<Row[]> {
  const agent = await startAgent()
  const writer: Writer = new Helper('writer')
  const bare = new Helper<CannedAnswer, Said>('bare/http')
  try {
    const rows = await lineLatency(agent, writer, options)
    const { port } = await bare.next()
    return [...rows, ...(await headLatency(agent, { bare, port }, options))]
  } finally {
    await Promise.all([agent.stop(), writer.stop(), bare.stop()])
  }
}

async function lineLatency(agent: RunningAgent, writer: Writer, options: Options): Promise<Row[]> {
  const count = options.quick ? 100 : 500
  const [framed, plain, floor] = [noLatencies(), noLatencies(), noLatencies()]
  await inTurn(Math.min(options.rounds, 3), [
    async () => add(framed, await oneRun(agent, writer, { count, framed: true })),
    async () => add(floor, await floorRun(agent, writer, count)),
    async () => add(plain, await oneRun(agent, writer, { count, framed: false })),
  ])
  return [['framed', framed] as const, ['plain', plain] as const].flatMap(([name, ours]) =>
    (['p50', 'p99', 'max'] as const).map((which) => ({
      figure: `follow ${name}, line written to line received, ${which}`,
      unit: 'ms',
      ours: ours[which],
      peer: { name: 'bare inotify', runs: floor[which] },
    })),
  )
}

function add(to: Latencies, run: readonly number[]): void {
  to.p50.push(percentile(run, 0.5))
  to.p99.push(percentile(run, 0.99))
  to.max.push(Math.max(...run))
}

async function oneRun(agent: RunningAgent, writer: Writer, run: { count: number; framed: boolean }): Promise<number[]> {
  agent.site.removeLogs()
  const file = agent.site.logFile(0)
  writeFileSync(file, line(0))
  const path = logsPath({ framed: run.framed, follow: true })
  return lineLatencies(writer, { file, count: run.count, first: 1 }, { port: agent.port, path, framed: run.framed })
}

async function floorRun(agent: RunningAgent, writer: Writer, count: number): Promise<number[]> {
  agent.site.removeLogs()
  const file = agent.site.logFile(0)
  writeFileSync(file, '')
  const watch = new Helper<never, Said>('bare/watch', { file })
  try {
    const { port } = await watch.next()
    return await lineLatencies(writer, { file, count, first: 0 }, { port, path: '/', framed: false })
  } finally {
    await watch.stop()
  }
}

/** Latencies of `count` lines that the writer appends to a file and a follower of `from` receives. */
export async function lineLatencies(
  writer: Writer,
  written: { file: string; first: number; count: number },
  from: { port: number; path: string; framed: boolean },
): Promise<number[]> {
  const { first, count } = written
  const expected = lines(first + count)
  const follower = new Follower({ ...from, total: expected.length, check: checkAgainst(expected) })
  await follower.ready
  await pause(SETTLE_MS)
  writer.send({ kind: 'lines', ...written, everyMs: EVERY_MS })
  const times = await writer.next()
  await Promise.race([follower.done, pause(LOST_MS)])
  follower.close()
  const latencies = follower.latenciesMs(times, first * LINE_BYTES, LINE_BYTES)
  if (follower.fault !== undefined) throw new WrongContent(`follow: ${follower.fault}`)
  if (latencies.length !== count) throw new WrongContent(`follow: ${count - latencies.length} of ${count} lines lost`)
  return latencies
}

async function headLatency(
  agent: RunningAgent,
  peer: { bare: Helper<CannedAnswer, Said>; port: number },
  options: Options,
): Promise<Row[]> {
  const log = line(0)
  agent.site.removeLogs()
  writeFileSync(agent.site.logFile(0), log)
  peer.bare.send({ path: '/', headers: ['Content-Type', 'text/plain'], base64: '', open: true })
  await peer.bare.next()
  const rows: Row[] = []
  for (const framed of [true, false]) {
    const path = logsPath({ framed, follow: true, offset: log.length })
    const [ours, theirs]: [number[], number[]] = [[], []]
    await inTurn(options.quick ? 5 : 51, [
      async () => void ours.push(await headOf(agent.port, path)),
      async () => void theirs.push(await headOf(peer.port, '/')),
    ])
    rows.push({
      figure: `follow ${framed ? 'framed' : 'plain'} of an idle log, connect to head`,
      unit: 'ms',
      ours,
      peer: { name: 'bare node:http', runs: theirs },
    })
  }
  return rows
}

async function headOf(port: number, path: string): Promise<number> {
  const follower = new Follower({ port, path, framed: true, total: 1, check: () => false })
  await Promise.race([follower.ready, pause(LOST_MS)])
  follower.close()
  if (follower.fault !== undefined) throw new WrongContent(`idle follow: ${follower.fault}`)
  if (Number.isNaN(follower.headMs)) throw new WrongContent('idle follow: no head')
  return follower.headMs
}

if (import.meta.main) await alone(followLatency)
