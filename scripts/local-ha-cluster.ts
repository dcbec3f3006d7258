/**
 * Outpost servers with one secrets core in high availability, and a NATS cluster with JetStream, on this machine: for the
 * demonstration (`npm run cluster -- --ha`), for tests and for benchmarks. Each member is a process that can be killed,
 * paused and restarted on its address with its data. All files are below one directory.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { jetStreamConfiguration } from './jetstream-configuration.ts'
import { natsServerProgram } from './nats-server-program.ts'

const OUTPOST = resolve(import.meta.dirname, '../bin/outpost')
const START_MS = 60_000
const POLL_MS = 25
/** Requests in progress may take 10 s to finish; after that processes are killed. */
const STOP_MS = 15_000
const ANSWER_MS = 10_000
/** A paused process does not answer. */
const HEALTH_MS = 1000

/** Where the members listen. */
export interface MemberNetwork {
  addressOf(member: string): string
  /** A program with arguments that starts a program of the member. */
  through(member: string): readonly string[]
}

export const LOOPBACK: MemberNetwork = { addressOf: () => '127.0.0.1', through: () => [] }

export interface HaClusterOptions {
  /** An empty directory; `<name>/log` below it is the log of each process. */
  readonly directory: string
  readonly servers?: readonly string[]
  readonly nats?: readonly string[]
  readonly replicas?: number
  readonly network?: MemberNetwork
  /** The launcher of outpost. */
  readonly program?: string
  /** Further lines of the configuration of each server. */
  readonly serverSettings?: string
  /** Further environment of a server. */
  readonly environmentOf?: (server: string) => Readonly<Record<string, string>>
  /** Further lines of the configuration of each server. */
  readonly configuration?: readonly string[]
  /** Called when a process ends that was not killed here. */
  readonly onEnd?: (name: string, how: string) => void
  /** Aborts waiting. */
  readonly signal?: AbortSignal
}

interface Launch {
  readonly program: string
  readonly args: readonly string[]
  readonly env: Readonly<Record<string, string>>
}

/** A process with an address and data that outlive it. */
export class HaMemberProcess {
  readonly name: string
  readonly directory: string
  readonly #launch: Launch
  readonly #onEnd: (name: string, how: string) => void
  #child: ChildProcess | undefined
  #isEnding = false
  isPaused = false

  constructor(name: string, directory: string, launch: Launch, onEnd: (name: string, how: string) => void) {
    this.name = name
    this.directory = directory
    this.#launch = launch
    this.#onEnd = onEnd
  }

  get pid(): number | undefined {
    return this.isRunning ? this.#child?.pid : undefined
  }

  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null
  }

  get log(): string {
    return readFileSync(join(this.directory, 'log'), 'utf8')
  }

  /** Does not wait until it is ready. */
  start(): void {
    if (this.isRunning) return
    this.#isEnding = false
    this.isPaused = false
    const log = openSync(join(this.directory, 'log'), 'a', 0o600)
    const { args, env, program } = this.#launch
    const child = spawn(program, args, { stdio: ['ignore', log, log], env: { ...process.env, ...env } })
    closeSync(log)
    this.#child = child
    const ended = (how: string) => {
      if (!this.#isEnding) this.#onEnd(this.name, how)
    }
    child.once('error', (error) => ended(error.message))
    child.once('exit', (code, signal) => ended(signal ?? `exit code ${code}`))
  }

  /** SIGKILL; resolves when the process has ended. */
  kill(): Promise<void> {
    return this.#end('SIGKILL')
  }

  /** SIGTERM, and SIGKILL after some time. */
  stop(): Promise<void> {
    return this.#end('SIGTERM')
  }

  pause(): void {
    this.isPaused = this.#child?.kill('SIGSTOP') ?? false
  }

  resume(): void {
    this.#child?.kill('SIGCONT')
    this.isPaused = false
  }

  async #end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    const child = this.#child
    if (!child || !this.isRunning) return
    this.#isEnding = true
    const ended = new Promise((done) => child.once('exit', done))
    child.kill(signal)
    this.resume()
    if ((await Promise.race([ended, sleep(STOP_MS, 'late', { ref: false })])) === 'late') child.kill('SIGKILL')
    await ended
  }
}

