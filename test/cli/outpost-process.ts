/** Runs the real program for the tests of this folder, and looks at what it leaves behind. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { TestContext } from 'node:test'
import { eventually } from '../helpers/eventually.ts'
import { OUTPOST } from '../helpers/program.ts'

export { OUTPOST } from '../helpers/program.ts'

export const ROOT = resolve(import.meta.dirname, '../..')

export interface Finished {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

export interface Running {
  readonly child: ChildProcess
  readonly pid: number
  readonly finished: Promise<Finished>
}

/** Between looks at all processes, each of which takes some milliseconds. */
export const LOOK_MS = 100

/** A directory that is gone after the test; processes that still mention it then are killed and fail the test. */
export function temporaryDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'outpost-cli-'))
  t.after(async () => {
    let left: { pid: number; command: string }[] = []
    const isNoneLeft = () => (left = processesMentioning(directory)).length === 0
    await eventually(isNoneLeft, 'no process is left', 3000, LOOK_MS).catch(() => undefined)
    for (const { pid } of left) process.kill(pid, 'SIGKILL')
    rmSync(directory, { recursive: true, force: true })
    assert.deepEqual(left, [], 'processes left behind')
  })
  return directory
}

/** What an operator's shell would have: the runner's compile cache is for tests, the launcher chooses its own. */
function environment(): NodeJS.ProcessEnv {
  const { NODE_COMPILE_CACHE: _, ...rest } = process.env
  return rest
}

export function start(
  program: string,
  args: readonly string[],
  options: { env?: NodeJS.ProcessEnv; cwd?: string; input?: string } = {},
): Running {
  const child = spawn(program, args, {
    env: options.env ?? environment(),
    cwd: options.cwd ?? ROOT,
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  child.stdin.on('error', () => undefined)
  child.stdin.end(options.input ?? '')
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  const finished = new Promise<Finished>((done, fail) => {
    child.on('error', fail)
    child.on('close', (code, signal) => done({ code, signal, stdout, stderr }))
  })
  return { child, pid: child.pid ?? 0, finished }
}

export function outpost(...args: readonly string[]): Promise<Finished> {
  return start(OUTPOST, args).finished
}

export interface ManifestView {
  readonly ID: string
  readonly Name: string
  readonly Namespace: string
  readonly JobID: string
  readonly TaskGroup: string
  readonly DesiredStatus: string
  readonly ClientStatus: string
  readonly CreateTime: number
  readonly SupervisorPid: number
  readonly Tasks: Record<
    string,
    {
      State: string
      Failed: boolean
      StartedAt: string | null
      FinishedAt: string | null
      Pids: number[]
      LogsDisabled: boolean
      MaxFiles: number
      MaxFileSizeMB: number
      ExitCode: number | null
      Restarts: number
    }
  >
}

/** The manifest of an allocation, or undefined while there is none. */
export function manifestOf(dataDir: string, id: string): ManifestView | undefined {
  try {
    return JSON.parse(readFileSync(join(dataDir, 'alloc', id, 'alloc.json'), 'utf8')) as ManifestView
  } catch {
    return undefined
  }
}

function indexOf(name: string): number {
  return Number(name.split('.').at(-1))
}

/** Names of log files in the order of their index, and all their bytes in that order. */
export function logOf(dataDir: string, id: string, task: string, type: string): { names: string[]; bytes: Buffer } {
  const directory = join(dataDir, 'alloc', id, 'alloc/logs')
  const names = readdirSync(directory)
    .filter((name) => name.startsWith(`${task}.${type}.`))
    .sort((a, b) => indexOf(a) - indexOf(b))
  return { names, bytes: Buffer.concat(names.map((name) => readFileSync(join(directory, name)))) }
}

export function isRunning(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return !stat.slice(stat.lastIndexOf(')') + 2).startsWith('Z')
  } catch {
    return false
  }
}

/** Processes whose command line or environment holds `text`. */
export function processesMentioning(text: string): { pid: number; command: string }[] {
  const found: { pid: number; command: string }[] = []
  for (const name of readdirSync('/proc')) {
    const pid = Number(name)
    if (!Number.isInteger(pid) || pid === process.pid || !isRunning(pid)) continue
    const command = readProc(pid, 'cmdline')
    if (command.includes(text) || readProc(pid, 'environ').includes(text)) {
      found.push({ pid, command: command.replaceAll('\0', ' ') })
    }
  }
  return found
}

function readProc(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'latin1')
  } catch {
    return ''
  }
}
