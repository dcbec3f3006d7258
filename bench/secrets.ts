/**
 * The secrets core from the view of clients: reads, compared with Node's HTTP server that sends the same bytes from
 * memory; durable writes, compared with 1 KiB and `fdatasync` in a loop on the same disk; the cost of 100,000 secrets
 * in memory, on disk and at the start; and the effect on a client that follows a log.
 */
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { lineLatencies, type Writer } from './follow-latency.ts'
import { logsPath } from './support/agent.ts'
import type { CannedAnswer } from './support/bare/http.ts'
import { Helper, removeDirectory, type Said, temporaryDirectory } from './support/child.ts'
import { line } from './support/content.ts'
import { CoreServer } from './support/core.ts'
import { alone, type Options, plainNumber, type Row, WrongContent } from './support/figure.ts'
import { type Load, load, loadRow, type Request } from './support/load.ts'
import { cpuSeconds, inTurn, median, percentile, residentMiB } from './support/measure.ts'
import type { Written } from './support/store-load.ts'

const KEYS = 1000
const PAD = 'x'.repeat(980)
const MANY = 100_000
const LISTED = 10_000
/** After this time, the write-ahead log is checkpointed and memory use is stable. */
const SETTLE_MS = 6000

/** Measurements of OpenBao 2.6.2 with raft on a machine with two processors, for the notes. */
const OPENBAO: Readonly<Record<string, string>> = {
  'read 1': '2,649/s, p99 2.6 ms',
  'read 16': '5,179/s, p99 30 ms',
  'read 64': '5,797/s, p99 70 ms',
  'write 1': '475/s, p99 7 ms',
  'write 16': '1,120/s, p99 43 ms',
  'write 64': '1,564/s, p99 100 ms',
  'same 64': '523/s, p99 198 ms',
  'cubbyhole 1': '475/s',
  'token 16': '643/s, p99 58 ms',
  'self 16': '9,659/s, p99 18 ms',
  'health 16': '29,406/s, p99 4.9 ms',
}

const secret = (at: number) => `{"data":{"v":"${at}-${PAD}"}}`

function found(text: string): Request['fault'] {
  const wanted = Buffer.from(text)
  return (status, body) => {
    if (status !== 200) return `status ${status}: ${body.toString()}`
    return body.includes(wanted) ? undefined : `another body: ${body.toString()}`
  }
}

const done: Request['fault'] = (status, body) => (status === 204 ? undefined : `status ${status}: ${body.toString()}`)

/** Each version number must be returned once: two writes with the same version would have overwritten each other. */
function eachOnce(): Request['fault'] {
  const seen = new Set<number>()
  return (status, body) => {
    if (status !== 200) return `status ${status}: ${body.toString()}`
    const { version } = (JSON.parse(body.toString()) as { data: { version: number } }).data
    if (seen.has(version)) return `version ${version} came twice`
    seen.add(version)
    return undefined
  }
}

interface Bare {
  readonly helper: Helper<CannedAnswer, Said>
  readonly port: number
}

interface Asked {
  readonly name: string
  /** Key of the peer's measurements. */
  readonly as: string
  readonly connections: number
}

class Bench {
  readonly core: CoreServer
  readonly options: Options
  #count = 0

  constructor(core: CoreServer, options: Options) {
    this.core = core
    this.options = options
  }

