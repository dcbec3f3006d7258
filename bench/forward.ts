/**
 * Cost of a call through a server to another process over a real NATS server: whole files, parts of files, small responses
 * and followed lines, compared with the direct response of the same agent, and with bare NATS that carries the same
 * number of bytes in messages of the same size under the same credit.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { DATA_BYTES_MAX } from '../src/cluster/rpc/call-wire.ts'
import { ALLOC_ID, FS, logsPath, type RunningAgent, TASK } from './support/agent.ts'
import type { Answer, Order } from './support/bare/relay.ts'
import { Helper } from './support/child.ts'
import { type Cluster, startCluster, TOKEN_HEADER } from './support/cluster.ts'
import { BLOCK_BYTES, isContent, LINE_BYTES, line, lines, MiB, writeContent } from './support/content.ts'
import { type Download, download, downloadRow } from './support/curl.ts'
import { alone, type Options, plainNumber, type Row, WrongContent } from './support/figure.ts'
import { checkAgainst, Follower } from './support/follower.ts'
import { fetchWhole, HttpSocket } from './support/http-socket.ts'
import { load, loadRow, type Rate, type Request } from './support/load.ts'
import { cpuSeconds, inTurn, median, percentile, type Pids } from './support/measure.ts'
import type { Answer as Written, Order as Write } from './support/writer.ts'

/** Limit of a call. */
const WINDOW_BYTES = 4 * MiB
const PART_BYTES = 65_536
const AT_ONCE = 16
const EVERY_MS = 20
const LOST_MS = 5000
const SETTLE_MS = 500

type Writer = Helper<Write, Written>

/** Bare NATS, with two separate processes and the same nats-server. */
class Relay {
  readonly #source: Helper<Order, Answer>
  readonly #sink: Helper<Order, Answer>
  readonly pids: readonly number[]

