/** Several servers with one secrets core on this machine, outpost's or the peer's, as the benchmarks of high availability use them. */
import { setTimeout as pause } from 'node:timers/promises'
import { type HaServerProcess, LocalHaCluster } from '../../scripts/local-ha-cluster.ts'
import { removeDirectory, temporaryDirectory } from './child.ts'
import { WrongContent } from './figure.ts'
import type { Request } from './load.ts'

export interface SiteServer {
  readonly name: string
  readonly port: number
}

export interface HaSite {
  readonly name: string
  readonly servers: readonly SiteServer[]
  readonly token: string
  /** Of all processes that take part in a write. */
  readonly pids: readonly number[]
  isRunning(server: SiteServer): boolean
  /** SIGKILL; resolves when the process has ended. */
  kill(server: SiteServer): Promise<void>
  /** Starts and unseals it. */
  restart(server: SiteServer): Promise<void>
  stop(): Promise<void>
}

export interface Answer {
  readonly status: number
  readonly body: string
}

const PATIENCE_MS = 60_000
const ANSWER_MS = 20_000

export async function ask(
  port: number,
  method: string,
  path: string,
  { body, timeoutMs = ANSWER_MS, token }: { body?: object; timeoutMs?: number; token?: string } = {},
): Promise<Answer> {
  const response = await fetch(`http://127.0.0.1:${port}/v1/${path}`, {
    method,
    headers: token === undefined ? {} : { 'X-Vault-Token': token },
    signal: AbortSignal.timeout(timeoutMs),
    ...(body && { body: JSON.stringify(body) }),
  })
  return { status: response.status, body: await response.text() }
}

export async function until<T>(what: string, check: () => Promise<T | undefined | false>): Promise<T> {
  for (const endMs = performance.now() + PATIENCE_MS; performance.now() < endMs; ) {
    const value = await check()
    if (value !== undefined && value !== false) return value
    await pause(20)
  }
  throw new WrongContent(`timeout while waiting until ${what}`)
}

/** Status of `sys/health`; 0 without an answer. */
function healthOf({ port }: SiteServer): Promise<number> {
  return ask(port, 'GET', 'sys/health', { timeoutMs: 1000 }).then(
    ({ status }) => status,
    () => 0,
  )
}

const ACTIVE = 200
const STANDBY = new Set([429, 473])

/** The active server, once there is one and all other running servers are standby. */
export function settled(site: HaSite): Promise<SiteServer> {
  return until(`${site.name}: one server is active`, async () => {
    const running = site.servers.filter((server) => site.isRunning(server))
    const all = await Promise.all(running.map(healthOf))
    const isSettled = all.every((status) => status === ACTIVE || STANDBY.has(status))
    if (!isSettled || all.filter((status) => status === ACTIVE).length !== 1) return undefined
    return running[all.indexOf(ACTIVE)]
  })
}

/** A request with the root token, for loads. */
export function request(site: HaSite, verb: string, path: string, fault: Request['fault'], body?: string): Request {
  const length = body === undefined ? '' : `Content-Length: ${body.length}\r\n`
  const header = `X-Vault-Token: ${site.token}\r\n${length}`
  return { verb, path: `/v1/${path}`, header, fault, ...(body !== undefined && { body }) }
}

export class OutpostSite implements HaSite {
  readonly name = 'outpost'
  readonly cluster: LocalHaCluster
  readonly #directory: string
  readonly #processes = new Map<SiteServer, HaServerProcess>()

  private constructor(cluster: LocalHaCluster, directory: string) {
    this.cluster = cluster
    this.#directory = directory
    // A program that is interrupted leaves no process behind.
    process.once('exit', () => {
      for (const pid of this.pids) process.kill(pid, 'SIGKILL')
    })
    for (const server of cluster.servers) {
      this.#processes.set({ name: server.name, port: Number(new URL(server.url).port) }, server)
    }
  }

  static async start(): Promise<OutpostSite> {
    const directory = temporaryDirectory()
    const cluster = await LocalHaCluster.start({ directory, serverSettings: 'log_level = "error"' })
    return new OutpostSite(cluster, directory)
  }

  get servers(): readonly SiteServer[] {
    return [...this.#processes.keys()]
  }

  get token(): string {
    return this.cluster.token
  }

  get pids(): readonly number[] {
    const all = [...this.cluster.servers, ...this.cluster.nats]
    return all.flatMap(({ process }) => (process.pid === undefined ? [] : [process.pid]))
  }

  isRunning(server: SiteServer): boolean {
    return this.#processes.get(server)?.process.isRunning ?? false
  }

  async kill(server: SiteServer): Promise<void> {
    await this.#processes.get(server)?.process.kill()
  }

  async restart(server: SiteServer): Promise<void> {
    const found = this.#processes.get(server)
    if (found) await this.cluster.restart(found)
  }

  /** Kills the NATS node that leads the commit stream, and the server. Resolves to a function that restarts the node. */
  async killWithStreamLeader(server: SiteServer): Promise<() => Promise<void>> {
    const leader = await this.cluster.streamLeader()
    if (!leader) throw new WrongContent('the commit stream has no leader')
    await Promise.all([this.kill(server), leader.process.kill()])
    return async () => {
      leader.process.start()
      await this.cluster.natsSettled()
    }
  }

  async stop(): Promise<void> {
    await this.cluster.stop()
    removeDirectory(this.#directory)
  }
}
