/** An agent in a separate process with one allocation and one task, so that its memory and descriptors can be counted. */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, readlinkSync, realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { TestContext } from 'node:test'
import { writeManifest } from '../host/allocations/host-fixture.ts'
import { ALLOC_ID, type Query, queryText } from './tail-host.ts'
import { eventually } from './eventually.ts'
import { OUTPOST } from './program.ts'
import { temporaryDirectory } from './temporary-directory.ts'

export interface ChildAgent {
  readonly child: ChildProcess
  readonly pid: number
  readonly url: string
  readonly directory: string
  readonly logs: string
  log(index: number): string
  logsUrl(query: Query): string
  /** Its log. */
  stderr(): string
  /** Resident memory, in bytes. */
  rss(): number
  /** Descriptors below the allocation; all descriptors with `all`. */
  descriptors(of: 'allocation' | 'all'): number
  /** All descriptors, once their number is stable: threads open and close some in the first seconds. */
  atRest(): Promise<number>
}

/** Time for which the number must be stable. */
const REST_MS = 2000

export async function startChildAgent(t: TestContext, options: { without?: 'inotify' } = {}): Promise<ChildAgent> {
  const dataDir = realpathSync(temporaryDirectory(t))
  const directory = join(dataDir, 'alloc', ALLOC_ID)
  mkdirSync(join(dataDir, 'alloc'))
  writeManifest(join(dataDir, 'alloc'), ALLOC_ID, {
    ClientStatus: 'running',
    Tasks: { web: { State: 'running', StartedAt: new Date().toISOString() } },
  })
  const config = join(dataDir, 'agent.hcl')
  writeFileSync(
    config,
    [
      `data_dir = "${dataDir}"`,
      'ports { http = 0 }',
      'client { enabled = true }',
      'acl { enabled = false }',
      'limits {\n http_max_conns_per_client = 0\n http_max_followers = 0\n}',
    ].join('\n'),
  )
  const command = [OUTPOST, 'agent', '-config', config, '-log-level', 'warn'] as const
  // In a separate user namespace the limit on watches is a writable file.
  const child =
    options.without === 'inotify'
      ? spawn('unshare', [
          '-Ur',
          'sh',
          '-c',
          'echo 0 > /proc/sys/user/max_inotify_watches && exec "$@"',
          'sh',
          ...command,
        ])
      : spawn(command[0], command.slice(1))
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  t.after(async () => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGKILL')
      await new Promise((done) => child.once('exit', done))
    }
  })
  await eventually(() => stdout.includes('agent started') || child.exitCode !== null)
  const url = /http:\/\/\S+/.exec(stdout)?.[0]
  if (url === undefined) throw new Error(`the agent did not start: ${stdout}${stderr}`)
  const pid = child.pid ?? 0
  const logs = join(directory, 'alloc/logs')
  return {
    child,
    pid,
    url,
    directory,
    logs,
    log: (index) => join(logs, `web.stdout.${index}`),
    logsUrl: (query) => `${url}/v1/client/fs/logs/${ALLOC_ID}?${queryText({ task: 'web', type: 'stdout', ...query })}`,
    stderr: () => stderr,
    rss: () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]) * 1024,
    descriptors: (of) => descriptorsOf(pid).filter((path) => of === 'all' || path.startsWith(directory)).length,
    atRest: () => unchanging(() => descriptorsOf(pid).length),
  }
}

async function unchanging(look: () => number): Promise<number> {
  let last = look()
  for (let sinceMs = performance.now(); performance.now() - sinceMs < REST_MS; ) {
    await delay(50)
    const now = look()
    if (now !== last) sinceMs = performance.now()
    last = now
  }
  return last
}

function descriptorsOf(pid: number): string[] {
  const fds = `/proc/${pid}/fd`
  return readdirSync(fds).flatMap((fd) => {
    try {
      return [readlinkSync(join(fds, fd))]
    } catch {
      return [] // closed since it was listed
    }
  })
}
