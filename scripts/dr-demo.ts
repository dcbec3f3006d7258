/**
 * `npm run dr-demo`: two clusters on this machine go through a disaster and back, each step printed with its time: activation,
 * writes, kill -9 of the primary, promotion with an operation token made from key shares, re-join of the old primary, failback.
 *
 *     node scripts/dr-demo.ts [SECRETS]        100 unless given
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const OUTPOST = process.env['OUTPOST_PROGRAM'] ?? resolve(import.meta.dirname, '../bin/outpost')
const DR = 'sys/replication/dr'
const SECRETS = Number(process.argv[2] ?? 100)
const PATIENCE_MS = 60_000

type Fields = Readonly<Record<string, unknown>>

/** One server in a separate directory. */
class DemoServer {
  readonly name: string
  readonly #file: string
  url = ''
  shares: readonly string[] = []
  token = ''
  #child: ChildProcess | undefined

  constructor(directory: string, name: string, clusterPort: number) {
    this.name = name
    const home = join(directory, name)
    mkdirSync(join(home, 'data'), { recursive: true })
    this.#file = join(home, 'server.hcl')
    const ports = `ports {\n http = 0\n cluster = ${clusterPort}\n}`
    writeFileSync(this.#file, `data_dir = "${home}/data"\n${ports}\nserver { enabled = true }\n`)
  }

  async start(): Promise<void> {
    const child = spawn(OUTPOST, ['agent', '-config', this.#file], { stdio: ['ignore', 'pipe', 'ignore'] })
    this.#child = child
    let text = ''
    await new Promise<void>((started, failed) => {
      child.once('exit', (code) => failed(new Error(`server ${this.name} has ended with ${code}`)))
      child.stdout.setEncoding('utf8').on('data', (piece: string) => {
        text += piece
        if (text.includes('==> outpost agent started')) started()
      })
    })
    this.url = /http:\/\/\S+/.exec(text)?.[0] ?? ''
  }

  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    const child = this.#child
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const gone = new Promise((done) => child.once('exit', done))
    child.kill(signal)
    await gone
  }

  async ask(method: string, path: string, body?: object, token = this.token): Promise<Fields> {
    const headers: Record<string, string> = token === '' ? {} : { 'X-Vault-Token': token }
    const init = { method, headers, ...(body && { body: JSON.stringify(body) }) }
    const response = await fetch(`${this.url}/v1/${path}`, init)
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${path} at ${this.name}: ${response.status} ${text}`)
    return text === '' ? {} : (JSON.parse(text) as Fields)
  }

  async initialise(): Promise<void> {
    const made = await this.ask('PUT', 'sys/init', { secret_shares: 3, secret_threshold: 2 })
    this.shares = (made['keys_base64'] as string[]).slice(0, 2)
    this.token = String(made['root_token'])
    await this.unseal(this.shares)
  }

  async unseal(shares: readonly string[]): Promise<void> {
    for (const key of shares) await this.ask('PUT', 'sys/unseal', { key }, '')
  }

  async status(): Promise<Fields> {
    return (await this.ask('GET', `${DR}/status`, undefined, ''))['data'] as Fields
  }

  async issue(id: string): Promise<string> {
    const { wrap_info: info } = await this.ask('POST', `${DR}/primary/secondary-token`, { id })
    return String((info as Fields)['token'])
  }

  async operationToken(shares: readonly string[]): Promise<string> {
    const path = `${DR}/secondary/generate-operation-token`
    const otp = randomBytes(14).toString('hex')
    const { nonce } = await this.ask('PUT', `${path}/attempt`, { otp }, '')
    let encoded = ''
    for (const key of shares) {
      encoded = String((await this.ask('PUT', `${path}/update`, { key, nonce }, ''))['encoded_token'])
    }
    const pad = Buffer.from(otp)
    return Buffer.from(Buffer.from(encoded, 'base64').map((byte, at) => byte ^ (pad[at] ?? 0))).toString()
  }

  async follows(primary: DemoServer): Promise<void> {
    const deadlineMs = performance.now() + PATIENCE_MS
    for (;;) {
      const [own, other] = [await this.status(), await primary.status()]
      if (own['state'] === 'stream-wals' && own['merkle_root'] === other['merkle_root']) return
      if (performance.now() > deadlineMs) throw new Error(`${this.name} does not follow: ${JSON.stringify(own)}`)
      await sleep(20)
    }
  }
}

const beganAtMs = performance.now()

async function step<T>(what: string, work: () => Promise<T>): Promise<T> {
  const fromMs = performance.now()
  const value = await work()
  const [at, took] = [fromMs - beganAtMs, performance.now() - fromMs].map((ms) => `${Math.round(ms)} ms`)
  process.stdout.write(`${at?.padStart(9)}  ${took?.padStart(8)}  ${what}\n`)
  return value
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const address = server.address()
  await new Promise((done) => server.close(done))
  return typeof address === 'object' ? (address?.port ?? 0) : 0
}

async function readAll(server: DemoServer, token: string, count: number): Promise<void> {
  for (let at = 0; at < count; at++) {
    const { data } = await server.ask('GET', `kv/data/${at}`, undefined, token)
    const value = ((data as Fields)['data'] as Fields)['value']
    if (value !== `value ${at}`) throw new Error(`secret ${at} is ${String(value)}`)
  }
}

async function writeSome(server: DemoServer, token: string, from: number, to: number): Promise<void> {
  for (let at = from; at < to; at++) {
    await server.ask('POST', `kv/data/${at}`, { data: { value: `value ${at}` } }, token)
  }
}

async function demo(a: DemoServer, b: DemoServer): Promise<void> {
  await step('two clusters start', () => Promise.all([a.start(), b.start()]))
  await step('both are initialised and unsealed, with keys of their own', () =>
    Promise.all([a.initialise(), b.initialise()]),
  )
  const { shares, token } = a
  await step('a: primary/enable', () => a.ask('POST', `${DR}/primary/enable`))
  const activation = await step('a: an activation token for b', () => a.issue('b'))
  await step('b: secondary/enable; its data is replaced', () =>
    b.ask('POST', `${DR}/secondary/enable`, { token: activation }),
  )
  await step('b: the first copy is whole, it streams', () => b.follows(a))
  await step('b: unsealed with the key shares of a; its barrier stays closed', () => b.unseal(shares))
  await step(`a: ${SECRETS} secrets are written`, async () => {
    await a.ask('POST', 'sys/mounts/kv', { type: 'kv', options: { version: '2' } })
    await writeSome(a, token, 0, SECRETS)
  })
  await step('b has all of it', () => b.follows(a))
  await step('a: kill -9', () => a.end('SIGKILL'))
  const operation = await step('b: an operation token from two key shares', () => b.operationToken(shares))
  await step('b: promote, until it has answered', () =>
    b.ask('POST', `${DR}/secondary/promote`, { dr_operation_token: operation }, ''),
  )
  await step(`b: all ${SECRETS} secrets are read with the token of a`, () => readAll(b, token, SECRETS))
  await step('b: more secrets are written', () => writeSome(b, token, SECRETS, SECRETS + 10))
  b.token = token
  await step('a: starts again, is unsealed, and is demoted', async () => {
    await a.start()
    await a.unseal(shares)
    await a.ask('POST', `${DR}/primary/demote`)
  })
  const rejoin = await step('a: an operation token from two key shares', () => a.operationToken(shares))
  await step('a: update-primary with a token of b; only what differs is copied', async () => {
    const body = { dr_operation_token: rejoin, token: await b.issue('a') }
    await a.ask('POST', `${DR}/secondary/update-primary`, body, '')
    await a.follows(b)
  })
  await step('failback: b is demoted, a is promoted', async () => {
    await b.ask('POST', `${DR}/primary/demote`)
    await a.ask('POST', `${DR}/secondary/promote`, { dr_operation_token: rejoin }, '')
  })
  await step('a: everything is there', () => readAll(a, token, SECRETS + 10))
}

const directory = mkdtempSync(join(tmpdir(), 'outpost-dr-demo-'))
const servers = [new DemoServer(directory, 'a', await freePort()), new DemoServer(directory, 'b', await freePort())]
try {
  const [a, b] = servers
  if (a && b) await demo(a, b)
} finally {
  await Promise.all(servers.map((server) => server.end('SIGTERM')))
  rmSync(directory, { recursive: true, force: true })
}
