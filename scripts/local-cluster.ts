/**
 * A cluster on this machine: a NATS server with the permissions of `systemd/nats`, outpost servers, and agents with a
 * task each that logs. All files are below one directory, and all processes end with `stop`.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { closeSync, copyFileSync, mkdirSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { natsServerProgram } from './nats-server-program.ts'

const ROOT = resolve(import.meta.dirname, '..')
/** Tests start the bundle of `test-program.ts`. */
const OUTPOST = process.env['OUTPOST_TEST_PROGRAM'] ?? join(ROOT, 'bin/outpost')
const START_MS = 60_000
/** Requests in progress may take 10 s to finish; after that processes are killed. */
const STOP_MS = 15_000
const TASK = 'i=0; while :; do i=$((i+1)); echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $NAME line $i"; sleep 1; done'

export interface Member {
  readonly name: string
  readonly url: string
}

export interface Agent extends Member {
  readonly nodeId: string
  readonly allocationId: string
}

export interface LocalCluster {
  readonly natsUrl: string
  readonly token: string
  readonly servers: readonly Member[]
  readonly agents: readonly Agent[]
  /** Resolves when every process has ended. */
  stop(): Promise<void>
}

export interface LocalClusterOptions {
  /** An empty directory; `<name>/log` below it is the log of each process. */
  readonly directory: string
  readonly servers: readonly string[]
  readonly agents: readonly string[]
  /** Called when a process ends without `stop`. */
  readonly onEnd: (name: string, how: string) => void
  /** Aborts the start. */
  readonly signal: AbortSignal
}

/**
 * Resolves when every server knows every agent and its task. Rejects with an error for the operator, and leaves no
 * process running.
 */
export async function startLocalCluster(options: LocalClusterOptions): Promise<LocalCluster> {
  const cluster = new Cluster(options)
  try {
    await cluster.start()
    return cluster
  } catch (error) {
    await cluster.stop()
    throw error
  }
}

class Cluster implements LocalCluster {
  readonly #options: LocalClusterOptions
  readonly #children = new Map<string, ChildProcess>()
  readonly token = randomBytes(16).toString('hex')
  natsUrl = ''
  servers: Member[] = []
  agents: Agent[] = []
  #isReady = false
  #isStopping = false

  constructor(options: LocalClusterOptions) {
    this.#options = options
  }

