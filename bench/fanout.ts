/**
 * Many followers of one log at 200 lines a second: lost lines (none), CPU per million delivered lines, latency,
 * memory and descriptors. The lower bound is a process that only writes the same number of chunks of the same
 * size to the same number of sockets, spread over the same time.
 *
 * The clients run in this process; the writer and the two servers each have their own process.
 */
import { writeFileSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import { logsPath, type RunningAgent, startAgent } from './support/agent.ts'
import type { Order as FanOrder } from './support/bare/fan.ts'
import { Helper, type Said } from './support/child.ts'
import { line, LINE_BYTES, lines } from './support/content.ts'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import { checkAgainst, Follower, SeenChunks } from './support/follower.ts'
import { cpuSeconds, inTurn, openDescriptors, percentile, watchMemory } from './support/measure.ts'
import type { Answer, Order } from './support/writer.ts'

const EVERY_MS = 5
const LOST_MS = 10_000
const SETTLE_MS = 1500
/** After this time, all descriptors of disconnected followers must be closed. */
const GONE_MS = 3000
/** Connections are opened in groups, because the backlog of a listener is finite. */
const GROUP = 50

type Writer = Helper<Order, Answer>

interface Run {
  readonly cpuSecondsPerMillion: number
  readonly chunks: number
  readonly wireBytes: number
  readonly overMs: number
  readonly p50: number
  readonly p99: number
  readonly residentMiB: number
  readonly descriptors: readonly [before: number, during: number, after: number]
}

export async function fanout(options: Options): Promise<Row[]> {
  const agent = await startAgent()
  const writer: Writer = new Helper('writer')
  const rows: Row[] = []
  try {
    for (const count of [1, 100, 500]) {
      const lineCount = options.quick ? 400 : 2000
      const [ours, floor]: [Run[], number[]] = [[], []]
      await inTurn(Math.min(options.rounds, 3), [
        async () => {
          ours.push(await followed(agent, writer, { count, lineCount }))
          // Always after outpost: it repeats the writes of the preceding run.
          floor.push(await bareFan(ours.at(-1), { count, lineCount }))
        },
      ])
      rows.push(...rowsOf(count, ours, floor))
    }
    return rows
  } finally {
    await Promise.all([agent.stop(), writer.stop()])
  }
}

function rowsOf(count: number, ours: readonly Run[], floor: readonly number[]): Row[] {
  const name = `${count} follower${count === 1 ? '' : 's'}`
  const cpu = ours.map((run) => run.cpuSecondsPerMillion)
  const last = ours.at(-1)
  const chunks = Math.round((last?.chunks ?? 0) / count)
  const descriptors = last?.descriptors.join(' / ')
  return [
    {
      figure: `${name}, CPU per million lines`,
      unit: 's',
      ours: cpu,
      peer: { name: 'bare writes', runs: floor },
      note: `no line lost, ${chunks} writes to each`,
    },
    { figure: `${name}, line written to line received, p50`, unit: 'ms', ours: ours.map((run) => run.p50) },
    { figure: `${name}, line written to line received, p99`, unit: 'ms', ours: ours.map((run) => run.p99) },
    {
      figure: `${name}, peak memory`,
      unit: 'MiB',
      ours: ours.map((run) => run.residentMiB),
      note: `descriptors before, during, after: ${descriptors}`,
    },
  ]
}

async function connectAll(count: number, connect: () => Follower): Promise<Follower[]> {
  const followers: Follower[] = []
  while (followers.length < count) {
    const group = Array.from({ length: Math.min(GROUP, count - followers.length) }, connect)
    await Promise.all(group.map((follower) => follower.ready))
    followers.push(...group)
  }
  await pause(SETTLE_MS)
  return followers
}

function endAll(followers: readonly Follower[]): void {
  for (const follower of followers) follower.close()
  const faulty = followers.filter((follower) => !follower.complete)
  const [first] = faulty
  if (!first) return
  const fault = first.fault ?? `only ${first.position} bytes came`
  throw new WrongContent(`fan-out: ${faulty.length} of ${followers.length} followers went wrong: ${fault}`)
}

async function followed(agent: RunningAgent, writer: Writer, run: { count: number; lineCount: number }): Promise<Run> {
  const { count, lineCount } = run
  agent.site.removeLogs()
  const file = agent.site.logFile(0)
  writeFileSync(file, line(0))
  const expected = lines(lineCount + 1)
  const before = openDescriptors(agent.pid)
  const shared = {
    port: agent.port,
    path: logsPath({ framed: true, follow: true }),
    framed: true,
    seen: new SeenChunks(),
  }
  const options = { ...shared, total: expected.length, check: checkAgainst(expected) }
  const followers = await connectAll(count, () => new Follower(options))
  const during = openDescriptors(agent.pid)
  const startChunks = sumOf(followers, 'chunks')
  const startBytes = sumOf(followers, 'wireBytes')
  const memory = watchMemory(agent.pid, 250)
  const cpuBefore = cpuSeconds(agent.pid)
  writer.send({ kind: 'lines', file, first: 1, count: lineCount, everyMs: EVERY_MS })
  const times = await writer.next()
  await Promise.race([Promise.all(followers.map((follower) => follower.done)), pause(LOST_MS)])
  const cpu = cpuSeconds(agent.pid) - cpuBefore
  const latencies = followers.flatMap((follower) => follower.latenciesMs(times, LINE_BYTES, LINE_BYTES))
  endAll(followers)
  await pause(GONE_MS)
  return {
    cpuSecondsPerMillion: cpu / ((count * lineCount) / 1e6),
    chunks: sumOf(followers, 'chunks') - startChunks,
    wireBytes: sumOf(followers, 'wireBytes') - startBytes,
    overMs: lineCount * EVERY_MS,
    p50: percentile(latencies, 0.5),
    p99: percentile(latencies, 0.99),
    residentMiB: memory.end(),
    descriptors: [before, during, openDescriptors(agent.pid)],
  }
}

function sumOf(followers: readonly Follower[], what: 'chunks' | 'wireBytes'): number {
  return followers.reduce((sum, follower) => sum + follower[what], 0)
}

/** CPU seconds of the lower bound per million lines, delivered in the same number of writes as in `run`. */
async function bareFan(run: Run | undefined, size: { count: number; lineCount: number }): Promise<number> {
  if (!run) throw new Error('nothing to repeat')
  const { count, lineCount } = size
  const fan = new Helper<FanOrder, Said>('bare/fan')
  try {
    const { port } = await fan.next()
    const chunks = Math.round(run.chunks / count)
    const chunkBytes = Math.round(run.wireBytes / run.chunks)
    const options = { port, path: '/', framed: false, total: chunks * chunkBytes, check: () => true }
    const followers = await connectAll(count, () => new Follower(options))
    const cpuBefore = cpuSeconds(fan.pid)
    fan.send({ chunks, chunkBytes, overMs: run.overMs })
    await fan.next()
    await Promise.race([Promise.all(followers.map((follower) => follower.done)), pause(LOST_MS)])
    const cpu = cpuSeconds(fan.pid) - cpuBefore
    endAll(followers)
    return cpu / ((count * lineCount) / 1e6)
  } finally {
    await fan.stop()
  }
}

if (import.meta.main) await alone(fanout)
