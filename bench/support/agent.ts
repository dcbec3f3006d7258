/**
 * The agent under test: the real launcher with its own configuration and data directory, and one allocation
 * whose task runs but writes nothing, so that the benchmark can write its logs.
 */
import type { ChildProcess } from 'node:child_process'
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { pidOf, removeDirectory, start, stop, temporaryDirectory } from './child.ts'

export const LAUNCHER = resolve(import.meta.dirname, '../../bin/outpost')
export const ALLOC_ID = '6f1c0e5a-7f0b-4c0e-9d5c-2f3b8a4d1e77'
export const TASK = 'quiet'
const READY_MS = 30_000

/** Everything that a benchmark requests must be allowed: no limits on connections and followers, no tokens unless `more` has `acl`. */
function configText(dataDir: string, port: number, more: string, logLevel: string): string {
  return `data_dir = ${JSON.stringify(dataDir)}
bind_addr = "127.0.0.1"
log_level = "${logLevel}"
ports {
  http = ${port}
  cluster = 0
}
${/^acl /m.test(more) ? '' : 'acl { enabled = false }'}
limits {
  http_max_conns_per_client = 0
  http_max_followers = 0
}
${more}
`
}

function manifestText(pid: number): string {
  const nowMs = Date.now()
  const started = { StartedAt: new Date(nowMs).toISOString(), FinishedAt: null }
  const task = { State: 'running', Failed: false, ...started, Pids: [pid], MaxFiles: 10, MaxFileSizeMB: 10 }
  return JSON.stringify({
    ID: ALLOC_ID,
    Name: 'bench.bench[0]',
    Namespace: 'default',
    JobID: 'bench',
    TaskGroup: 'bench',
    DesiredStatus: 'run',
    ClientStatus: 'running',
    CreateTime: nowMs * 1e6,
    Tasks: { [TASK]: task },
  })
}

/** A data directory with a configuration and an allocation, ready for agents to be started on it. */
export class Site {
  readonly directory = temporaryDirectory()
  readonly configFile = join(this.directory, 'agent.hcl')
  readonly #task = start('sleep', ['86400'])

  /** Port 0 is any free one; `more` is the rest of the configuration. */
  constructor(port = 0, more = 'client { enabled = true }', logLevel = 'error') {
    const dataDir = join(this.directory, 'data')
    const allocation = join(dataDir, 'alloc', ALLOC_ID)
    for (const name of ['alloc/logs', 'alloc/data', `${TASK}/local/deep`]) {
      mkdirSync(join(allocation, name), { recursive: true })
    }
    writeFileSync(join(allocation, 'alloc.json'), manifestText(pidOf(this.#task)))
    writeFileSync(this.configFile, configText(dataDir, port, more, logLevel))
  }

  get allocation(): string {
    return join(this.directory, 'data/alloc', ALLOC_ID)
  }

  get logs(): string {
    return join(this.allocation, 'alloc/logs')
  }

  logFile(index: number): string {
    return join(this.logs, `${TASK}.stdout.${index}`)
  }

  removeLogs(): void {
    for (const name of readdirSync(this.logs)) rmSync(join(this.logs, name))
  }

  async remove(): Promise<void> {
    await stop(this.#task, 'SIGKILL')
    removeDirectory(this.directory)
  }
}

export interface RunningAgent {
  readonly port: number
  readonly pid: number
  readonly site: Site
  stop(): Promise<void>
}

/** Starts an agent on its own site. Resolves when it reports that it is ready. */
export async function startAgent(more?: string): Promise<RunningAgent> {
  const site = new Site(0, more)
  const child = start(LAUNCHER, ['agent', '-config', site.configFile])
  const port = await readyPort(child)
  return {
    port,
    pid: pidOf(child),
    site,
    async stop() {
      await stop(child, 'SIGTERM')
      await site.remove()
    },
  }
}

/** The port it says it listens on. */
export function readyPort(child: ChildProcess): Promise<number> {
  return new Promise((done, failed) => {
    let text = ''
    const patience = setTimeout(() => failed(new Error('the agent was not ready in time')), READY_MS)
    child.once('exit', (code) => failed(new Error(`the agent ended with code ${code}`)))
    child.stdout?.on('data', (bytes: Buffer) => {
      text += bytes.toString()
      const port = /HTTP: https?:\/\/[^\s]+:(\d+)\s[^]*==> outpost agent started/.exec(text)?.[1]
      if (port === undefined) return
      clearTimeout(patience)
      done(Number(port))
    })
  })
}

export const FS = '/v1/client/fs'

export function logsPath(options: { framed: boolean; follow: boolean; offset?: number }): string {
  const { framed, follow, offset = 0 } = options
  const query = `task=${TASK}&type=stdout&follow=${follow}&plain=${!framed}&offset=${offset}`
  return `${FS}/logs/${ALLOC_ID}?${query}`
}
