/**
 * What one stolen worker key costs the others, measured: a NATS server with the permissions that are shipped, a server, an
 * honest agent, and a thread with another worker's key that sends all it may. Honest calls go on meanwhile, and are held against
 * those before the flood. Runs where `OUTPOST_FLOOD_SECONDS` is set: see scripts/test-long.ts.
 */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { loadavg } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { type RunningAgent, workDirectory } from '../helpers/agent-process.ts'
import { makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'
import { type PermittedCluster, permittedCluster, TOKEN } from '../helpers/permitted-cluster.ts'

const SECONDS = Number(process.env['OUTPOST_FLOOD_SECONDS'] ?? 0)
/** Messages and, besides, calls with bulk answers that the attacker sends a second. */
const MESSAGES_PER_SECOND = Number(process.env['OUTPOST_FLOOD_MESSAGES'] ?? 5000)
const CALLS_PER_SECOND = Number(process.env['OUTPOST_FLOOD_CALLS'] ?? 33)
const BASELINE_CALLS = 20
const EVERY_MS = 500
const ANSWER_MS_MAX = 10_000
const MEMORY_MIB_MORE = 64
/** Memory of what the attacker left is freed as the collector sees fit, the calls of a silent caller after seven seconds. */
const SETTLE_MS = 90_000
const METRICS = '/v1/metrics?format=prometheus'
const ALLOC = '6f1c0b9e-2f0a-4a51-9d0c-0000000000a1'
const PATHS = [`/v1/client/fs/ls/${ALLOC}`, `/v1/client/fs/stat/${ALLOC}?path=web/local/hello.txt`]

/** One honest call. */
interface Called {
  readonly ms: number
  readonly status: number | string
}

class Honest {
  readonly #server: RunningAgent
  #count = 0

  constructor(server: RunningAgent) {
    this.#server = server
  }

  async call(): Promise<Called> {
    const startedMs = performance.now()
    const path = PATHS[this.#count++ % PATHS.length] ?? ''
    const status = await this.get(path).then(
      async (answer) => (answer.ok ? answer.status : `${answer.status} ${await answer.text()}`),
      (error: unknown) => String(error),
    )
    return { ms: performance.now() - startedMs, status }
  }

  get(path: string): Promise<Response> {
    const signal = AbortSignal.timeout(3 * ANSWER_MS_MAX)
    return fetch(`${this.#server.url}${path}`, { headers: { 'X-Nomad-Token': TOKEN }, signal })
  }

  /** A call each half second, regardless of earlier results, until `isOver`. */
  async calls(isOver: (made: number) => boolean): Promise<Called[]> {
    const made: Promise<Called>[] = []
    for (; !isOver(made.length); await sleep(EVERY_MS)) made.push(this.call())
    return Promise.all(made)
  }
}

function rssMiB({ pid }: RunningAgent): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]) / 1024
}

function told(calls: readonly Called[]): string {
  const good = calls.filter(({ status }) => status === 200)
  const times = good.map(({ ms }) => ms).toSorted((a, b) => a - b)
  const [median = 0, longest = 0] = [times[times.length >> 1], times.at(-1)]
  return `${good.length} of ${calls.length} good, median ${median.toFixed(0)} ms, longest ${longest.toFixed(0)} ms`
}

function attackerOf(cluster: PermittedCluster, directory: string): Worker {
  const seed = new TextDecoder().decode(cluster.seedOf('w2'))
  const login = { natsUrl: cluster.nats.url, seed, nkeyFile: join(directory, 'keys/w2/cluster.nk') }
  const tls = { caFile: join(directory, 'ca.pem'), authority: cluster.authority }
  const rates = { seconds: SECONDS, messagesPerSecond: MESSAGES_PER_SECOND, callsPerSecond: CALLS_PER_SECOND }
  const workerData = { ...login, ...tls, ...rates, nodeId: cluster.nodeIdOf('w2'), token: TOKEN }
  return new Worker(new URL('../helpers/flooding-host.ts', import.meta.url), { workerData })
}

