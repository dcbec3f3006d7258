/**
 * High availability: three servers and three NATS nodes on this machine. Writes through the active server, compared with three OpenBao
 * servers with raft, with a single server without high availability, and with JetStream alone: messages as large as the groups of
 * writes that were measured, one after another. Reads through the active server and through a standby, compared with the peer's.
 */
import { CoreServer } from './support/core.ts'
import { alone, type Options, plainNumber, type Row, WrongContent } from './support/figure.ts'
import { type HaSite, OutpostSite, request, settled, type SiteServer } from './support/ha-site.ts'
import { type Load, load, type Request } from './support/load.ts'
import { inTurn, median } from './support/measure.ts'
import { OpenBaoSite, openbaoProgram } from './support/openbao.ts'
import { RawJetStream } from './support/raw-jetstream.ts'

const IN_FLIGHT = [1, 16, 64]
const KEYS = 1000
const PAD = 'x'.repeat(980)
const REPLICAS = 3

const secret = (at: number) => `{"data":{"v":"${at}-${PAD}"}}`

const written: Request['fault'] = (status, body) =>
  status === 200 && body.includes('"version":1') ? undefined : `status ${status}: ${body.toString()}`

function readBack(at: number): Request['fault'] {
  const wanted = Buffer.from(`"v":"${at}-x`)
  return (status, body) => {
    if (status !== 200) return `status ${status}: ${body.toString()}`
    return body.includes(wanted) ? undefined : `another body: ${body.toString()}`
  }
}

/** One group of servers under load. */
class Side {
  readonly site: HaSite
  active: SiteServer
  standby: SiteServer
  #written = 0
  #read = 0

  private constructor(site: HaSite, active: SiteServer, standby: SiteServer) {
    this.site = site
    this.active = active
    this.standby = standby
  }

  static async of(site: HaSite): Promise<Side> {
    const active = await settled(site)
    const standby = site.servers.find((server) => server !== active) ?? active
    const side = new Side(site, active, standby)
    await side.#fill()
    return side
  }

  async #fill(): Promise<void> {
    let at = 0
    const next = () => {
      if (at === KEYS) return undefined
      return request(this.site, 'POST', `secret/data/r/${at}`, written, secret(at++))
    }
    await this.#load(this.active, 16, 600_000, next)
  }

  #load({ port }: SiteServer, connections: number, durationMs: number, next: () => Request | undefined): Promise<Load> {
    return load({ port, pid: this.site.pids, connections, durationMs, next })
  }

  write(connections: number, durationMs: number): Promise<Load> {
    return this.#load(this.active, connections, durationMs, () => {
      const at = this.#written++
      return request(this.site, 'POST', `secret/data/w/${at >> 10}/${at}`, written, secret(at))
    })
  }

  read(server: SiteServer, connections: number, durationMs: number): Promise<Load> {
    return this.#load(server, connections, durationMs, () => {
      const at = (this.#read++ * 7919) % KEYS
      return request(this.site, 'GET', `secret/data/r/${at}`, readBack(at))
    })
  }
}

const rates = (loads: readonly Load[]) => loads.map(({ requestsPerSecond }) => requestsPerSecond)
const cpus = (loads: readonly Load[]) => loads.map(({ cpuMsPerRequest }) => cpuMsPerRequest)

function latency(loads: readonly Load[]): string {
  const p50 = plainNumber(median(loads.map(({ p50Ms }) => p50Ms)))
  return `p50 ${p50} ms, p99 ${plainNumber(median(loads.map(({ p99Ms }) => p99Ms)))} ms`
}

function besides(
  figure: string,
  ours: readonly Load[],
  peer: { name: string; loads: readonly Load[] } | undefined,
): Row {
  if (!peer) return { figure, unit: 'req/s', ours: rates(ours), note: `${latency(ours)}; no OpenBao on this machine` }
  return {
    figure,
    unit: 'req/s',
    ours: rates(ours),
    peer: { name: peer.name, runs: rates(peer.loads) },
    cpu: { unit: 'ms/req', ours: cpus(ours), peer: cpus(peer.loads) },
    note: `${latency(ours)}; peer ${latency(peer.loads)}`,
  }
}

interface Sides {
  readonly ours: Side
  readonly peer: Side | undefined
  readonly single: CoreServer
  readonly raw: RawJetStream
  readonly options: Options
}

