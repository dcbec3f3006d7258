/**
 * A cluster of one NATS server, servers and agents. Members are processes, which can be killed, frozen and restarted, or
 * agents in the process of the test, which use a tenth of the CPU and can only be stopped.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { type AgentHere, agentHere } from './agent-here.ts'
import { type NatsServer, startNatsServer } from './nats-server.ts'
import { ask } from './raw-http.ts'
import { OUTPOST } from './program.ts'
import { quietPort } from './quiet-port.ts'
import { makeAllocation } from './allocation.ts'
import { eventually } from './eventually.ts'
import { temporaryDirectory } from './temporary-directory.ts'

export const ROOT_TOKEN = 'token-of-the-root-of-this-cluster'

export interface MemberOptions {
  readonly role: 'server' | 'client'
  readonly natsUrl: string
  readonly acl: string
  readonly nodeId?: string
  /** Further lines of the block of its role. */
  readonly more?: string
  /** Further lines of the block `nats`. */
  readonly nats?: string
  /** An existing data directory. */
  readonly dataDir?: string
  /** Runs in the process of the test. */
  readonly isHere?: boolean | undefined
  /** Environment of its process. */
  readonly env?: Readonly<Record<string, string>>
}

/** One agent that keeps its address and its data over restarts. */
export class Member {
  readonly name: string
  readonly port: number
  readonly url: string
  readonly dataDir: string
  readonly #config: string
  readonly #t: TestContext
  readonly #isHere: boolean
  readonly #env: Readonly<Record<string, string>>
  #child: ChildProcess | undefined
  #here: AgentHere | undefined
  #stderr = ''

  private constructor(t: TestContext, name: string, port: number, options: MemberOptions) {
    this.#t = t
    this.#isHere = options.isHere ?? false
    this.#env = options.env ?? {}
    this.name = name
    this.port = port
    this.url = `http://127.0.0.1:${port}`
    const directory = realpathSync(temporaryDirectory(t))
    this.dataDir = options.dataDir ?? join(directory, 'data')
    this.#config = join(directory, 'agent.hcl')
    mkdirSync(join(this.dataDir, 'alloc'), { recursive: true })
    const id = options.nodeId === undefined ? '' : `\n node_id = "${options.nodeId}"`
    writeFileSync(
      this.#config,
      [
        `name = "${name}"`,
        `data_dir = "${this.dataDir}"`,
        `ports {\n http = ${port}\n cluster = 0\n}`,
        `${options.role} {\n enabled = true${id}\n ${options.more ?? ''}\n}`,
        `nats {\n servers = ["${options.natsUrl}"]\n ${options.nats ?? ''}\n}`,
        options.acl,
        'limits {\n http_max_conns_per_client = 0\n http_max_followers = 0\n}',
      ].join('\n'),
    )
  }

  static async make(t: TestContext, name: string, options: MemberOptions): Promise<Member> {
    const member = new Member(t, name, await quietPort(), options)
    t.after(() => member.kill())
    return member
  }

  get pid(): number {
    return this.#child?.pid ?? 0
  }

  /** Its log since the first start. */
  get stderr(): string {
    return this.#stderr + (this.#here?.stderr() ?? '')
  }

