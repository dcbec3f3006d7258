/** Faults of a high availability cluster. Each one happens, lasts for a time, and is undone. */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { diskOf, type HaServerProcess, type HaTestCluster, type NatsProcess } from '../ha-cluster.ts'
import type { Random } from '../frames.ts'
import { empty, fill } from '../small-disk.ts'

/** Longer than a lease and the margin after it. */
const PAUSE_MS = [4000, 7000] as const
const DOWN_MS = [200, 4000] as const
const CUT_MS = [1000, 7000] as const
/** An hour and some seconds, in both directions. */
const CLOCK_STEPS_MS = [-3_600_000, -7000, -1500, 1500, 7000, 3_600_000] as const

export const FAULT_KINDS = [
  'kill server',
  'kill NATS',
  'kill both',
  'kill majority of NATS',
  'pause server',
  'pause NATS',
  'step down',
  'stop server',
  'partition',
  'one direction',
  'isolated active',
  'full disk of server',
  'full disk of NATS',
  'clock',
] as const

export type FaultKind = (typeof FAULT_KINDS)[number]

export class Faults {
  readonly #world: HaTestCluster
  readonly #random: Random
  /** What happened, with its times since the start. */
  readonly story: string[] = []
  readonly #startedMs = performance.now()

  constructor(world: HaTestCluster, random: Random) {
    this.#world = world
    this.#random = random
  }

  /** The kinds of faults that this machine permits. */
  get kinds(): readonly FaultKind[] {
    const { hasSmallDisks, network, setClock } = this.#world
    return FAULT_KINDS.filter((kind) => {
      if (kind === 'partition' || kind === 'one direction' || kind === 'isolated active') return network !== undefined
      if (kind === 'full disk of server' || kind === 'full disk of NATS') return hasSmallDisks
      return kind === 'clock' ? setClock !== undefined : true
    })
  }

  /** Resolves when the fault is undone. */
  async cause(kind: FaultKind): Promise<void> {
    const begin = performance.now() - this.#startedMs
    const what = await this.#cause(kind)
    const end = performance.now() - this.#startedMs
    this.story.push(`${(begin / 1000).toFixed(2)} – ${(end / 1000).toFixed(2)} s: ${kind}: ${what}`)
  }

