/**
 * `npm run dr-demo`: two clusters on this machine go through a disaster and back, each step printed with its time: join, writes, kill -9
 * of the primary, failover with key shares, join of the old primary, planned switchover. The steps are the commands of an operator;
 * only secrets are written and read over the API.
 *
 *     node scripts/dr-demo.ts [SECRETS]        100 unless given
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { text as textOf } from 'node:stream/consumers'

const OUTPOST = process.env['OUTPOST_PROGRAM'] ?? resolve(import.meta.dirname, '../bin/outpost')
const SECRETS = Number(process.argv[2] ?? 100)
const CATCH_UP_MS = 60_000

type Fields = Readonly<Record<string, unknown>>

/** One server in a separate directory. */
class DemoServer {
  readonly name: string
  readonly #home: string
  readonly #file: string
  url = ''
  shares: readonly string[] = []
  token = ''
  #child: ChildProcess | undefined

  constructor(directory: string, name: string, clusterPort: number) {
    this.name = name
    this.#home = join(directory, name)
    mkdirSync(join(this.#home, 'data'), { recursive: true })
    this.#file = join(this.#home, 'server.hcl')
    const ports = `ports {\n http = 0\n cluster = ${clusterPort}\n}`
    writeFileSync(this.#file, `data_dir = "${this.#home}/data"\n${ports}\nserver { enabled = true }\n`)
  }

  async start(): Promise<void> {
    const child = spawn(OUTPOST, ['agent', '-config', this.#file], { stdio: ['ignore', 'pipe', 'ignore'] })
    this.#child = child
    let text = ''
    await new Promise<void>((started, failed) => {
      child.once('exit', (code) => failed(new Error(`server ${this.name} exited with ${code}`)))
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

  /** Runs a command against this server; resolves with its standard output. Secrets are on standard input. */
  async run(line: string, input = ''): Promise<string> {
    const variables = { OUTPOST_ADDR: this.url, OUTPOST_TOKEN: this.token, HOME: this.#home }
    const child = spawn(OUTPOST, line.split(' '), { env: { ...process.env, ...variables } })
    const [out, err] = [textOf(child.stdout), textOf(child.stderr)]
    child.stdin.end(input)
    const code = await new Promise<number | null>((done) => child.once('close', done))
    if (code !== 0) throw new Error(`outpost ${line} at ${this.name}: exit code ${code}: ${await err}`)
    return await out
  }

  async initialise(): Promise<void> {
    const made = JSON.parse(await this.run('operator init -format=json -key-shares=3 -key-threshold=2')) as Fields
    this.shares = (made['unseal_keys_b64'] as string[]).slice(0, 2)
    this.token = String(made['root_token'])
    await this.run('operator unseal -', linesOf(this.shares))
  }

  async status(): Promise<Fields> {
    return JSON.parse(await this.run('operator dr status -json')) as Fields
  }

  /** Resolves when both have the same entries. */
  async hasAllOf(primary: DemoServer): Promise<void> {
    const deadlineMs = performance.now() + CATCH_UP_MS
    for (;;) {
      const [own, other] = await Promise.all([this.status(), primary.status()])
      if (own['merkle_root'] === other['merkle_root'] && own['position'] === other['position']) return
      if (performance.now() > deadlineMs) throw new Error(`${this.name} lacks commits: ${JSON.stringify(own)}`)
    }
  }

  /** A file with the key shares, for a command that reads another secret on standard input. */
  sharesFile(shares: readonly string[]): string {
    const file = join(this.#home, 'shares.txt')
    writeFileSync(file, linesOf(shares), { mode: 0o600 })
    return file
  }

  async ask(method: string, path: string, body?: object): Promise<Fields> {
    const headers = { 'X-Vault-Token': this.token }
    const init = { method, headers, ...(body && { body: JSON.stringify(body) }) }
    const response = await fetch(`${this.url}/v1/${path}`, init)
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${path} at ${this.name}: ${response.status} ${text}`)
    return text === '' ? {} : (JSON.parse(text) as Fields)
  }
}

function linesOf(shares: readonly string[]): string {
  return `${shares.join('\n')}\n`
}

const beganAtMs = performance.now()

async function step<T>(what: string, work: () => Promise<T>): Promise<T> {
  const fromMs = performance.now()
  const value = await work()
  const [at, took] = [fromMs - beganAtMs, performance.now() - fromMs].map((ms) => `${Math.round(ms)} ms`)
  process.stdout.write(`${at?.padStart(9)}  ${took?.padStart(8)}  ${what}\n`)
  return value
}

/** A command as a step. */
function command(server: DemoServer, line: string, input = ''): Promise<string> {
  return step(`${server.name}: outpost ${line}`, () => server.run(line, input))
}

async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const address = server.address()
  await new Promise((done) => server.close(done))
  return typeof address === 'object' ? (address?.port ?? 0) : 0
}

async function readAll(server: DemoServer, count: number): Promise<void> {
  for (let at = 0; at < count; at++) {
    const { data } = await server.ask('GET', `kv/data/${at}`)
    const value = ((data as Fields)['data'] as Fields)['value']
    if (value !== `value ${at}`) throw new Error(`secret ${at} is ${String(value)}`)
  }
}

async function writeSome(server: DemoServer, from: number, to: number): Promise<void> {
  for (let at = from; at < to; at++) await server.ask('POST', `kv/data/${at}`, { data: { value: `value ${at}` } })
}

async function demo(a: DemoServer, b: DemoServer): Promise<void> {
  await step('two clusters start', () => Promise.all([a.start(), b.start()]))
  await step('both are initialized and unsealed, with their own keys', () =>
    Promise.all([a.initialise(), b.initialise()]),
  )
  const { shares, token } = a
  await command(a, 'operator dr enable')
  const activation = await command(a, 'operator dr token b')
  await command(b, 'operator dr join -yes', activation)
  await command(b, 'operator unseal -', linesOf(shares))
  await command(a, 'secrets enable -version=2 kv')
  await step(`a: ${SECRETS} secrets are written`, () => writeSome(a, 0, SECRETS))
  await step('b has all of them (operator dr status)', () => b.hasAllOf(a))
  await step('a: kill -9', () => a.end('SIGKILL'))
  // Tokens of a are valid on b.
  b.token = token
  await command(b, 'operator dr failover -yes -', linesOf(shares))
  await step(`b: all ${SECRETS} secrets are read with the token of a`, () => readAll(b, SECRETS))
  await step('b: 10 more secrets are written', () => writeSome(b, SECRETS, SECRETS + 10))
  await step('a: starts again', () => a.start())
  await command(a, 'operator unseal -', linesOf(shares))
  await command(a, 'operator dr demote -yes')
  const rejoin = await command(b, 'operator dr token a')
  const file = a.sharesFile(shares)
  await step('a: outpost operator dr join -yes -shares-file shares.txt', () =>
    a.run(`operator dr join -yes -shares-file ${file}`, rejoin),
  )
  await step('b: outpost operator dr switch -yes -secondary a', () =>
    b.run(`operator dr switch -yes -secondary ${a.url}`, linesOf(shares)),
  )
  await step(`a: all ${SECRETS + 10} secrets are read`, () => readAll(a, SECRETS + 10))
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
