/** Servers of several clusters, as processes or in this process, and the operator steps between them. */
import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { decodeToken } from '../../src/storage/seal/token-generation.ts'
import { type AgentHere, agentHere } from './agent-here.ts'
import { type RunningAgent, startAgent, workDirectory } from './agent-process.ts'
import { eventually } from './eventually.ts'
import { quietPort } from './quiet-port.ts'
import { writeServer } from './secrets-server.ts'

export const DR = 'sys/replication/dr'

/** Fields of a response. */
export interface ApiAnswer {
  readonly status: number
  readonly text: string
  readonly data: Readonly<Record<string, unknown>>
  readonly errors: readonly string[]
  readonly warnings: readonly string[]
  readonly body: Readonly<Record<string, unknown>>
}

export interface ClusterKeys {
  readonly shares: readonly string[]
  readonly token: string
}

/** One server with a core. A process may be killed and restarted, also as a server in this process. */
export class DrServer {
  readonly t: TestContext
  readonly directory: string
  readonly #file: string
  /** Environment of the process at its next start. */
  env: Readonly<Record<string, string>> = {}
  agent: AgentHere | RunningAgent
  /** Keys of its initialization. */
  keys: ClusterKeys = { shares: [], token: '' }

  private constructor(t: TestContext, directory: string, file: string, agent: AgentHere | RunningAgent) {
    this.t = t
    this.directory = directory
    this.#file = file
    this.agent = agent
  }

  /** Initialized and unsealed. `more` is added to the block `server`. */
  static async start(
    t: TestContext,
    name: string,
    more = '',
    directory = workDirectory(t),
    env: Readonly<Record<string, string>> = {},
  ): Promise<DrServer> {
    const { file, home } = await written(directory, name, more)
    const server = new DrServer(t, home, file, await startAgent(t, ['-config', file], { env }))
    await server.initialise()
    return server
  }

  /** As `start`, in this process, which cannot be killed. */
  static async startHere(t: TestContext, name: string, more = '', directory = workDirectory(t)): Promise<DrServer> {
    const { file, home } = await written(directory, name, more)
    const server = new DrServer(t, home, file, await agentHere(t, ['-config', file]))
    await server.initialise()
    return server
  }

  async initialise(): Promise<void> {
    // A secondary in the region of its primary is a second core until it is enabled.
    const made = await this.told('PUT', 'sys/init', { secret_shares: 3, secret_threshold: 2, force: true }, '')
    const shares = (made.body['keys_base64'] as string[]).slice(0, 2)
    this.keys = { shares, token: String(made.body['root_token']) }
    await this.unseal(this.keys)
  }

  async unseal({ shares }: ClusterKeys): Promise<void> {
    for (const key of shares) await this.told('PUT', 'sys/unseal', { key }, '')
  }

  async ask(method: string, path: string, body?: unknown, token = this.keys.token): Promise<ApiAnswer> {
    const headers = { 'Content-Type': 'application/json', ...(token === '' ? {} : { 'X-Vault-Token': token }) }
    const init = body === undefined ? {} : { body: JSON.stringify(body) }
    const response = await fetch(`${this.agent.url}/v1/${path}`, { method, headers, ...init })
    const text = await response.text()
    const parsed = JSON.parse(text || '{}') as Record<string, unknown>
    return {
      status: response.status,
      text,
      data: (parsed['data'] ?? {}) as ApiAnswer['data'],
      errors: (parsed['errors'] ?? []) as string[],
      warnings: (parsed['warnings'] ?? []) as string[],
      body: parsed,
    }
  }

  /** As `ask`, and fails for an error status. */
  async told(method: string, path: string, body?: unknown, token?: string): Promise<ApiAnswer> {
    const answer = await this.ask(method, path, body, token)
    assert.ok(answer.status === 200 || answer.status === 204, `${method} ${path}: ${answer.status} ${answer.text}`)
    return answer
  }

  async status(): Promise<ApiAnswer['data']> {
    return (await this.told('GET', `${DR}/status`, undefined, '')).data
  }

  async health(): Promise<number> {
    return (await fetch(`${this.agent.url}/v1/sys/health`)).status
  }

  /** Kills the process with SIGKILL. */
  async kill(): Promise<void> {
    const { child, ended } = this.process
    child.kill('SIGKILL')
    await ended
  }

  get process(): RunningAgent {
    assert.ok('child' in this.agent, 'it has no process of its own')
    return this.agent
  }

  async restart(): Promise<void> {
    this.agent = await startAgent(this.t, ['-config', this.#file], { env: this.env })
  }

  /** As `restart`, in this process. */
  async restartHere(): Promise<void> {
    this.agent = await agentHere(this.t, ['-config', this.#file])
  }

  /** A wrapped activation token of this primary. */
  async issue(id: string, more: object = {}): Promise<string> {
    const { body, data } = await this.told('POST', `${DR}/primary/secondary-token`, { id, ...more })
    return String(data['token'] ?? (body['wrap_info'] as Record<string, unknown>)['token'])
  }

  /** An operation token of this secondary from key shares of its primary. */
  async operationToken({ shares }: ClusterKeys): Promise<string> {
    const path = `${DR}/secondary/generate-operation-token`
    const { nonce, otp } = (await this.told('PUT', `${path}/attempt`, {}, '')).body
    let encoded: unknown
    for (const key of shares)
      encoded = (await this.told('PUT', `${path}/update`, { key, nonce }, '')).body['encoded_token']
    return decodeToken(String(encoded), String(otp))
  }

  /** Waits until it has all commits of `primary` and streams. */
  async follows(primary: DrServer): Promise<void> {
    await eventually(async () => {
      const [own, other] = [await this.status(), await primary.status()]
      return own['state'] === 'stream-wals' && own['merkle_root'] === other['merkle_root']
    }, 'the secondary follows')
  }
}

async function written(directory: string, name: string, more: string) {
  const home = join(directory, name)
  mkdirSync(home, { recursive: true })
  // Other servers know its cluster port, so it stays the same over restarts, and no outgoing connection may take it.
  return { home, file: writeServer(home, more, await quietPort()) }
}

/** A primary and its secondary `id`, which is unsealed with the shares of the primary and follows it. */
export async function drPair(
  t: TestContext,
  { id = 'b', more = '' }: { readonly id?: string; readonly more?: string } = {},
): Promise<{ readonly primary: DrServer; readonly secondary: DrServer }> {
  const directory = workDirectory(t)
  const [primary, secondary] = await Promise.all([
    DrServer.start(t, 'a', more, directory),
    DrServer.start(t, 'b', more, directory),
  ])
  await primary.told('POST', `${DR}/primary/enable`)
  await secondary.told('POST', `${DR}/secondary/enable`, { token: await primary.issue(id) })
  await secondary.follows(primary)
  await secondary.unseal(primary.keys)
  return { primary, secondary }
}
