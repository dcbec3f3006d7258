/** A real nats-server for tests. */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { natsServerProgram } from '../../scripts/nats-server-program.ts'
import { eventually } from './eventually.ts'

export { natsServerProgram } from '../../scripts/nats-server-program.ts'

export interface NatsServer {
  readonly url: string
  readonly port: number
  /** Kills the server with SIGKILL; resolves when it has exited. */
  kill(): Promise<void>
  /** Restarts it on the same port. */
  restart(): Promise<void>
  signal(name: NodeJS.Signals): void
  /** Replaces the configuration and its included files, and reloads as with SIGHUP. */
  reload(config: string, files?: Readonly<Record<string, string>>): void
}

/** Located once, because each search starts a process. */
let program: string | undefined

/**
 * Starts a server on a free port; it is killed after the test. `config` is appended to its configuration, `files` are
 * written beside it for includes.
 */
export async function startNatsServer(
  t: Pick<TestContext, 'after'>,
  config = '',
  files: Readonly<Record<string, string>> = {},
): Promise<NatsServer> {
  program ??= natsServerProgram()
  const found = program
  const folder = mkdtempSync(join(tmpdir(), 'outpost-nats-'))
  let child: ChildProcess | undefined
  let port = 0
  const file = join(folder, 'nats.conf')
  const ports = join(folder, 'ports')
  const write = (more: string, beside: Readonly<Record<string, string>>) => {
    for (const [name, text] of Object.entries(beside)) writeFileSync(join(folder, name), text)
    writeFileSync(file, `listen: "127.0.0.1:${port === 0 ? -1 : port}"\nports_file_dir: "${ports}"\n${more}\n`)
  }
  const start = async () => {
    rmSync(ports, { recursive: true, force: true })
    mkdirSync(ports)
    write(config, files)
    child = spawn(found, ['-c', file], { stdio: 'ignore' })
    port = await eventually(() => {
      const [name] = readdirSync(ports)
      if (child?.exitCode !== null) throw new Error(`nats-server ended with ${child?.exitCode}, see its configuration`)
      return name === undefined ? undefined : portOf(readFileSync(join(ports, name), 'utf8'))
    })
    await eventually(() => answers(port))
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
    reload(changed, beside = {}) {
      write(changed, beside)
      child?.kill('SIGHUP')
    },
  }
}

function portOf(text: string): number | undefined {
  const match = /:(\d+)"/.exec(text)
  return match ? Number(match[1]) : undefined
}

const answered = new Map<number, boolean>()

/** True once the port accepts connections. */
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
