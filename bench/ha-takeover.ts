/**
 * Takeovers: three servers under writes through all of them. The active server is killed (SIGKILL), or asked to step down, or killed
 * together with the NATS node that leads the commit stream; the result is the longest time without an acknowledged write. The peer is
 * three OpenBao servers with raft and their fastest setting, with the same clients. Every acknowledged write must exist afterwards.
 *
 * `node bench/ha-takeover.ts --rounds N`: 2 takeovers of each kind in each round.
 */
import { setTimeout as pause } from 'node:timers/promises'
import { alone, type Options, plainNumber, type Row, WrongContent } from './support/figure.ts'
import { ask, type HaSite, OutpostSite, settled, type SiteServer } from './support/ha-site.ts'
import { percentile } from './support/measure.ts'
import { OpenBaoSite, openbaoProgram } from './support/openbao.ts'

const WRITERS_PER_SERVER = 4
/** So that the clients do not use up the machine. */
const BETWEEN_WRITES_MS = 10
const RETRY_MS = 20
/** A step-down is answered before the server has stepped down. */
const EFFECT_MS = 2000
const CALM_MS = 1000
const SETTLED_WRITES = 50
/** Writes of each takeover that are read afterwards. */
const CHECKED_MAX = 200

/** Clients that write secrets one after another, each through its own server while that runs. */
class Writers {
  readonly #site: HaSite
  readonly #ended: Promise<unknown>
  #isOver = false
  #next = 0
  /** Times of acknowledgements. */
  acknowledgedMs: number[] = []
  /** Numbers of acknowledged writes. */
  acknowledged: number[] = []
  /** Answers other than success, and connections that a running server closed. */
  failed = 0

  constructor(site: HaSite) {
    this.#site = site
    const writers = site.servers.flatMap((server) => Array.from({ length: WRITERS_PER_SERVER }, () => server))
    this.#ended = Promise.all(writers.map((server) => this.#run(server)))
  }