  #cause(kind: FaultKind): Promise<string> {
    const causes: Readonly<Record<FaultKind, () => Promise<string>>> = {
      'kill server': () => this.#killServer('kill'),
      'stop server': () => this.#killServer('stop'),
      'kill NATS': () => this.#killNats(),
      'kill both': () => this.#killBoth(),
      'kill majority of NATS': () => this.#killMajority(),
      'pause server': () => this.#pauseServer(),
      'pause NATS': () => this.#pauseNats(),
      'step down': () => this.#stepDown(),
      partition: () => this.#partition(false),
      'one direction': () => this.#partition(true),
      'isolated active': () => this.#isolateActive(),
      'full disk of server': () => this.#fillServer(),
      'full disk of NATS': () => this.#fillNats(),
      clock: () => this.#stepClock(),
    }
    return causes[kind]()
  }

  /** Restarts what does not run. Resolves when one server is active and the others are standby. */
  async healAll(): Promise<void> {
    const { cluster, network, setClock } = this.#world
    network?.heal()
    for (const { name, process } of [...cluster.nats, ...cluster.servers]) {
      process.resume()
      if (existsSync(join(diskOf(cluster.directory, name), 'ballast'))) empty(diskOf(cluster.directory, name))
    }
    for (const { name } of cluster.servers) setClock?.(name, 0)
    for (const { process } of cluster.nats) process.start()
    await cluster.natsSettled()
    await Promise.all(cluster.servers.map((server) => cluster.restart(server)))
    await cluster.settled()
  }

  #between([from, to]: readonly [number, number]): number {
    return from + this.#random.next() * (to - from)
  }

  #anyOf<T>(list: readonly T[]): T {
    const found = list[this.#random.between(0, list.length - 1)]
    if (found === undefined) throw new Error('there is none')
    return found
  }

  /** The active server mostly, if there is one. */
  async #server(): Promise<HaServerProcess> {
    const { cluster } = this.#world
    const active = this.#random.chance(0.75) ? await cluster.active() : undefined
    return active ?? this.#anyOf(cluster.servers)
  }

  /** The leader of the commit stream mostly, if there is one. */
  async #natsNode(): Promise<NatsProcess> {
    const { cluster } = this.#world
    const leader = this.#random.chance(0.6) ? await cluster.streamLeader() : undefined
    return leader ?? this.#anyOf(cluster.nats)
  }

  async #killServer(way: 'kill' | 'stop'): Promise<string> {
    const server = await this.#server()
    const downMs = this.#between(DOWN_MS)
    await server.process[way]()
    await sleep(downMs)
    await this.#world.cluster.restart(server)
    return `${server.name}, down for ${Math.round(downMs)} ms`
  }

  async #killNats(): Promise<string> {
    const node = await this.#natsNode()
    const downMs = this.#between(DOWN_MS)
    await node.process.kill()
    await sleep(downMs)
    node.process.start()
    return `${node.name}, down for ${Math.round(downMs)} ms`
  }

  async #killBoth(): Promise<string> {
    const { cluster } = this.#world
    const [server, node] = [await cluster.active(), await cluster.streamLeader()]
    const downMs = this.#between(DOWN_MS)
    await Promise.all([server?.process.kill(), node?.process.kill()])
    await sleep(downMs)
    node?.process.start()
    if (server) await cluster.restart(server)
    return `${server?.name ?? 'none'} and ${node?.name ?? 'none'}, down for ${Math.round(downMs)} ms`
  }

  async #killMajority(): Promise<string> {
    const { cluster } = this.#world
    const first = await this.#natsNode()
    const second = this.#anyOf(cluster.nats.filter((node) => node !== first))
    const downMs = this.#between(DOWN_MS)
    await Promise.all([first, second].map(({ process }) => process.kill()))
    await sleep(downMs)
    for (const { process } of [first, second]) process.start()
    return `${first.name} and ${second.name}, down for ${Math.round(downMs)} ms`
  }

  async #pauseServer(): Promise<string> {
    const server = await this.#server()
    const pauseMs = this.#between(PAUSE_MS)
    server.process.pause()
    await sleep(pauseMs)
    server.process.resume()
    return `${server.name} for ${Math.round(pauseMs)} ms`
  }

  async #pauseNats(): Promise<string> {
    const node = await this.#natsNode()
    const pauseMs = this.#between(PAUSE_MS)
    node.process.pause()
    await sleep(pauseMs)
    node.process.resume()
    return `${node.name} for ${Math.round(pauseMs)} ms`
  }

  async #stepDown(): Promise<string> {
    const { cluster } = this.#world
    const active = await cluster.active()
    const answer = active && (await cluster.ask(active, 'PUT', '/v1/sys/step-down').catch(() => undefined))
    return `${active?.name ?? 'none'}, status ${answer?.status ?? 'none'}`
  }

  /** Two groups of members; each server may lose some or all NATS nodes. */
  async #partition(isOneDirection: boolean): Promise<string> {
    const { cluster, network } = this.#world
    const names = [...cluster.servers, ...cluster.nats].map(({ name }) => name)
    const one = names.filter(() => this.#random.chance(0.4))
    const other = names.filter((name) => !one.includes(name))
    const cutMs = this.#between(CUT_MS)
    if (isOneDirection) network?.drop(one, other)
    else network?.cut(one, other)
    await sleep(cutMs)
    network?.heal()
    return `${one.join(' ')} ${isOneDirection ? '→' : '|'} ${other.join(' ')} for ${Math.round(cutMs)} ms`
  }

  async #isolateActive(): Promise<string> {
    const { cluster, network } = this.#world
    const { name } = (await cluster.active()) ?? this.#anyOf(cluster.servers)
    const others = [...cluster.servers, ...cluster.nats].map((member) => member.name).filter((each) => each !== name)
    const way = this.#random.pick(['both', 'from', 'to'])
    const cutMs = this.#between(CUT_MS)
    if (way !== 'to') network?.drop([name], others)
    if (way !== 'from') network?.drop(others, [name])
    await sleep(cutMs)
    network?.heal()
    return `${name} (${way}) for ${Math.round(cutMs)} ms`
  }

  async #fillServer(): Promise<string> {
    const { cluster } = this.#world
    const server = await this.#server()
    const disk = diskOf(cluster.directory, server.name)
    const fullMs = this.#between(CUT_MS)
    fill(disk)
    await sleep(fullMs)
    empty(disk)
    return `${server.name} for ${Math.round(fullMs)} ms`
  }

  /** JetStream gives up on a full disk, so the node is restarted once the disk has space. */
  async #fillNats(): Promise<string> {
    const node = await this.#natsNode()
    const disk = diskOf(this.#world.cluster.directory, node.name)
    const fullMs = this.#between(CUT_MS)
    fill(disk)
    await sleep(fullMs)
    empty(disk)
    await node.process.kill()
    node.process.start()
    return `${node.name} for ${Math.round(fullMs)} ms`
  }

  async #stepClock(): Promise<string> {
    const { cluster, setClock } = this.#world
    const server = await this.#server()
    const stepMs = this.#random.pick(CLOCK_STEPS_MS)
    const skewedMs = this.#between(CUT_MS)
    setClock?.(server.name, stepMs)
    await sleep(skewedMs)
    if (this.#random.chance(0.5)) setClock?.(server.name, 0)
    // Tokens expire by the wall clock, but not those of the workload.
    return `${server.name} by ${stepMs} ms, of ${cluster.servers.length} servers`
  }
}
