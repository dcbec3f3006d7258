/**
 * The smallest cluster: a real nats-server, an outpost server and one agent, each in its own process.
 */
import { createHash, randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { natsServerProgram } from '../../test/helpers/nats-server.ts'
import { ALLOC_ID, FS, type RunningAgent, startAgent } from './agent.ts'
import { freePort, pidOf, start, stop } from './child.ts'
import { fetchWhole } from './http-socket.ts'

const PATIENCE_MS = 30_000

export interface Nats {
  readonly url: string
  readonly pid: number
  stop(): Promise<void>
}

export async function startNats(): Promise<Nats> {
  const port = await freePort()
  const folder = mkdtempSync(join(tmpdir(), 'outpost-bench-nats-'))
  const file = join(folder, 'nats.conf')
  writeFileSync(file, `listen: "127.0.0.1:${port}"\n`)
  const child = start(natsServerProgram(), ['-c', file, '-l', '/dev/null'])
  await patiently(() => accepts(port))
  return {
    url: `nats://127.0.0.1:${port}`,
    pid: pidOf(child),
    async stop() {
      await stop(child, 'SIGKILL')
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

export interface Cluster {
  readonly nats: Nats
  readonly server: RunningAgent
  readonly agent: RunningAgent
  /** The agent as seen through the server: its files, the server's port. */
  readonly through: RunningAgent
  /** All processes that take part in a forwarded response. */
  readonly pids: readonly number[]
  stop(): Promise<void>
}

/** Header that callers send if the ACL is enabled. The server knows the token; the agent queries a server. */
const TOKEN = randomBytes(24).toString('hex')
export const TOKEN_HEADER = `X-Nomad-Token: ${TOKEN}\r\n`

function aclText(): string {
  const sha256 = createHash('sha256').update(TOKEN).digest('hex')
  const policy = '<<EOF\nnamespace "*" { policy = "write" }\nnode { policy = "read" }\nagent { policy = "read" }\nEOF'
  return `acl {\n enabled = true\n token "bench" {\n sha256 = "${sha256}"\n policy = ${policy}\n }\n}`
}

/** With `hasAcl` every call needs `TOKEN_HEADER`. */
export async function startCluster(hasAcl = false): Promise<Cluster> {
  const nats = await startNats()
  const bus = `nats { servers = ["${nats.url}"] }`
  const server = await startAgent(`server { enabled = true }\n${bus}\n${hasAcl ? aclText() : ''}`)
  const agent = await startAgent(`client { enabled = true }\n${bus}\n${hasAcl ? 'acl { enabled = true }' : ''}`)
  const stopAll = async () => {
    await Promise.all([agent.stop(), server.stop()])
    await nats.stop()
  }
  // The server has heard of the allocation when it can hand a call on.
  await patiently(async () => {
    return await fetchWhole(server.port, `${FS}/ls/${ALLOC_ID}`, hasAcl ? TOKEN_HEADER : '').then(
      () => true,
      () => false,
    )
  })
  const through = { port: server.port, pid: server.pid, site: agent.site, stop: stopAll }
  return { nats, server, agent, through, pids: [nats.pid, server.pid, agent.pid], stop: stopAll }
}

async function patiently(check: () => Promise<boolean>): Promise<void> {
  const endMs = performance.now() + PATIENCE_MS
  while (!(await check())) {
    if (performance.now() > endMs) throw new Error('the cluster was not ready in time')
    await pause(20)
  }
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy()
      resolve(true)
    })
    socket.on('error', () => resolve(false))
  })
}