/** Waits until memory is released, and returns its size by kind. */
async function settledMiB(
  server: RunningAgent,
  honest: Honest,
  mostMiB: number,
): Promise<{ rss: number; kinds: string }> {
  const endMs = performance.now() + SETTLE_MS
  while (rssMiB(server) > mostMiB && performance.now() < endMs) await sleep(EVERY_MS)
  const text = await (await honest.get(METRICS)).text()
  const kinds = [...text.matchAll(/^outpost_memory_bytes\{.*kind="(\w+)".*\} (\d+)/gm)]
  return {
    rss: rssMiB(server),
    kinds: kinds.map(([, kind = '', bytes]) => `${kind} ${(Number(bytes) / 2 ** 20).toFixed(0)}`).join(', '),
  }
}

/** Looks at the server each second: the most memory that it had, and the longest delay of its event loop. */
async function watch(server: RunningAgent, honest: Honest, isOver: () => boolean) {
  const most = { rssMiB: 0, delaySeconds: 0 }
  for (; !isOver(); await sleep(1000)) {
    most.rssMiB = Math.max(most.rssMiB, rssMiB(server))
    const text = await honest.get(METRICS).then((answer) => answer.text(), String)
    const delay = Number(/^outpost_event_loop_delay_max_seconds(?:\{.*\})? (\S+)/m.exec(text)?.[1] ?? 0)
    most.delaySeconds = Math.max(most.delaySeconds, delay)
  }
  return most
}

async function flooded(t: TestContext): Promise<void> {
  const directory = workDirectory(t)
  const cluster = await permittedCluster(t, directory, ['-server', 's1', '-agent', 'w1', '-agent', 'w2'])
  assert.ok(cluster, 'needs openssl')
  const server = await cluster.start('s1')
  makeAllocation(join(directory, 'w1/data/alloc'), ALLOC)
  await cluster.start('w1')
  const honest = new Honest(server)
  await eventually(async () => (await honest.call()).status === 200, 'the honest host is served')
  const before = await honest.calls((made) => made >= BASELINE_CALLS)
  const beforeMiB = rssMiB(server)

  const over = { is: false }
  const attacker = attackerOf(cluster, directory)
  const sent = once(attacker, 'message')
  const ended = once(attacker, 'exit').then(() => (over.is = true))
  const [during, most] = await Promise.all([
    honest.calls(() => over.is),
    watch(server, honest, () => over.is),
    Promise.race([sent, ended]).then(() => attacker.terminate()),
  ])
  const after = await honest.calls((made) => made >= BASELINE_CALLS)
  const overMiB = rssMiB(server)
  const endMs = performance.now()
  const settled = await settledMiB(server, honest, 2 * beforeMiB + MEMORY_MIB_MORE)
  const settleSeconds = (performance.now() - endMs) / 1000
  const [what] = over.is ? await sent : [{}]
  const memory = [beforeMiB, most.rssMiB, overMiB, settled.rss].map((mib) => mib.toFixed(0)).join(' → ')
  const load = loadavg().map((each) => each.toFixed(1))
  t.diagnostic(`sent in ${SECONDS} s: ${JSON.stringify(what)}; load ${load.join(' ')}`)
  t.diagnostic(`honest calls before: ${told(before)}`)
  t.diagnostic(`honest calls during: ${told(during)}`)
  t.diagnostic(`honest calls after: ${told(after)}`)
  t.diagnostic(`memory of the server: ${memory} MiB (the last ${settleSeconds.toFixed(0)} s later); ${settled.kinds}`)
  t.diagnostic(`longest event-loop delay ${most.delaySeconds.toFixed(2)} s`)
  const failed = during.filter(({ status }) => status !== 200)
  for (const { ms, status } of failed) t.diagnostic(`failed after ${ms.toFixed(0)} ms: ${status}`)
  t.diagnostic(
    `log: ${server
      .stderr()
      .split('\n')
      .filter((line) => /WARN|ERROR/i.test(line))
      .slice(-12)
      .join('\n')}`,
  )

  assert.equal(server.child.exitCode, null, 'the server lives')
  const answer = await honest.get(`/v1/allocation/${ALLOC}`)
  const { NodeID: owner } = (await answer.json()) as { NodeID: string }
  assert.equal(owner, cluster.nodeIdOf('w1'), 'the honest host keeps its allocation')
  assert.deepEqual(failed, [], 'every honest call succeeds')
  assert.ok(during.length >= SECONDS && during.every(({ ms }) => ms < ANSWER_MS_MAX), 'in time')
  assert.ok(settled.rss <= 2 * beforeMiB + MEMORY_MIB_MORE, 'memory comes back')
}

if (SECONDS > 0) test('honest calls succeed while a host with a stolen key floods NATS', { timeout: 600_000 }, flooded)
