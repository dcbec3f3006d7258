/** A server with its own secrets core: the real launcher, a static seal, initialized over HTTP. */
import type { ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { LAUNCHER, readyPort, Site } from './agent.ts'
import { pidOf, start, stop } from './child.ts'
import { WrongContent } from './figure.ts'
import type { Request } from './load.ts'
import { nowMs } from './measure.ts'

const CONFIG = `client { enabled = true }
server {
  enabled = true
  seal "static" {
    current_key_id = "bench"
    current_key = "${randomBytes(32).toString('hex')}"
  }
}`
const ACTIVE_MS = 30_000

export class CoreServer {
  readonly site: Site
  readonly #launcher: string
  readonly #env: NodeJS.ProcessEnv
  #child: ChildProcess | undefined
  port = 0
  token = ''

  /** `launcher`: of another checkout, to compare with. `env`: beside this process's own. With `info` its log is thrown away. */
  constructor(launcher = LAUNCHER, env: NodeJS.ProcessEnv = {}, logLevel: 'info' | 'error' = 'error') {
    const logFile = logLevel === 'info' ? `log_file = "/dev/null"\n` : ''
    this.site = new Site(0, logFile + CONFIG, logLevel)
    this.#launcher = launcher
    this.#env = { ...process.env, ...env }
  }

  /** Starts it. Resolves to the milliseconds until it reports that it is active. */
  async start(): Promise<number> {
    const beganMs = nowMs()
    this.#child = start(this.#launcher, ['agent', '-config', this.site.configFile], this.#env)
    this.port = await readyPort(this.#child)
    if (this.token === '') return nowMs() - beganMs
    for (;;) {
      const { status } = await this.ask('GET', 'sys/health')
      if (status === 200) return nowMs() - beganMs
      if (nowMs() - beganMs > ACTIVE_MS) throw new WrongContent(`the core is not active: ${status}`)
    }
  }

  async initialise(): Promise<void> {
    const { body } = await this.ask('PUT', 'sys/init', { recovery_shares: 1, recovery_threshold: 1 })
    this.token = String((JSON.parse(body) as { root_token?: unknown }).root_token)
    const made = await this.ask('POST', 'sys/mounts/secret', { type: 'kv', options: { version: '2' } })
    if (made.status !== 204) throw new WrongContent(`no mount of secrets: ${made.body}`)
  }

  get pid(): number {
    return this.#child ? pidOf(this.#child) : 0
  }

  async ask(verb: string, path: string, body?: object): Promise<{ status: number; body: string }> {
    const answer = await fetch(`http://127.0.0.1:${this.port}/v1/${path}`, {
      method: verb,
      headers: this.token === '' ? {} : { 'X-Vault-Token': this.token },
      ...(body && { body: JSON.stringify(body) }),
    })
    return { status: answer.status, body: await answer.text() }
  }

  /** A request with the root token, for loads. */
  request(verb: string, path: string, fault: Request['fault'], body?: string): Request {
    const length = body === undefined ? '' : `Content-Length: ${body.length}\r\n`
    const header = `X-Vault-Token: ${this.token}\r\n${length}`
    return { verb, path: `/v1/${path}`, header, fault, ...(body !== undefined && { body }) }
  }

  /** Bytes of everything that the core keeps. */
  get bytesOnDisk(): number {
    const directory = join(this.site.directory, 'data/server')
    const sizes = readdirSync(directory).map((name) => statSync(join(directory, name)).blocks * 512)
    return sizes.reduce((sum, size) => sum + size, 0)
  }

  async stop(): Promise<void> {
    if (this.#child) await stop(this.#child, 'SIGTERM')
  }

  async remove(): Promise<void> {
    await this.stop()
    await this.site.remove()
  }
}
