/**
 * The walk of `npm run cluster -- --ha --walk`: the active server of a high availability cluster is killed during a loop of writes
 * and a watch, restarted, asked to step down, and killed together with the NATS node that leads the commit stream. Each step is
 * printed with its time. At the end every acknowledged write must exist, and the watch must have received it.
 */
import { spawn } from 'node:child_process'
import { resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import type { HaServerProcess, LocalHaCluster } from './local-ha-cluster.ts'

const OUTPOST = resolve(import.meta.dirname, '../bin/outpost')
/** Writes before and after each step. */
const WRITES = 50
const WRITE_DEADLINE_MS = 30_000
const WATCH_MS = 20_000

interface Write {
  readonly number: number
  readonly atMs: number
  readonly tookMs: number
}

/** Writes one secret after another through all servers, each one until it is acknowledged. */
class WriteLoop {
  readonly acknowledged: Write[] = []
  /** Answers other than success, by status. */
  readonly refused = new Map<string, number>()
  readonly #cluster: LocalHaCluster
  #isStopped = false
  readonly #ended: Promise<void>

  constructor(cluster: LocalHaCluster) {
    this.#cluster = cluster
    this.#ended = this.#run()
  }

  async #run(): Promise<void> {
    for (let number = 1; !this.#isStopped; number++) {
      const startedMs = performance.now()
      for (let attempt = 0; !(await this.#write(number, attempt)); attempt++) {
        if (performance.now() - startedMs > WRITE_DEADLINE_MS) throw new Error(`write ${number} was not acknowledged`)
        await sleep(10)
      }
      const atMs = performance.now()
      this.acknowledged.push({ number, atMs, tookMs: atMs - startedMs })
    }
  }

  async #write(number: number, attempt: number): Promise<boolean> {
    const { servers } = this.#cluster
    const server = servers[(number + attempt) % servers.length]
    // A client of a load balancer that leaves out servers that do not run.
    if (!server?.process.isRunning) return false
    const path = `/v1/secret/data/walk/${number}`
    const answer = await this.#cluster.ask(server, 'PUT', path, { data: { number } }).catch(() => undefined)
    if (answer?.status === 200) return true
    const why = answer ? `status ${answer.status}` : 'connection lost'
    this.refused.set(why, (this.refused.get(why) ?? 0) + 1)
    return false
  }

  /** Resolves when this number of further writes is acknowledged. */
  async more(count: number): Promise<void> {
    const wanted = this.acknowledged.length + count
    while (this.acknowledged.length < wanted) await Promise.race([sleep(5), this.#failed()])
  }

  async #failed(): Promise<void> {
    await this.#ended
    throw new Error('the loop of writes has ended')
  }

  /** The longest time without an acknowledgement that ended after `sinceMs`. */
  longestGapMs(sinceMs: number): number {
    const times = this.acknowledged.map(({ atMs }) => atMs)
    return Math.max(0, ...times.map((atMs, at) => (atMs < sinceMs ? 0 : atMs - (times[at - 1] ?? atMs))))
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await this.#ended
  }
}

/** `outpost kv watch` as an operator runs it. */
class WatchCommand {
  readonly paths = new Set<string>()
  errors = ''
  readonly #child: ReturnType<typeof spawn>
  readonly #ended: Promise<number | null>

  constructor(cluster: LocalHaCluster, server: HaServerProcess) {
    const env = { ...process.env, OUTPOST_ADDR: server.url, OUTPOST_TOKEN: cluster.token }
    this.#child = spawn(OUTPOST, ['kv', 'watch', '-format=json', 'secret/walk'], {
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    this.#ended = new Promise((done) => this.#child.once('close', done))
    const { stderr, stdout } = this.#child
    if (!stdout || !stderr) throw new Error('the watch has no output')
    stderr.setEncoding('utf8').on('data', (text: string) => (this.errors += text))
    createInterface({ input: stdout }).on('line', (line) => {
      const path = /walk\/(\d+)/.exec(line)?.[1]
      if (path !== undefined) this.paths.add(path)
    })
  }

  async stop(): Promise<void> {
    this.#child.kill('SIGINT')
    await this.#ended
  }
}

/** Prints the steps; rejects if one of them fails or an acknowledged write is lost. */
export async function haWalk(cluster: LocalHaCluster, print: (line: string) => void): Promise<void> {
  const startedMs = performance.now()
  const step = (what: string) => print(`${((performance.now() - startedMs) / 1000).toFixed(2).padStart(8)} s  ${what}`)
  const first = await cluster.activeServer()
  const standby = cluster.servers.find((server) => server !== first) ?? first
  const watch = new WatchCommand(cluster, standby)
  await cluster.until('the watch is connected', async () => {
    await cluster.ask(standby, 'PUT', '/v1/secret/data/walk/0', { data: {} })
    return watch.paths.has('0')
  })
  const writes = new WriteLoop(cluster)
  try {
    await writes.more(WRITES)
    step(`${first.name} is active; writes through all servers, a watch through ${standby.name}`)
    await measured('kill -9 of the active server', async (active) => active.process.kill())
    await restarted()
    await measured('sys/step-down', async (active) => {
      const { body, status } = await cluster.ask(active, 'PUT', '/v1/sys/step-down')
      if (status >= 300) throw new Error(`sys/step-down: ${status} ${body}`)
    })
    await measured('SIGTERM of the active server', (active) => active.process.stop())
    await restarted()
    await measured('kill -9 of the active server and of the NATS node that leads the commit stream', async (active) => {
      const leader = await cluster.streamLeader()
      await Promise.all([active.process.kill(), leader?.process.kill()])
    })
    await restarted()
    await writes.stop()
    await compare()
  } finally {
    await writes.stop().catch(() => undefined)
    await watch.stop()
  }

  async function measured(what: string, fault: (active: HaServerProcess) => Promise<void>): Promise<void> {
    const before = await cluster.activeServer()
    const faultMs = performance.now()
    await fault(before)
    const after = await cluster.until('another server is active', async () => {
      const active = await cluster.active()
      return active && (active !== before || before.process.isRunning) && active !== before ? active : undefined
    })
    const activeMs = performance.now() - faultMs
    await writes.more(WRITES)
    const gapMs = writes.longestGapMs(faultMs)
    step(`${what} (${before.name}): ${after.name} active after ${ms(activeMs)}, longest wait of a write ${ms(gapMs)}`)
  }

  async function restarted(): Promise<void> {
    for (const { name, process } of cluster.nats) {
      if (process.isRunning) continue
      process.start()
      step(`NATS node ${name} restarted`)
    }
    await cluster.natsSettled()
    for (const server of cluster.servers) {
      if (server.process.isRunning) continue
      await cluster.restart(server)
      step(`${server.name} restarted and unsealed`)
    }
    await cluster.settled()
  }

  async function compare(): Promise<void> {
    const active = await cluster.activeServer()
    for (const { number } of writes.acknowledged) {
      const { status } = await cluster.ask(active, 'GET', `/v1/secret/data/walk/${number}`)
      if (status !== 200) throw new Error(`the acknowledged write ${number} is lost: status ${status}`)
    }
    const missing = () => writes.acknowledged.filter(({ number }) => !watch.paths.has(String(number)))
    const isWatched = () => missing().length === 0
    await cluster.until('the watch has received each acknowledged write', isWatched, WATCH_MS).catch(() => {
      const numbers = missing().map(({ number }) => number)
      throw new Error(`the watch lacks the writes ${numbers.join(', ')}: ${watch.errors}`)
    })
    const refused = [...writes.refused].map(([why, count]) => `${count} × ${why}`).join(', ')
    step(`all ${writes.acknowledged.length} acknowledged writes exist, and the watch has received each of them`)
    step(`attempts that a client repeated: ${refused || 'none'}`)
  }
}

function ms(value: number): string {
  return `${Math.round(value)} ms`
}
