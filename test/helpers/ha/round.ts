/** A round: clients use the cluster through all servers while faults happen; then the history is checked. */
import { setTimeout as sleep } from 'node:timers/promises'
import { messageOf } from '../../../src/platform/errors.ts'
import { Random } from '../frames.ts'
import type { HaServerProcess, HaTestCluster } from '../ha-cluster.ts'
import { type ActiveObservation, overlappingActivities } from '../history/active-spans.ts'
import { type FaultKind, Faults } from './faults.ts'
import { type AskedServer, HaClient, memberOf } from './ha-client.ts'
import { Workload } from './workload.ts'

export interface RoundOptions {
  readonly world: HaTestCluster
  readonly seed: number
  /** Faults begin within this time. */
  readonly ms: number
  readonly clients?: number
  /** All that the machine permits unless given. */
  readonly kinds?: readonly FaultKind[]
}

export interface RoundResult {
  /** One line with the seed and what was done. */
  readonly summary: string
  readonly story: readonly string[]
  /** Empty for a good round. */
  readonly violations: readonly string[]
  /** Servers that said that they were active while another one was. */
  readonly overlaps: readonly string[]
  readonly unexpected: readonly string[]
}

const CLIENT_TIMEOUT_MS = 5000
const CLIENT_PAUSE_MS_MAX = 60
const REST_MS_MAX = 1500
const OBSERVE_MS = 100
const CALM_MS = 500

/** Rejects if the cluster does not recover after the faults. */
export async function haRound(options: RoundOptions): Promise<RoundResult> {
  const { clients = 20, ms, seed, world } = options
  const { cluster } = world
  const random = new Random(seed)
  const [first, ...rest] = cluster.servers.map(({ name, url }): AskedServer => ({ name, url }))
  if (!first) throw new Error('there is no server')
  const workload = new Workload({
    servers: [first, ...rest],
    token: cluster.token,
    seed,
    prefix: `round-${seed}-${Date.now() % 1e6}/`,
    clients,
    timeoutMs: CLIENT_TIMEOUT_MS,
    pauseMsMax: CLIENT_PAUSE_MS_MAX,
  })
  const faults = new Faults(world, random)
  const observer = new ActiveObserver(cluster.servers, cluster.token)
  const startedMs = performance.now()
  await workload.prepare()
  workload.start()
  observer.start()
  try {
    await sleep(CALM_MS)
    const kinds = options.kinds ?? faults.kinds
    let deck: readonly FaultKind[] = []
    while (performance.now() - startedMs < ms) {
      if (deck.length === 0) deck = shuffled(kinds, random)
      const [kind, ...left] = deck
      deck = left
      if (kind !== undefined) await faults.cause(kind)
      await sleep(random.next() * REST_MS_MAX)
    }
    await faults.healAll()
    await sleep(CALM_MS)
  } catch (error) {
    throw new Error(`seed ${seed}: ${messageOf(error)}\n${faults.story.join('\n')}`, { cause: error })
  } finally {
    await workload.finish()
    await observer.stop()
  }
  const overlaps = overlappingActivities(observer.observations)
  const violations = workload.violations().map(({ report }) => report)
  const answers = [...workload.answers].map(([name, count]) => `${name}: ${count}`).join(', ')
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(1)
  const summary = `seed ${seed}: ${violations.length} violations, ${overlaps.length} overlaps, ${faults.story.length} faults, ${seconds} s, answers ${answers}`
  return { summary, story: faults.story, violations, overlaps, unexpected: workload.unexpected }
}

function shuffled<T>(list: readonly T[], random: Random): readonly T[] {
  return list
    .map((value) => ({ value, at: random.next() }))
    .toSorted((a, b) => a.at - b.at)
    .map(({ value }) => value)
}

/** Asks all servers repeatedly whether they are active. */
class ActiveObserver {
  readonly observations: ActiveObservation[] = []
  readonly #servers: readonly HaServerProcess[]
  readonly #client: HaClient
  #isStopped = false
  #ended: Promise<unknown> = Promise.resolve()

  constructor(servers: readonly HaServerProcess[], token: string) {
    this.#servers = servers
    this.#client = new HaClient(token, CLIENT_TIMEOUT_MS)
  }

  start(): void {
    this.#ended = Promise.all(this.#servers.map((server) => this.#observe(server)))
  }

  async #observe(server: HaServerProcess): Promise<void> {
    while (!this.#isStopped) {
      const askedMs = performance.now()
      const outcome = await this.#client.send(server, { method: 'GET', path: 'sys/leader' })
      const answeredMs = performance.now()
      if (outcome.kind === 'answer' && memberOf(outcome.body, 'is_self') === true) {
        const since = String(memberOf(outcome.body, 'active_time'))
        this.observations.push({ askedMs, answeredMs, server: server.name, active: server.name, since })
      }
      await sleep(OBSERVE_MS)
    }
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await this.#ended
    this.#client.close()
  }
}