export interface HaServerProcess {
  readonly name: string
  readonly url: string
  readonly process: HaMemberProcess
}

export interface NatsProcess {
  readonly name: string
  readonly url: string
  /** Of its monitoring endpoints. */
  readonly monitorUrl: string
  readonly process: HaMemberProcess
}

export type ServerHealth = 'active' | 'standby' | 'sealed' | 'uninitialized' | 'unavailable'

/** What `-dev` mounts at `secret/`. */
const KEY_VALUE = { type: 'kv', options: { version: '2' } }

const HEALTH: Readonly<Record<number, ServerHealth>> = {
  200: 'active',
  429: 'standby',
  473: 'standby',
  501: 'uninitialized',
  503: 'sealed',
}

export interface ClusterAnswer {
  readonly status: number
  readonly body: string
}

export class LocalHaCluster {
  readonly directory: string
  servers: readonly HaServerProcess[] = []
  nats: readonly NatsProcess[] = []
  /** One share opens the core. */
  unsealKey = ''
  token = ''
  readonly #options: HaClusterOptions

  private constructor(options: HaClusterOptions) {
    this.#options = options
    this.directory = options.directory
  }

  /**
   * Starts all members, initializes the core at the first server, unseals all and mounts `secret/`. Rejects with an error for the operator,
   * and leaves no process running.
   */
  static async start(options: HaClusterOptions): Promise<LocalHaCluster> {
    const cluster = await LocalHaCluster.sealed(options)
    try {
      await cluster.initialize()
      await Promise.all(cluster.servers.map((server) => cluster.unseal(server)))
      await cluster.settled()
      await cluster.#mountSecrets()
      return cluster
    } catch (error) {
      await cluster.stop()
      throw error
    }
  }

  /** The members are started, and the core is not initialized. */
  static async sealed(options: HaClusterOptions): Promise<LocalHaCluster> {
    const cluster = new LocalHaCluster(options)
    try {
      await cluster.#startAll()
      return cluster
    } catch (error) {
      await cluster.stop()
      throw error
    }
  }

