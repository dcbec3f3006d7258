/** A real agent in this process, for one recording: same node ID, same allocation IDs, its own directories. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { type Running, startAgent } from '../../src/daemon/start-agent.ts'

/** The version that the agent reports. */
export const VERSION = '0.0.0-test'

export interface CompatHost {
  readonly url: string
  readonly allocDir: string
  readonly agent: Running
  stop(): Promise<void>
}

/** `more` is added to the configuration. */
export async function startHost(nodeId: string, prepare: (allocDir: string) => void, more = ''): Promise<CompatHost> {
  const dataDir = mkdtempSync(join(tmpdir(), 'outpost-compat-'))
  const allocDir = join(dataDir, 'alloc')
  mkdirSync(allocDir)
  prepare(allocDir)
  const config = join(dataDir, 'agent.hcl')
  writeFileSync(
    config,
    `data_dir = "${dataDir}"
log_level = "error"
ports { http = 0 }
client {
  enabled = true
  meta { rack = "r1" role = "edge" }
  gc_disk_usage_threshold = 99
  gc_inode_usage_threshold = 99
}
${more === '' ? 'acl { enabled = false }' : more}
`,
  )
  const agent = await startAgent(
    {
      dev: false,
      httpPort: 0,
      clusterPort: 0,
      dataDir: undefined,
      devRootTokenId: undefined,
      devNoDemo: true,
      nodeId,
      logLevel: undefined,
      config: [config],
    },
    VERSION,
  )
  return {
    url: agent.url,
    allocDir,
    agent,
    async stop() {
      await agent.stop()
      rmSync(dataDir, { recursive: true, force: true })
    },
  }
}

export type TaskState = 'running' | 'pending' | 'dead'

/** Writes the manifest of an allocation; it ends when all its tasks have. */
export function writeManifest(
  allocDir: string,
  id: string,
  tasks: Readonly<Record<string, TaskState>>,
  pids: Readonly<Record<string, readonly number[]>> = {},
): void {
  const ended = Object.values(tasks).every((state) => state === 'dead')
  const task = (name: string, state: TaskState) => ({
    State: state,
    // A process much younger than its task counts as another one, so the start time must be correct.
    StartedAt: state === 'pending' ? null : new Date().toISOString(),
    FinishedAt: state === 'dead' ? new Date().toISOString() : null,
    Pids: pids[name] ?? [],
  })
  const manifest = {
    ID: id,
    Name: 'web.web[0]',
    Namespace: 'default',
    JobID: 'web',
    DesiredStatus: ended ? 'stop' : 'run',
    ClientStatus: ended ? 'complete' : 'running',
    Tasks: Object.fromEntries(Object.entries(tasks).map(([name, state]) => [name, task(name, state)])),
  }
  mkdirSync(join(allocDir, id), { recursive: true })
  const path = join(allocDir, id, 'alloc.json')
  writeFileSync(`${path}.new`, JSON.stringify(manifest))
  renameSync(`${path}.new`, path)
}

/** Writes a file, with the directories above it as an allocation has them: open to everybody. */
export function put(path: string, content: string | Buffer, mode = 0o644): void {
  openDirectory(dirname(path))
  writeFileSync(path, content)
  chmodSync(path, mode)
}

/** Creates a directory with mode 0777, regardless of the umask. */
export function openDirectory(path: string): void {
  const made = mkdirSync(path, { recursive: true })
  if (made === undefined) return
  for (let at = path; at.length >= made.length; at = dirname(at)) chmodSync(at, 0o777)
}

export function makePipe(path: string, mode: number): void {
  const { status, stderr } = spawnSync('mkfifo', ['-m', mode.toString(8), path], { encoding: 'utf8' })
  assert.equal(status, 0, stderr)
}

/** Leaves a socket behind; resolves with how to close it. */
export function makeSocket(path: string): Promise<() => void> {
  const server = createServer()
  return new Promise((resolve, reject) => {
    server.on('error', reject)
    server.listen(path, () => {
      chmodSync(path, 0o666)
      resolve(() => server.close())
    })
  })
}

/** The bytes that the larger files of the recordings hold. */
export function patterned(size: number): Buffer {
  return Buffer.from(Uint8Array.from({ length: size }, (_, at) => 33 + ((at * 7 + (at >> 8)) % 90)))
}