  constructor({ url, pid }: Cluster['nats']) {
    this.#source = new Helper('bare/relay', { url, role: 'source' })
    this.#sink = new Helper('bare/relay', { url, role: 'sink' })
    this.pids = [pid, this.#source.pid, this.#sink.pid]
  }

  async ready(): Promise<void> {
    await Promise.all([this.#source.next(), this.#sink.next()])
  }

  async ask(order: Order): Promise<Answer> {
    this.#sink.send(order)
    return await this.#sink.next()
  }

  async download(bytes: number): Promise<Download> {
    const before = cpuSeconds(this.pids)
    const answer = await this.ask({ kind: 'stream', bytes, messageBytes: DATA_BYTES_MAX, windowBytes: WINDOW_BYTES })
    const seconds = (answer[0] ?? Number.NaN) / 1000
    const cpu = cpuSeconds(this.pids) - before
    return { megabytesPerSecond: bytes / 1e6 / seconds, cpuSecondsPerGigabyte: cpu / (bytes / 1e9) }
  }

  async load(bytes: number, durationMs: number): Promise<Rate> {
    const before = cpuSeconds(this.pids)
    const [requestsPerSecond = Number.NaN] = await this.ask({ kind: 'requests', bytes, atOnce: AT_ONCE, durationMs })
    const requests = requestsPerSecond * (durationMs / 1000)
    return { requestsPerSecond, cpuMsPerRequest: ((cpuSeconds(this.pids) - before) * 1000) / requests }
  }

  async stop(): Promise<void> {
    await Promise.all([this.#source.stop(), this.#sink.stop()])
  }
}

interface Bench {
  readonly cluster: Cluster
  readonly relay: Relay
  readonly options: Options
  /** With the caller's token, where the ACL is on. */
  readonly header?: string
}

export async function forward(options: Options): Promise<Row[]> {
  const cluster = await startCluster()
  const relay = new Relay(cluster.nats)
  const writer: Writer = new Helper('writer')
  try {
    await relay.ready()
    const bench = { cluster, relay, options }
    const rows = [...(await wholeFiles(bench)), ...(await parts(bench)), ...(await small(bench))]
    return [...rows, ...(await latency(bench, writer)), ...(await withAcl(options))]
  } finally {
    await Promise.all([relay.stop(), writer.stop()])
    await cluster.stop()
  }
}

/** Small responses and parts of files if every call has a token and the server asserts the caller's permissions to the agent. */
async function withAcl(options: Options): Promise<Row[]> {
  const cluster = await startCluster(true)
  const relay = new Relay(cluster.nats)
  try {
    await relay.ready()
    writeContent(join(cluster.agent.site.allocation, 'alloc/data/big'), bigBytes(options))
    const bench = { cluster, relay, options, header: TOKEN_HEADER }
    return [...(await parts(bench)), ...(await small(bench))]
  } finally {
    await relay.stop()
    await cluster.stop()
  }
}

function bigBytes({ quick }: Options): number {
  return (quick ? 64 : 512) * MiB + 1000
}

async function wholeFiles({ cluster, relay, options }: Bench): Promise<Row[]> {
  const { agent, server, pids } = cluster
  const bytes = bigBytes(options)
  writeContent(join(agent.site.allocation, 'alloc/data/big'), bytes)
  writeContent(agent.site.logFile(0), bytes)
  const cases = [
    { name: 'cat', path: `${FS}/cat/${ALLOC_ID}?path=alloc/data/big` },
    { name: 'logs plain', path: logsPath({ framed: false, follow: false }) },
    { name: 'logs framed', path: logsPath({ framed: true, follow: false }) },
  ]
  const rows: Row[] = []
  for (const { name, path } of cases) {
    const bodyBytes = await sameBody(agent.port, server.port, path)
    const [ours, direct, bare]: [Download[], Download[], Download[]] = [[], [], []]
    const one = (port: number, pid: Pids) => download({ port, pid, path, bodyBytes, payloadBytes: bytes })
    await inTurn(options.rounds, [
      async () => void ours.push(await one(server.port, pids)),
      async () => void direct.push(await one(agent.port, agent.pid)),
      async () => void bare.push(await relay.download(bytes)),
    ])
    const figure = `forwarded ${name}, ${Math.round(bytes / MiB)} MiB`
    rows.push(
      downloadRow(figure, ours, { name: 'direct', runs: direct }),
      downloadRow(figure, ours, { name: 'bare NATS', runs: bare }),
    )
  }
  return rows
}

/** Reads both responses once and compares them byte by byte. Resolves to their length. */
async function sameBody(directPort: number, serverPort: number, path: string): Promise<number> {
  const waiting: [Buffer[], Buffer[]] = [[], []]
  const compare = () => {
    const [[left], [right]] = waiting
    if (!left || !right) return
    const length = Math.min(left.length, right.length)
    if (left.compare(right, 0, length, 0, length) !== 0)
      throw new WrongContent(`${path}: not equal to the direct response`)
    for (const [side, part] of [
      [waiting[0], left],
      [waiting[1], right],
    ] as const) {
      if (part.length === length) side.shift()
      else side[0] = part.subarray(length)
    }
    compare()
  }
  const read = (port: number, into: Buffer[]) =>
    new Promise<number>((resolve, reject) => {
      let bytes = 0
      const socket = new HttpSocket(port)
      socket.get(path, {
        onBody(part) {
          bytes += part.length
          into.push(Buffer.from(part))
          compare()
        },
        onEnd() {
          socket.close()
          resolve(bytes)
        },
        onFail: (error) => reject(new WrongContent(`${path}: ${error.message}`)),
      })
    })
  const [direct, forwarded] = await Promise.all([read(directPort, waiting[0]), read(serverPort, waiting[1])])
  if (direct !== forwarded) throw new WrongContent(`${path}: ${forwarded} of ${direct} bytes`)
  return forwarded
}

async function loads(bench: Bench, figure: string, next: () => Request, bodyBytes: number): Promise<Row[]> {
  const { cluster, header, relay, options } = bench
  const asked = header === undefined ? next : () => ({ ...next(), header })
  const title = header === undefined ? figure : `${figure}, ACL on`
  const durationMs = options.quick ? 500 : 3000
  const [ours, direct, bare]: [Rate[], Rate[], Rate[]] = [[], [], []]
  const through = { port: cluster.server.port, pid: cluster.pids, next: asked }
  const straight = { port: cluster.agent.port, pid: cluster.agent.pid, next: asked }
  for (const side of [through, straight]) await load({ ...side, durationMs: durationMs / 2 })
  await inTurn(options.rounds, [
    async () => void ours.push(await load({ ...through, durationMs })),
    async () => void direct.push(await load({ ...straight, durationMs })),
    async () => void bare.push(await relay.load(bodyBytes, durationMs)),
  ])
  return [
    loadRow(title, ours, { name: 'direct', loads: direct }),
    loadRow(title, ours, { name: 'bare NATS', loads: bare }),
  ]
}

async function parts(bench: Bench): Promise<Row[]> {
  const blocks = (bench.options.quick ? 64 : 512) * (MiB / BLOCK_BYTES)
  let random = 7
  const next = (): Request => {
    random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0
    const offset = (random % (blocks - 1)) * BLOCK_BYTES + 4096
    return {
      path: `${FS}/readat/${ALLOC_ID}?path=alloc/data/big&offset=${offset}&limit=${PART_BYTES}`,
      fault(status, body) {
        if (status !== 200 || body.length !== PART_BYTES) return `status ${status}, ${body.length} bytes`
        return isContent(body, offset) ? undefined : `wrong bytes at ${offset}`
      },
    }
  }
  return await loads(bench, `forwarded readat, 64 KiB, ${AT_ONCE} connections`, next, PART_BYTES)
}

async function small(bench: Bench): Promise<Row[]> {
  const nodeId = await nodeIdOf(bench.cluster.agent, bench.header)
  const cases = [
    { name: 'file attributes', path: `${FS}/stat/${ALLOC_ID}?path=alloc`, bytes: 150 },
    { name: 'metadata', path: `/v1/client/metadata?node_id=${nodeId}`, bytes: 600 },
    { name: 'allocation statistics', path: `/v1/client/allocation/${ALLOC_ID}/stats`, bytes: 900 },
  ]
  const rows: Row[] = []
  for (const { name, path, bytes } of cases) {
    rows.push(...(await loads(bench, `forwarded GET ${name}`, () => ({ path, fault: notAnObject }), bytes)))
  }
  return rows
}

function notAnObject(status: number, body: Buffer): string | undefined {
  return status === 200 && body[0] === 123 ? undefined : `status ${status}: ${body.toString('latin1', 0, 80)}`
}

async function nodeIdOf({ port }: RunningAgent, header?: string): Promise<string> {
  const { body } = await fetchWhole(port, '/v1/agent/self', header)
  const id = /"node_id":"([0-9a-f-]{36})"/i.exec(body.toString())?.[1]
  if (id === undefined) throw new Error('the agent does not report its node ID')
  return id
}

async function latency({ cluster, relay, options }: Bench, writer: Writer): Promise<Row[]> {
  const count = options.quick ? 100 : 500
  const rows: Row[] = []
  for (const framed of [true, false]) {
    const [ours, direct, bare]: [number[][], number[][], number[][]] = [[], [], []]
    await inTurn(Math.min(options.rounds, 3), [
      async () => void ours.push(await followed(cluster, writer, { count, framed, port: cluster.server.port })),
      async () => void direct.push(await followed(cluster, writer, { count, framed, port: cluster.agent.port })),
      async () =>
        void bare.push([...(await relay.ask({ kind: 'lines', bytes: LINE_BYTES, count, everyMs: EVERY_MS }))]),
    ])
    for (const [which, part] of [
      ['p50', 0.5],
      ['p99', 0.99],
    ] as const) {
      const of = (runs: readonly number[][]) => runs.map((run) => percentile(run, part))
      rows.push({
        figure: `forwarded follow ${framed ? 'framed' : 'plain'}, line written to line received, ${which}`,
        unit: 'ms',
        ours: of(ours),
        peer: { name: 'direct', runs: of(direct) },
        note: `bare NATS ${plainNumber(median(of(bare)))} ms`,
      })
    }
  }
  return rows
}

async function followed(
  { agent }: Cluster,
  writer: Writer,
  run: { count: number; framed: boolean; port: number },
): Promise<number[]> {
  agent.site.removeLogs()
  const file = agent.site.logFile(0)
  writeFileSync(file, line(0))
  const expected = lines(run.count + 1)
  const path = logsPath({ framed: run.framed, follow: true })
  const { port, framed } = run
  const follower = new Follower({ port, path, framed, total: expected.length, check: checkAgainst(expected) })
  await follower.ready
  await pause(SETTLE_MS)
  writer.send({ kind: 'lines', file, first: 1, count: run.count, everyMs: EVERY_MS })
  const times = await writer.next()
  await Promise.race([follower.done, pause(LOST_MS)])
  follower.close()
  if (follower.fault !== undefined) throw new WrongContent(`forwarded follow of ${TASK}: ${follower.fault}`)
  const latencies = follower.latenciesMs(times, LINE_BYTES, LINE_BYTES)
  if (latencies.length !== run.count) throw new WrongContent(`${run.count - latencies.length} lines lost`)
  return latencies
}

if (import.meta.main) await alone(forward)