async function writes({ options, ours, peer, raw, single }: Sides, inFlight: number): Promise<Row[]> {
  const durationMs = options.quick ? 500 : 2000
  const [mine, theirs, withoutHa]: [Load[], Load[], Load[]] = [[], [], []]
  const [limits, grouped]: [number[], number[]] = [[], []]
  let at = 0
  const next = () => {
    at++
    return single.request('POST', `secret/data/w${inFlight}/${at >> 10}/${at}`, written, secret(at))
  }
  const group = async (measured: Promise<Load>) => {
    const before = await raw.commits()
    const result = await measured
    const after = await raw.commits()
    const messages = after.messages - before.messages
    if (messages <= 0 || after.bytes <= before.bytes) throw new WrongContent('no commits in the stream')
    const bytes = (after.bytes - before.bytes) / messages
    const writesEach = (result.requestsPerSecond * durationMs) / 1000 / messages
    return { result, bytes, writesEach }
  }
  for (const side of [ours, peer]) await side?.write(inFlight, durationMs / 2)
  await inTurn(options.rounds, [
    async () => {
      const { bytes, result, writesEach } = await group(ours.write(inFlight, durationMs))
      mine.push(result)
      grouped.push(writesEach)
      limits.push((await raw.perSecond(bytes, durationMs / 2)) * writesEach)
    },
    async () => {
      if (peer) theirs.push(await peer.write(inFlight, durationMs))
    },
    async () => {
      withoutHa.push(await load({ port: single.port, pid: single.pid, connections: inFlight, durationMs, next }))
    },
  ])
  const figure = `secret written, ${inFlight} in flight`
  const name = `JetStream alone, ${plainNumber(median(grouped))} writes in a message`
  const without = { name: 'a single server without HA', runs: rates(withoutHa) }
  return [
    besides(figure, mine, peer && { name: peer.site.name, loads: theirs }),
    { figure, unit: 'req/s', ours: rates(mine), peer: { name, runs: limits } },
    { figure, unit: 'req/s', ours: rates(mine), peer: without, note: `without HA: ${latency(withoutHa)}` },
  ]
}

async function reads({ options, ours, peer }: Sides, inFlight: number): Promise<Row[]> {
  const durationMs = options.quick ? 500 : 2000
  const [direct, through, peerDirect, peerThrough]: [Load[], Load[], Load[], Load[]] = [[], [], [], []]
  const one = (side: Side | undefined, server: SiteServer | undefined, into: Load[]) => async () => {
    if (side && server) into.push(await side.read(server, inFlight, durationMs))
  }
  for (const side of [ours, peer]) {
    for (const server of side ? [side.active, side.standby] : []) await side?.read(server, inFlight, durationMs / 2)
  }
  await inTurn(options.rounds, [
    one(ours, ours.active, direct),
    one(ours, ours.standby, through),
    one(peer, peer?.active, peerDirect),
    one(peer, peer?.standby, peerThrough),
  ])
  const name = peer?.site.name ?? ''
  const figure = `secret read through a standby, ${inFlight} in flight`
  return [
    besides(`secret read, ${inFlight} in flight`, direct, peer && { name, loads: peerDirect }),
    besides(figure, through, peer && { name: `${name}, a standby`, loads: peerThrough }),
    { figure, unit: 'req/s', ours: rates(through), peer: { name: 'the active server', runs: rates(direct) } },
  ]
}

export async function ha(options: Options): Promise<Row[]> {
  const program = openbaoProgram()
  const single = new CoreServer()
  const site = await OutpostSite.start()
  let peerSite: OpenBaoSite | undefined
  let raw: RawJetStream | undefined
  try {
    peerSite = program === undefined ? undefined : await OpenBaoSite.start(program, 5)
    await single.start()
    await single.initialise()
    raw = await RawJetStream.open(site.cluster.nats[0]?.url ?? '', REPLICAS)
    const [ours, peer] = [await Side.of(site), peerSite && (await Side.of(peerSite))]
    const sides = { ours, peer, single, raw, options }
    const rows: Row[] = []
    for (const inFlight of IN_FLIGHT) rows.push(...(await writes(sides, inFlight)))
    for (const inFlight of IN_FLIGHT) rows.push(...(await reads(sides, inFlight)))
    return rows
  } finally {
    await raw?.close()
    await Promise.all([site.stop(), peerSite?.stop(), single.remove()])
  }
}

if (import.meta.main) await alone(ha)