  async start(): Promise<void> {
    const { agents, directory, servers } = this.#options
    const members = [...servers.flatMap((name) => ['-server', name]), ...agents.flatMap((name) => ['-agent', name])]
    const nats = ['-nats', 'nats://127.0.0.1:4222']
    execFileSync(OUTPOST, ['cluster', 'keys', '-out', join(directory, 'keys'), ...nats, ...members])
    this.natsUrl = await this.#startNats()
    for (const name of [...servers, ...agents]) this.#startMember(name, servers.includes(name))
    this.servers = await Promise.all(servers.map(async (name) => ({ name, url: await this.#urlOf(name) })))
    this.agents = await Promise.all(agents.map((name) => this.#startTask(name)))
    await this.#until('every server knows every agent', async () => {
      const known = await Promise.all(this.servers.map((server) => this.#knowsAll(server)))
      return known.every(Boolean) || undefined
    })
    this.#isReady = true
  }

  #path(...parts: readonly string[]): string {
    return join(this.#options.directory, ...parts)
  }

  #spawn(name: string, program: string, args: readonly string[], env: Record<string, string> = {}): void {
    mkdirSync(this.#path(name), { recursive: true })
    const log = openSync(this.#path(name, 'log'), 'a', 0o600)
    const child = spawn(program, args, { stdio: ['ignore', log, log], env: { ...process.env, ...env } })
    closeSync(log)
    this.#children.set(name, child)
    const ended = (how: string) => {
      this.#children.delete(name)
      if (this.#isReady && !this.#isStopping) this.#options.onEnd(name, how)
    }
    child.once('error', (error) => ended(error.message))
    child.once('exit', (code, signal) => ended(signal ?? `exit code ${code}`))
  }

  async #startNats(): Promise<string> {
    mkdirSync(this.#path('nats', 'ports'), { recursive: true })
    copyFileSync(this.#path('keys', 'users.conf'), this.#path('nats', 'users.conf'))
    const config = [
      'listen: "127.0.0.1:-1"',
      `ports_file_dir: "${this.#path('nats', 'ports')}"`,
      'accounts { OUTPOST { include "users.conf" } }',
      'max_payload: 4MB',
    ]
    writeFileSync(this.#path('nats', 'nats-server.conf'), config.join('\n'))
    this.#spawn('nats', natsServerProgram(), ['-c', this.#path('nats', 'nats-server.conf')])
    return this.#until('the NATS server listens', () => {
      const [file] = readdirSync(this.#path('nats', 'ports'))
      return file && /nats:\/\/[^"]+/.exec(readFileSync(this.#path('nats', 'ports', file), 'utf8'))?.[0]
    })
  }

  #startMember(name: string, isServer: boolean): void {
    mkdirSync(this.#path(name), { recursive: true })
    const made = readFileSync(this.#path('keys', name, 'cluster.hcl'), 'utf8')
      .replaceAll(/\/etc\/outpost(-server)?/g, this.#path('keys', name))
      .replace('nats://127.0.0.1:4222', this.natsUrl)
    const sha256 = createHash('sha256').update(this.token).digest('hex')
    const policy = 'node { policy = "write" } agent { policy = "write" } namespace "*" { policy = "write" }'
    const acl = `acl {\n  token "operator" {\n    sha256 = "${sha256}"\n    policy = ${JSON.stringify(policy)}\n  }\n}\n`
    const own = `data_dir = "${this.#path(name, 'data')}"\nports { http = 0 }\nclient { gc_disk_usage_threshold = 99 }\n`
    writeFileSync(this.#path(name, 'agent.hcl'), own + (isServer ? acl : ''), { mode: 0o600 })
    writeFileSync(this.#path(name, 'cluster.hcl'), made)
    this.#spawn(name, OUTPOST, ['agent', '-config', this.#path(name)])
  }

  #urlOf(name: string): Promise<string> {
    return this.#until(`${name} answers`, () => {
      if (!this.#children.has(name)) throw new Error(`${name} has ended, see ${this.#path(name, 'log')}`)
      return /HTTP: (http:\S+)/.exec(readFileSync(this.#path(name, 'log'), 'utf8'))?.[1]
    })
  }

  async #startTask(name: string): Promise<Agent> {
    const url = await this.#urlOf(name)
    const text = readFileSync(this.#path(name, 'cluster.hcl'), 'utf8')
    const nodeId = /node_id = "(.*)"/.exec(text)?.[1] ?? ''
    const allocationId = randomUUID()
    const about = ['-id', allocationId, '-name', `demo.${name}[0]`, '-job', 'demo', '-task', 'demo']
    const where = ['-data-dir', this.#path(name, 'data')]
    this.#spawn(`${name}-task`, OUTPOST, ['alloc', 'run', ...about, ...where, '--', 'sh', '-c', TASK], { NAME: name })
    return { name, url, nodeId, allocationId }
  }

  async #knowsAll({ url }: Member): Promise<boolean> {
    const headers = { 'X-Nomad-Token': this.token }
    const answers = async (path: string) => (await fetch(`${url}${path}`, { headers })).ok
    for (const { nodeId, allocationId } of this.agents) {
      if (!(await answers(`/v1/client/metadata?node_id=${nodeId}`))) return false
      if (!(await answers(`/v1/client/fs/stat/${allocationId}?path=alloc/logs/demo.stdout.0`))) return false
    }
    return true
  }

  async #until<T>(what: string, check: () => T | undefined | Promise<T | undefined>): Promise<T> {
    for (const endMs = performance.now() + START_MS; performance.now() < endMs; ) {
      const value = await check()
      if (value !== undefined) return value
      this.#options.signal.throwIfAborted()
      await sleep(50)
    }
    throw new Error(`timeout while waiting until ${what}: see the logs below ${this.#options.directory}`)
  }

  /** Tasks and agents first, so that their last messages are still received. */
  async stop(): Promise<void> {
    this.#isStopping = true
    const { servers } = this.#options
    const isLast = (name: string) => name === 'nats' || servers.includes(name)
    await this.#end((name) => !isLast(name))
    await this.#end((name) => servers.includes(name))
    await this.#end(() => true)
  }

  async #end(which: (name: string) => boolean): Promise<void> {
    const children = [...this.#children].filter(([name]) => which(name)).map(([, child]) => child)
    const ended = children.map((child) => new Promise((done) => child.once('exit', done)))
    for (const child of children) child.kill('SIGTERM')
    const late = sleep(STOP_MS, 'late', { ref: false })
    if ((await Promise.race([Promise.all(ended), late])) !== 'late') return
    for (const child of children) child.kill('SIGKILL')
    await Promise.all(ended)
  }
}