  async #startAll(): Promise<void> {
    const { nats = ['n1', 'n2', 'n3'], servers = ['s1', 's2', 's3'] } = this.#options
    const natsPorts = await Promise.all(nats.map(async (name) => ({ name, ...(await this.#ports(name)) })))
    this.nats = natsPorts.map((ports) => this.#natsNode(ports, natsPorts))
    for (const { process } of this.nats) process.start()
    await this.until('JetStream has a meta leader', () => this.#hasMetaLeader())
    const serverPorts = await Promise.all(servers.map(async (name) => ({ name, ...(await this.#ports(name)) })))
    this.servers = serverPorts.map((ports) => this.#server(ports))
    for (const { process } of this.servers) process.start()
    await Promise.all(this.servers.map((server) => this.answers(server)))
  }

  async #ports(name: string) {
    const [first, second, third] = this.#network === LOOPBACK ? await freePorts(3) : [4646, 4647, 8222]
    return { address: this.#network.addressOf(name), first: first ?? 0, second: second ?? 0, third: third ?? 0 }
  }

  get #network(): MemberNetwork {
    return this.#options.network ?? LOOPBACK
  }

  #process(name: string, program: string, args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    const [first = program, ...rest] = [...this.#network.through(name), program, ...args]
    const { onEnd = () => undefined } = this.#options
    return new HaMemberProcess(name, join(this.directory, name), { program: first, args: rest, env }, onEnd)
  }

  #natsNode({ name, ...ports }: NamedPorts, all: readonly NamedPorts[]): NatsProcess {
    const directory = join(this.directory, name)
    mkdirSync(join(directory, 'jetstream'), { recursive: true })
    const file = join(directory, 'nats-server.conf')
    writeFileSync(file, natsConfiguration({ name, ...ports }, all, join(directory, 'jetstream')))
    const url = `nats://${ports.address}:${ports.first}`
    const monitorUrl = `http://${ports.address}:${ports.third}`
    return { name, url, monitorUrl, process: this.#process(name, natsServerProgram(), ['-c', file]) }
  }

  #server({ address, first, name, second }: NamedPorts): HaServerProcess {
    const directory = join(this.directory, name)
    mkdirSync(join(directory, 'data'), { recursive: true })
    const file = join(directory, 'server.hcl')
    const lines = [
      `name = "${name}"`,
      `data_dir = "${directory}/data"`,
      `bind_addr = "${address}"`,
      `ports {\n  http = ${first}\n  cluster = ${second}\n}`,
      `server {\n  enabled = true\n  ha {\n    enabled = true\n    replicas = ${this.#replicas}\n  }\n}`,
      `nats { servers = [${this.nats.map(({ url }) => `"${url}"`).join(', ')}] }`,
      'limits { http_max_conns_per_client = 0 }',
      ...(this.#options.configuration ?? []),
      ...(this.#options.serverSettings === undefined ? [] : [this.#options.serverSettings]),
    ]
    writeFileSync(file, `${lines.join('\n')}\n`, { mode: 0o600 })
    const env = this.#options.environmentOf?.(name) ?? {}
    const program = this.#options.program ?? OUTPOST
    const launched = this.#process(name, program, ['agent', '-config', file], env)
    return { name, url: `http://${address}:${first}`, process: launched }
  }

  get #replicas(): number {
    return this.#options.replicas ?? this.nats.length
  }

  /** Resolves when the server answers requests. */
  async answers(server: HaServerProcess): Promise<void> {
    const { name, process } = server
    await this.until(`${name} answers`, async () => {
      if (!process.isRunning) throw new Error(`${name} has ended, see ${join(process.directory, 'log')}`)
      return (await this.health(server)) !== 'unavailable'
    })
  }

  async initialize(): Promise<void> {
    const [first] = this.servers
    if (!first) throw new Error('the cluster has no server')
    const body = { secret_shares: 1, secret_threshold: 1 }
    const text = await this.until('the core is initialized', async () => {
      const answer = await this.ask(first, 'PUT', '/v1/sys/init', body)
      if (answer.status !== 200 && answer.status !== 503) throw new Error(`sys/init: ${answer.status} ${answer.body}`)
      return answer.status === 200 ? answer.body : undefined
    })
    const made: { keys_base64: string[]; root_token: string } = JSON.parse(text)
    this.unsealKey = made.keys_base64[0] ?? ''
    this.token = made.root_token
  }

  async #mountSecrets(): Promise<void> {
    const { body, status } = await this.ask(await this.activeServer(), 'POST', '/v1/sys/mounts/secret', KEY_VALUE)
    if (status >= 300) throw new Error(`sys/mounts/secret: ${status} ${body}`)
  }

  /** Retries while the server does not know that the core is initialized. */
  async unseal(server: HaServerProcess): Promise<void> {
    await this.until(`${server.name} is unsealed`, async () => {
      const health = await this.health(server)
      if (health === 'active' || health === 'standby') return true
      await this.ask(server, 'PUT', '/v1/sys/unseal', { key: this.unsealKey }).catch(() => undefined)
      return undefined
    })
  }

  /** Starts the server if it does not run, and unseals it. */
  async restart(server: HaServerProcess): Promise<void> {
    server.process.start()
    await this.answers(server)
    await this.unseal(server)
  }

  async health({ url }: { readonly url: string }): Promise<ServerHealth> {
    try {
      const { status, body } = await request(`${url}/v1/sys/health`, { timeoutMs: HEALTH_MS })
      // Without a secrets core yet.
      return HEALTH[status] === 'sealed' && !body.includes('"sealed"')
        ? 'unavailable'
        : (HEALTH[status] ?? 'unavailable')
    } catch {
      return 'unavailable'
    }
  }

  async active(): Promise<HaServerProcess | undefined> {
    const all = await Promise.all(this.servers.map((server) => this.health(server)))
    return this.servers.find((_, at) => all[at] === 'active')
  }

  /** The active server, once there is one. */
  activeServer(): Promise<HaServerProcess> {
    return this.until('a server is active', () => this.active())
  }

  /** Resolves when one server is active and all others are standby. */
  async settled(): Promise<void> {
    await this.until('one server is active and the others are standby', async () => {
      const all = await Promise.all(this.servers.map((server) => this.health(server)))
      const active = all.filter((health) => health === 'active').length
      return active === 1 && all.every((health) => health === 'active' || health === 'standby')
    })
  }

  /** The NATS node that leads the commit stream; undefined while there is none. */
  async streamLeader(): Promise<NatsProcess | undefined> {
    for (const { monitorUrl } of this.nats) {
      const answer = await request(`${monitorUrl}/jsz?accounts=true&streams=true`, { timeoutMs: HEALTH_MS }).catch(
        () => undefined,
      )
      const found = answer && /"name":\s*"OUTPOST_\w+_COMMITS"[^]*?"leader":\s*"(\w*)"/.exec(answer.body)?.[1]
      const node = this.nats.find(({ name, process }) => name === found && process.isRunning && !process.isPaused)
      if (node) return node
    }
    return undefined
  }

  async #hasMetaLeader(): Promise<boolean> {
    for (const { name, process } of this.nats) {
      if (!process.isRunning) throw new Error(`${name} has ended, see ${join(process.directory, 'log')}`)
    }
    const answers = await Promise.all(
      this.nats.map(({ monitorUrl }) =>
        request(`${monitorUrl}/healthz`, { timeoutMs: HEALTH_MS }).catch(() => undefined),
      ),
    )
    return answers.every((answer) => answer?.status === 200)
  }

  /** Resolves when all NATS nodes and their streams are healthy. */
  async natsSettled(): Promise<void> {
    await this.until('NATS is healthy', () => this.#hasMetaLeader())
  }

  /** A request with the root token. */
  ask({ url }: { readonly url: string }, method: string, path: string, body?: object): Promise<ClusterAnswer> {
    return request(`${url}${path}`, { method, token: this.token, body, timeoutMs: ANSWER_MS })
  }

  /** Polls until `check` returns a value other than undefined and false. */
  async until<T>(
    what: string,
    check: () => T | undefined | false | Promise<T | undefined | false>,
    limitMs = START_MS,
  ): Promise<T> {
    for (const endMs = performance.now() + limitMs; performance.now() < endMs; ) {
      const value = await check()
      if (value !== undefined && value !== false) return value
      this.#options.signal?.throwIfAborted()
      await sleep(POLL_MS)
    }
    throw new Error(`timeout while waiting until ${what}: see the logs below ${this.directory}`)
  }

  /** Servers first, so that they release the lease. */
  async stop(): Promise<void> {
    await Promise.all(this.servers.map(({ process }) => process.stop()))
    await Promise.all(this.nats.map(({ process }) => process.stop()))
  }
}

interface MemberPorts {
  readonly address: string
  readonly first: number
  readonly second: number
  readonly third: number
}

interface NamedPorts extends MemberPorts {
  readonly name: string
}

function natsConfiguration(
  { address, first, name, second, third }: NamedPorts,
  all: readonly NamedPorts[],
  store: string,
) {
  const routes = all.map((each) => `"nats://${each.address}:${each.second}"`)
  return [
    `server_name: ${name}`,
    `listen: "${address}:${first}"`,
    `http: "${address}:${third}"`,
    'max_payload: 4MB',
    ...(all.length > 1
      ? [`cluster {\n  name: outpost\n  listen: "${address}:${second}"\n  routes: [${routes.join(', ')}]\n}`]
      : []),
    jetStreamConfiguration(store),
    '',
  ].join('\n')
}

interface RequestOptions {
  readonly method?: string
  readonly token?: string
  readonly body?: object | undefined
  readonly timeoutMs: number
}

async function request(
  url: string,
  { body, method = 'GET', timeoutMs, token }: RequestOptions,
): Promise<ClusterAnswer> {
  const headers = token === undefined || token === '' ? {} : { 'X-Vault-Token': token }
  const init = { method, headers, signal: AbortSignal.timeout(timeoutMs), ...(body && { body: JSON.stringify(body) }) }
  const response = await fetch(url, init)
  return { status: response.status, body: await response.text() }
}

/** Free ports outside the range of outgoing connections. A process that is restarted needs its old one. */
export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = []
  while (ports.length < count) {
    const port = 20_000 + Math.floor(Math.random() * 12_000)
    if (!ports.includes(port) && (await isFree(port))) ports.push(port)
  }
  return ports
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer().listen(port, '127.0.0.1')
  const free = await new Promise<boolean>((done) => {
    server.once('listening', () => done(true))
    server.once('error', () => done(false))
  })
  if (free) await new Promise((done) => server.close(done))
  return free
}