  get #durationMs(): number {
    return this.options.quick ? 500 : 2000
  }

  /** Reads, compared with a server that sends the same bytes from memory over the same number of connections. */
  async reads({ name, as, connections }: Asked, bare: Bare, next: () => Request): Promise<Row> {
    const canned = next()
    const answer = await this.core.ask('GET', canned.path.slice('/v1/'.length))
    const headers = ['Content-Type', 'application/json', 'Cache-Control', 'no-store']
    headers.push('Content-Length', String(answer.body.length))
    bare.helper.send({ path: '/canned', headers, base64: Buffer.from(answer.body).toString('base64') })
    await bare.helper.next()
    const asked: Request = { ...canned, path: '/canned' }
    const [ours, theirs]: [Load[], Load[]] = [[], []]
    const mine = { port: this.core.port, pid: this.core.pid, connections, next }
    const peer = { port: bare.port, pid: bare.helper.pid, connections, next: () => asked }
    for (const side of [mine, peer]) await load({ ...side, durationMs: this.#durationMs / 2 })
    await inTurn(this.options.rounds, [
      async () => void ours.push(await load({ ...mine, durationMs: this.#durationMs })),
      async () => void theirs.push(await load({ ...peer, durationMs: this.#durationMs })),
    ])
    const row = loadRow(`${name}, ${connections} in flight`, ours, { name: 'bare node:http', loads: theirs })
    return { ...row, note: remark(ours, `${as} ${connections}`) }
  }

  /** Durable writes, compared with writing the same number of bytes with a sync in a loop. */
  async writes({ name, as, connections }: Asked, next: (at: number) => Request): Promise<Row> {
    const [ours, limits]: [Load[], number[]] = [[], []]
    const side = { port: this.core.port, pid: this.core.pid, connections, next: () => next(this.#count++) }
    await load({ ...side, durationMs: this.#durationMs / 2 })
    await inTurn(this.options.rounds, [
      async () => void ours.push(await load({ ...side, durationMs: this.#durationMs })),
      async () => void limits.push(diskLimit(this.options.quick ? 300 : 1500)),
    ])
    return {
      figure: `${name}, ${connections} in flight`,
      unit: 'req/s',
      ours: ours.map(({ requestsPerSecond }) => requestsPerSecond),
      peer: { name: 'write + fdatasync in a loop', runs: limits },
      cpu: { unit: 'ms/req', ours: ours.map(({ cpuMsPerRequest }) => cpuMsPerRequest) },
      note: remark(ours, `${as} ${connections}`),
    }
  }

  /** Sends all requests and checks the responses. Resolves to CPU seconds per ten thousand requests. */
  async all(connections: number, count: number, next: (at: number) => Request): Promise<number> {
    let at = 0
    const before = cpuSeconds(this.core.pid)
    const asked = () => (at < count ? next(at++) : undefined)
    await load({ port: this.core.port, pid: this.core.pid, connections, durationMs: 3_600_000, next: asked })
    return ((cpuSeconds(this.core.pid) - before) * 10_000) / count
  }
}

function remark(loads: readonly Load[], name: string): string {
  const p50 = plainNumber(median(loads.map(({ p50Ms }) => p50Ms)))
  const p99 = plainNumber(median(loads.map(({ p99Ms }) => p99Ms)))
  const theirs = OPENBAO[name]
  return `p50 ${p50} ms, p99 ${p99} ms${theirs === undefined ? '' : `; OpenBao 2.6.2: ${theirs}`}`
}

function diskLimit(count: number): number {
  const directory = temporaryDirectory()
  try {
    const program = join(import.meta.dirname, 'support/store-load.ts')
    const printed = execFileSync(process.execPath, [program, 'limit', directory, String(count)])
    return (JSON.parse(printed.toString()) as Written).perSecond
  } finally {
    removeDirectory(directory)
  }
}

async function requests(bench: Bench, bare: Bare): Promise<Row[]> {
  const { core } = bench
  const rows: Row[] = []
  const write = (at: number) =>
    core.request('POST', `secret/data/w/${at >> 10}/${at}`, found('"version":1'), secret(at))
  for (const inFlight of [1, 16, 64])
    rows.push(await bench.writes({ name: 'secret written', as: 'write', connections: inFlight }, write))
  const once = eachOnce()
  const same = (at: number) => core.request('POST', 'secret/data/same', once, secret(at))
  rows.push(await bench.writes({ name: 'single secret written', as: 'same', connections: 64 }, same))
  const cubbyhole = (at: number) => core.request('POST', `cubbyhole/${at}`, done, secret(at))
  rows.push(await bench.writes({ name: 'cubbyhole written', as: 'cubbyhole', connections: 1 }, cubbyhole))
  const token = () =>
    core.request('POST', 'auth/token/create', found('"client_token"'), '{"policies":["default"],"ttl":"1h"}')
  rows.push(await bench.writes({ name: 'token created', as: 'token', connections: 16 }, token))
  const keyed = (at: number) => core.request('POST', `secret/data/r/${at}`, found('"version"'), secret(at))
  await bench.all(16, KEYS, keyed)
  let asked = 0
  const read = () => {
    const at = (asked++ * 7919) % KEYS
    return core.request('GET', `secret/data/r/${at}`, found(`"v":"${at}-x`))
  }
  for (const inFlight of [1, 16, 64])
    rows.push(await bench.reads({ name: 'secret read', as: 'read', connections: inFlight }, bare, read))
  const self = core.request('GET', 'auth/token/lookup-self', found(core.token))
  const health = core.request('GET', 'sys/health', found('"initialized":true'))
  rows.push(await bench.reads({ name: 'token looked up', as: 'self', connections: 16 }, bare, () => self))
  rows.push(await bench.reads({ name: 'health', as: 'health', connections: 16 }, bare, () => health))
  return rows
}

const name = (at: number) => String(at).padStart(6, '0')

async function listing(bench: Bench): Promise<Row> {
  const { core, options } = bench
  const count = options.quick ? LISTED / 10 : LISTED
  await bench.all(64, count, (at) =>
    core.request('POST', `secret/data/l/${name(at)}`, found('"version"'), '{"data":{}}'),
  )
  const [ours, parse]: [number[], number[]] = [[], []]
  await inTurn(options.quick ? 3 : 11, [
    async () => {
      const beganMs = performance.now()
      const { body } = await core.ask('GET', 'secret/metadata/l?list=true')
      ours.push(performance.now() - beganMs)
      const { keys } = (JSON.parse(body) as { data: { keys: string[] } }).data
      if (keys.length !== count || !keys.every((key, at) => key === name(at))) throw new WrongContent('wrong list')
    },
    async () => {
      const beganMs = performance.now()
      JSON.parse(JSON.stringify(Array.from({ length: count }, (_, at) => name(at))))
      parse.push(performance.now() - beganMs)
    },
  ])
  const note = 'with a client that parses; OpenBao 2.6.2: 11 ms'
  return {
    figure: `list of ${count} names`,
    unit: 'ms',
    ours,
    peer: { name: 'ms, encoding and parsing the JSON', runs: parse },
    note,
  }
}

/** A follower of a log with 50 lines a second, alone and while secrets are written at full speed. */
async function besideATail(bench: Bench): Promise<Row[]> {
  const { core, options } = bench
  const writer: Writer = new Helper('writer')
  const count = options.quick ? 50 : 250
  const tail = async () => {
    core.site.removeLogs()
    const file = core.site.logFile(0)
    writeFileSync(file, line(0))
    const path = logsPath({ framed: true, follow: true })
    return percentile(
      await lineLatencies(writer, { file, count, first: 1 }, { port: core.port, path, framed: true }),
      0.99,
    )
  }
  const beside = async () => {
    let isOver = false
    let at = 0
    const next = () => {
      const path = `secret/data/t/${at++}`
      return isOver ? undefined : core.request('POST', path, found('"version"'), secret(at))
    }
    const writing = load({ port: core.port, pid: core.pid, connections: 64, durationMs: 600_000, next })
    const p99 = await tail()
    isOver = true
    await writing
    return p99
  }
  try {
    const [ours, quiet]: [number[], number[]] = [[], []]
    await inTurn(Math.min(options.rounds, 3), [
      async () => void ours.push(await beside()),
      async () => void quiet.push(await tail()),
    ])
    const figure = 'follow beside 64 writers, line written to line received, p99'
    return [{ figure, unit: 'ms', ours, peer: { name: 'ms, no writes', runs: quiet } }]
  } finally {
    await writer.stop()
  }
}

/** Cost of many secrets, in a server that has done nothing else. */
async function many(options: Options): Promise<Row[]> {
  const core = new CoreServer()
  const bench = new Bench(core, options)
  try {
    await core.start()
    await core.initialise()
    const [few, starts]: [number[], number[]] = [[], []]
    const again = async (into: number[]) => {
      await core.stop()
      into.push(await core.start())
    }
    for (let round = 0; round < options.rounds; round++) await again(few)
    const idle = residentMiB(core.pid)
    const count = options.quick ? MANY / 20 : MANY
    const cpu = await bench.all(64, count, (at) =>
      core.request('POST', `secret/data/many/${Math.floor(at / 1000)}/${at % 1000}`, found('"version":1'), secret(at)),
    )
    await pause(SETTLE_MS)
    const loaded = residentMiB(core.pid)
    const bytes = core.bytesOnDisk / count
    for (let round = 0; round < options.rounds; round++) await again(starts)
    const first = await core.ask('GET', 'secret/data/many/0/7')
    if (!first.body.includes('"v":"7-x')) throw new WrongContent(`after the start: ${first.body}`)
    const title = `${count} secrets of 1 KiB`
    const before = { name: 'MiB, none', runs: [idle] }
    return [
      { figure: `${title}: resident memory`, unit: 'MiB', ours: [loaded], peer: before, note: 'OpenBao 2.6.2: 807' },
      { figure: `${title}: on disk, log included`, unit: 'bytes each', ours: [bytes], note: 'OpenBao 2.6.2: 5-7 KB' },
      { figure: `${title}: CPU of writing 10,000`, unit: 's', ours: [cpu], note: 'OpenBao 2.6.2: 8.0-8.9' },
      {
        figure: `${title}: start to active`,
        unit: 'ms',
        ours: starts,
        peer: { name: 'ms, none', runs: few },
        note: 'OpenBao 2.6.2: 364-422 ms',
      },
    ]
  } finally {
    await core.remove()
  }
}

export async function secrets(options: Options): Promise<Row[]> {
  const core = new CoreServer()
  const helper = new Helper<CannedAnswer, Said>('bare/http')
  try {
    await core.start()
    await core.initialise()
    const bench = new Bench(core, options)
    const bare = { helper, port: (await helper.next()).port }
    const rows = [...(await requests(bench, bare)), await listing(bench), ...(await besideATail(bench))]
    return [...rows, ...(await many(options))]
  } finally {
    await Promise.all([core.remove(), helper.stop()])
  }
}

if (import.meta.main) await alone(secrets)
