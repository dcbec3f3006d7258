/** A server of another cluster, the DR secondary or primary of an HA cluster. */
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { HaMemberProcess, type LocalHaCluster, freePorts } from '../../../scripts/local-ha-cluster.ts'
import { decodeToken } from '../../../src/storage/seal/token-generation.ts'
import { OUTPOST } from '../program.ts'

const DR = 'sys/replication/dr'

export class DrServer {
  readonly url: string
  readonly process: HaMemberProcess
  /** Root token of its own cluster, and its key share. */
  token = ''
  key = ''

  constructor(url: string, process: HaMemberProcess) {
    this.url = url
    this.process = process
  }

  async told(method: string, path: string, body?: object, token = this.token) {
    const init = { method, headers: { 'X-Vault-Token': token }, ...(body && { body: JSON.stringify(body) }) }
    const response = await fetch(`${this.url}/v1/${path}`, init)
    const text = await response.text()
    assert.ok(response.ok, `${path}: ${response.status} ${text}`)
    return text === '' ? {} : JSON.parse(text)
  }

  async initialize(): Promise<void> {
    const made = await this.told('PUT', 'sys/init', { secret_shares: 1, secret_threshold: 1 })
    this.token = made.root_token
    this.key = made.keys_base64[0]
    await this.unseal(this.key)
  }

  async unseal(key: string): Promise<void> {
    await this.told('PUT', 'sys/unseal', { key })
  }

  async status(): Promise<Readonly<Record<string, unknown>>> {
    return (await this.told('GET', `${DR}/status`)).data
  }

  /** Resolves when it has the entries of the primary. */
  async follow(token: string, primaryUrl: string, cluster: LocalHaCluster): Promise<void> {
    await this.told('POST', `${DR}/secondary/enable`, { token, primary_api_addr: primaryUrl })
    await cluster.until('the secondary has the entries', async () => {
      const { mode, state } = await this.status()
      return mode === 'secondary' && state === 'stream-wals'
    })
    await this.unseal(cluster.unsealKey)
  }

  async promote(unsealKey: string): Promise<void> {
    const token = await operationToken([this], unsealKey)
    await this.told('POST', `${DR}/secondary/promote`, { dr_operation_token: token })
  }

  async list(path: string, token: string): Promise<string[]> {
    return (await this.told('LIST', path, undefined, token)).data.keys
  }
}

/** Started and initialized. */
export async function startDrServer(t: TestContext, cluster: LocalHaCluster): Promise<DrServer> {
  const directory = join(cluster.directory, 'secondary')
  mkdirSync(join(directory, 'data'), { recursive: true })
  const [http, link] = await freePorts(2)
  const file = join(directory, 'server.hcl')
  const lines = [
    'name = "secondary"',
    `data_dir = "${directory}/data"`,
    'bind_addr = "127.0.0.1"',
    `ports {\n  http = ${http}\n  cluster = ${link}\n}`,
    'server { enabled = true }',
  ]
  writeFileSync(file, `${lines.join('\n')}\n`, { mode: 0o600 })
  const launch = { program: OUTPOST, args: ['agent', '-config', file], env: {} }
  const process = new HaMemberProcess('secondary', directory, launch, (_, how) => t.diagnostic(`ended: ${how}`))
  t.after(() => process.kill())
  process.start()
  const secondary = new DrServer(`http://127.0.0.1:${http}`, process)
  await cluster.until('the secondary answers', async () => {
    const health = await cluster.health(secondary)
    return health === 'uninitialized'
  })
  await secondary.initialize()
  return secondary
}

/** An operation token of a secondary; each request goes to the next server. */
export async function operationToken(servers: readonly { readonly url: string }[], key: string): Promise<string> {
  const path = `${DR}/secondary/generate-operation-token`
  const put = async (at: number, step: string, body: object) => {
    const url = `${servers[at % servers.length]?.url}/v1/${path}/${step}`
    const response = await fetch(url, { method: 'PUT', body: JSON.stringify(body) })
    assert.ok(response.ok, `${step}: ${response.status}`)
    return JSON.parse(await response.text())
  }
  const { nonce, otp } = await put(0, 'attempt', {})
  const { encoded_token: encoded } = await put(1, 'update', { key, nonce })
  return decodeToken(encoded, otp)
}