  async #run(own: SiteServer): Promise<void> {
    while (!this.#isOver) {
      const server = this.#site.isRunning(own) ? own : this.#site.servers.find((each) => this.#site.isRunning(each))
      if (!server) await pause(RETRY_MS)
      else await pause((await this.#write(server)) ? BETWEEN_WRITES_MS : RETRY_MS)
    }
  }

  async #write(server: SiteServer): Promise<boolean> {
    const number = this.#next++
    const body = { data: { number } }
    try {
      const path = `secret/data/t/${number >> 10}/${number}`
      const { status } = await ask(server.port, 'POST', path, { token: this.#site.token, body })
      if (status === 200) {
        this.acknowledgedMs.push(performance.now())
        this.acknowledged.push(number)
        return true
      }
      this.failed++
    } catch {
      if (this.#site.isRunning(server)) this.failed++
    }
    return false
  }

  /** Resolves when this number of writes is acknowledged. */
  async more(count: number): Promise<void> {
    const wanted = this.acknowledgedMs.length + count
    const endMs = performance.now() + 60_000
    while (this.acknowledgedMs.length < wanted) {
      if (performance.now() > endMs) throw new WrongContent(`${this.#site.name} acknowledges no writes`)
      await pause(5)
    }
  }

  /** Longest time without an acknowledgement that ended after `sinceMs`. */
  longestGapMs(sinceMs: number): number {
    const times = this.acknowledgedMs
    return Math.max(...times.map((atMs, at) => (atMs < sinceMs ? 0 : atMs - (times[at - 1] ?? atMs))))
  }

  async stop(): Promise<void> {
    this.#isOver = true
    await this.#ended
  }
}

interface Takeovers {
  readonly gapsMs: number[]
  failed: number
}

interface Event {
  /** Makes the active server fail. Resolves to what restores the group. */
  readonly fault: (active: SiteServer) => Promise<() => Promise<void>>
  readonly effectMs?: number
}

async function takeOver(site: HaSite, { effectMs = 0, fault }: Event, into: Takeovers): Promise<void> {
  const active = await settled(site)
  await pause(CALM_MS)
  const writers = new Writers(site)
  try {
    await writers.more(SETTLED_WRITES)
    const faultMs = performance.now()
    const restore = await fault(active)
    await pause(effectMs)
    const next = await settled(site)
    await writers.more(SETTLED_WRITES)
    into.gapsMs.push(writers.longestGapMs(faultMs))
    into.failed += writers.failed
    await writers.stop()
    await requireAll(site, next, writers.acknowledged)
    await restore()
  } finally {
    await writers.stop()
  }
}

async function requireAll(site: HaSite, server: SiteServer, numbers: readonly number[]): Promise<void> {
  for (const number of numbers.slice(-CHECKED_MAX)) {
    const path = `secret/data/t/${number >> 10}/${number}`
    const { body, status } = await ask(server.port, 'GET', path, { token: site.token })
    if (status !== 200 || !body.includes(`"number":${number}`)) {
      throw new WrongContent(`${site.name}: the acknowledged write ${number} is lost: ${status} ${body}`)
    }
  }
}

const killed = (site: HaSite) => async (active: SiteServer) => {
  await site.kill(active)
  return () => site.restart(active)
}

const steppedDown = (site: HaSite) => async (active: SiteServer) => {
  const { body, status } = await ask(active.port, 'PUT', 'sys/step-down', { token: site.token })
  if (status !== 204) throw new WrongContent(`${site.name}: step-down: ${status} ${body}`)
  return async () => undefined
}

function rowOf(figure: string, ours: Takeovers, peer?: { name: string; takeovers: Takeovers }): Row {
  const worst = ({ gapsMs }: Takeovers) => plainNumber(Math.max(...gapsMs))
  const of = (each: Takeovers) =>
    `${each.gapsMs.length} takeovers, p90 ${plainNumber(percentile(each.gapsMs, 0.9))} ms, ${each.failed} failed answers`
  const notes = peer ? `; peer worst ${worst(peer.takeovers)} ms, ${of(peer.takeovers)}` : ''
  return {
    figure,
    unit: 'ms',
    ours: ours.gapsMs,
    ...(peer && { peer: { name: `ms, ${peer.name}`, runs: peer.takeovers.gapsMs } }),
    note: `${of(ours)}${notes}`,
  }
}

const none = (): Takeovers => ({ gapsMs: [], failed: 0 })

async function haTakeover({ quick, rounds }: Options): Promise<Row[]> {
  const program = openbaoProgram()
  const site = await OutpostSite.start()
  let peer: OpenBaoSite | undefined
  const [kills, steps, both, peerKills, peerSteps] = [none(), none(), none(), none(), none()]
  try {
    peer = program === undefined ? undefined : await OpenBaoSite.start(program, 1)
    for (let at = 0; at < (quick ? 2 : 2 * rounds); at++) {
      await takeOver(site, { fault: killed(site) }, kills)
      if (peer) await takeOver(peer, { fault: killed(peer) }, peerKills)
      await takeOver(site, { fault: steppedDown(site), effectMs: EFFECT_MS }, steps)
      if (peer) await takeOver(peer, { fault: steppedDown(peer), effectMs: EFFECT_MS }, peerSteps)
      if (at % 5 > 0) continue
      const fault = async (active: SiteServer) => {
        const restartNode = await site.killWithStreamLeader(active)
        return async () => {
          await restartNode()
          await site.restart(active)
        }
      }
      await takeOver(site, { fault }, both)
    }
    const named = (takeovers: Takeovers) => peer && { name: peer.name, takeovers }
    return [
      rowOf('kill -9 of the active server: no acknowledged write for', kills, named(peerKills)),
      rowOf('step-down: no acknowledged write for', steps, named(peerSteps)),
      rowOf('kill -9 of the active server and the node that leads the stream: no acknowledged write for', both),
    ]
  } finally {
    await Promise.all([site.stop(), peer?.stop()])
  }
}

if (import.meta.main) await alone(haTakeover)
