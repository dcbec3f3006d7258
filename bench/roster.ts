/**
 * A server that knows 10,000 nodes with 100 allocations each: its memory, the cost of a heartbeat, and the duration and event
 * loop delay of a response with all of them. Compared with only verifying the signatures, and with Node's HTTP server that
 * sends the same bytes from memory.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { get } from 'node:http'
import { alone, type Options, type Row, WrongContent } from './support/figure.ts'
import type { Beaten, Blocked, Filled, Order } from './support/fleet.ts'

const BEATS_PER_SECOND = 1000

async function told<T>(child: ChildProcess, order: Order): Promise<T> {
  child.send(order)
  const [answer] = (await once(child, 'message')) as [T]
  return answer
}

interface Fetched {
  readonly ms: number
  readonly bytes: number
  readonly tail: string
}

/** Downloads and discards. */
function download(port: number, path: string): Promise<Fetched> {
  return new Promise((resolve, reject) => {
    const startMs = performance.now()
    get({ host: '127.0.0.1', port, path, agent: false }, (answer) => {
      let bytes = 0
      let tail = ''
      answer.on('data', (chunk: Buffer) => {
        bytes += chunk.length
        tail = (tail + chunk.subarray(-16).toString('latin1')).slice(-16)
      })
      answer.on('end', () => resolve({ ms: performance.now() - startMs, bytes, tail }))
      answer.on('error', reject)
    }).on('error', reject)
  })
}

function percentile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN
}

async function times(port: number, path: string, count: number, bytes: number): Promise<number[]> {
  const found: number[] = []
  for (let at = 0; at < count; at++) {
    const { ms, bytes: got, tail } = await download(port, path)
    if (!tail.endsWith(']') || (bytes > 0 && got !== bytes)) throw new WrongContent(`${path}: ${got} bytes`)
    found.push(ms)
  }
  return found
}

function peer(runs: readonly number[] = []): { name: string; runs: readonly number[] } {
  return { name: 'ms, node:http from memory', runs }
}

export async function rosterFigure(options: Options): Promise<Row[]> {
  const size = options.quick ? { nodes: 500, allocationsEach: 20 } : { nodes: 10_000, allocationsEach: 100 }
  const child = fork(join(import.meta.dirname, 'support/fleet.ts'), { execArgv: ['--expose-gc'] })
  try {
    const filled = await told<Filled>(child, { kind: 'fill', ...size })
    const wanted = size.nodes * size.allocationsEach
    if (filled.nodes !== size.nodes || filled.allocations !== wanted) {
      throw new WrongContent(`${filled.nodes} nodes and ${filled.allocations} allocations arrived`)
    }
    const what = `${size.nodes} nodes x ${size.allocationsEach} allocations`
    const memory = { figure: `roster of ${what}: memory`, unit: 'MiB', ours: [filled.rssMiB] }
    const note = `filled in ${filled.fillSeconds.toFixed(1)} s, including keys and signatures, created in the same process`
    return [{ ...memory, note }, ...(await beatRows(child, options)), ...(await listRows(child, filled, options))]
  } finally {
    child.disconnect()
  }
}

async function beatRows(child: ChildProcess, { quick, rounds }: Options): Promise<Row[]> {
  const runs: Beaten[] = []
  for (let round = 0; round < rounds; round++) {
    runs.push(await told<Beaten>(child, { kind: 'beats', perSecond: BEATS_PER_SECOND, seconds: quick ? 1 : 4 }))
  }
  const share = runs.map((run) => run.share * 100)
  return [
    {
      figure: 'one heartbeat of a node: CPU',
      unit: 'us',
      ours: runs.map(({ microseconds }) => microseconds),
      peer: { name: 'us, verifying the signature only', runs: runs.map((run) => run.bareMicroseconds) },
    },
    { figure: `${BEATS_PER_SECOND} heartbeats a second: share of a core`, unit: '%', ours: share },
  ]
}

async function listRows(child: ChildProcess, filled: Filled, { quick, rounds }: Options): Promise<Row[]> {
  const count = quick ? 5 : 40
  const { bytes } = await download(filled.port, '/v1/nodes')
  const [p50, p99, bareP50, bareP99, blocks]: number[][] = [[], [], [], [], []]
  for (let round = 0; round < rounds; round++) {
    await told<Blocked>(child, { kind: 'blocks' })
    const ours = await times(filled.port, '/v1/nodes', count, bytes)
    blocks?.push((await told<Blocked>(child, { kind: 'blocks' })).ms)
    const bare = await times(filled.barePort, '/', count, bytes)
    p50?.push(percentile(ours, 0.5))
    p99?.push(percentile(ours, 0.99))
    bareP50?.push(percentile(bare, 0.5))
    bareP99?.push(percentile(bare, 0.99))
  }
  const filter = encodeURIComponent('Meta.rack == r7 or Name matches "9{2}$"')
  const filtered = await times(filled.port, `/v1/nodes?filter=${filter}`, count, 0)
  await told<Blocked>(child, { kind: 'blocks' })
  const all = await download(filled.port, '/v1/allocations')
  const blocked = await told<Blocked>(child, { kind: 'blocks' })
  const size = `${(bytes / 1e6).toFixed(1)} MB`
  return [
    { figure: 'GET /v1/nodes, all: p50', unit: 'ms', ours: p50 ?? [], peer: peer(bareP50), note: size },
    { figure: 'GET /v1/nodes, all: p99', unit: 'ms', ours: p99 ?? [], peer: peer(bareP99) },
    { figure: 'GET /v1/nodes, all: longest event loop delay', unit: 'ms', ours: blocks ?? [] },
    { figure: 'GET /v1/nodes?filter=, about 1% match: p50', unit: 'ms', ours: [percentile(filtered, 0.5)] },
    {
      figure: 'GET /v1/allocations, all',
      unit: 's',
      ours: [all.ms / 1000],
      note: `${(all.bytes / 1e6).toFixed(0)} MB, longest event loop delay ${blocked.ms.toFixed(0)} ms`,
    },
  ]
}

if (import.meta.main) await alone(rosterFigure)