  async start(): Promise<void> {
    const args = ['-config', this.#config, '-log-level', 'info']
    if (this.#isHere) {
      this.#stderr = this.stderr
      this.#here = undefined
      this.#here = await agentHere(this.#t, args)
      return
    }
    const child = spawn(OUTPOST, ['agent', ...args], { env: { ...process.env, ...this.#env } })
    this.#child = child
    let stdout = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
    child.stderr.setEncoding('utf8').on('data', (text: string) => (this.#stderr += text))
    await eventually(() => stdout.includes('agent started') || child.exitCode !== null)
    if (child.exitCode !== null) throw new Error(`${this.name} did not start: ${this.#stderr}`)
  }

  /** A path below its data directory. */
  makeDirectory(name: string): void {
    mkdirSync(join(this.dataDir, name), { recursive: true, mode: 0o700 })
  }

  /** Changes and reloads its configuration. */
  reconfigure(change: (text: string) => string): void {
    writeFileSync(this.#config, change(readFileSync(this.#config, 'utf8')))
    if (this.#isHere) this.#here?.reload()
    else this.signal('SIGHUP')
  }

  signal(name: NodeJS.Signals): void {
    if (this.#isHere) throw new Error(`${this.name} has no process of its own`)
    this.#child?.kill(name)
  }

  kill(): Promise<void> {
    return this.#end('SIGKILL')
  }

  stop(): Promise<void> {
    return this.#end('SIGTERM')
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    await this.#here?.stop()
    const child = this.#child
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const exited = once(child, 'exit')
    child.kill(signal)
    // A frozen process handles no other signal.
    if (signal === 'SIGKILL') child.kill('SIGCONT')
    await exited
  }

  /** Resident memory, in MiB. */
  rssMiB(): number {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${this.pid}/status`, 'latin1'))?.[1]) / 1024
  }

  descriptors(): number {
    return readdirSync(`/proc/${this.pid}/fd`).length
  }

  get nodeId(): string {
    const text = readFileSync(join(this.dataDir, 'client/state.json'), 'utf8')
    const id = /"node_?id":\s*"([0-9a-f-]{36})"/i.exec(text)?.[1]
    if (id === undefined) throw new Error(`no node ID in ${text.slice(0, 40)}`)
    return id
  }
}

export interface Host {
  readonly member: Member
  readonly allocId: string
  /** Directory of the allocation. */
  readonly directory: string
  readonly logs: string
}

export interface ClusterWorld {
  readonly nats: NatsServer
  readonly servers: readonly Member[]
  readonly hosts: readonly Host[]
  /** Requests through a server; the first one by default. */
  server(at?: number): Member
  host(at?: number): Host
  /** Waits until every server forwards calls to every host. */
  settled(): Promise<void>
}

export const allocIdOf = (at: number) => `c1a57e00-0000-4000-8000-00000000000${at}`

/** Each host has an allocation with the task `web`. With `acl`, `ROOT_TOKEN` must be allowed to list files. */
export async function startCluster(
  t: TestContext,
  options: {
    servers?: number
    hosts?: number
    acl?: string
    hostAcl?: string
    nats?: string
    oneCore?: boolean
    /** Roles and members that run in the process of the test. */
    here?: readonly (MemberOptions['role'] | `${MemberOptions['role']}-${number}`)[]
    /** The hosts refuse forwarded calls: the cluster is ready once they do. */
    isShut?: boolean
  } = {},
): Promise<ClusterWorld> {
  const nats = await startNatsServer(t, options.nats)
  const acl = options.acl ?? 'acl { enabled = false }'
  const members = (role: 'server' | 'client', count: number) =>
    Promise.all(
      Array.from({ length: count }, (_, at) => {
        const ofRole = role === 'server' ? acl : (options.hostAcl ?? acl)
        // The first server has the secrets core, if any.
        const more = role === 'server' && options.oneCore && at > 0 ? 'secrets = false' : ''
        const isHere = options.here?.some((each) => each === role || each === `${role}-${at}`)
        return Member.make(t, `${role}-${at}`, { role, natsUrl: nats.url, acl: ofRole, more, isHere })
      }),
    )
  const servers = await members('server', options.servers ?? 1)
  const hosts = (await members('client', options.hosts ?? 2)).map((member, at) => {
    const directory = makeAllocation(join(member.dataDir, 'alloc'), allocIdOf(at))
    return { member, allocId: allocIdOf(at), directory, logs: join(directory, 'alloc/logs') }
  })
  await Promise.all([...servers, ...hosts.map(({ member }) => member)].map((member) => member.start()))
  const world: ClusterWorld = {
    nats,
    servers,
    hosts,
    server: (at) => pick(servers, at),
    host: (at) => pick(hosts, at),
    async settled() {
      const status = options.isShut ? 403 : 200
      for (const { port } of servers) for (const { allocId } of hosts) await answers(port, allocId, status)
    },
  }
  await world.settled()
  return world
}

function pick<T>(list: readonly T[], at = 0): T {
  const found = list[at]
  if (found === undefined) throw new Error(`there are only ${list.length}`)
  return found
}

/** Waits until the files of the allocation can be listed at this port. */
export async function answers(port: number, allocId: string, status = 200): Promise<void> {
  const path = `/v1/client/fs/ls/${allocId}`
  await eventually(
    async () =>
      (await ask(port, 'GET', path, `X-Nomad-Token: ${ROOT_TOKEN}`).catch(() => undefined))?.status === status,
    `${path} on port ${port}`,
  )
}
