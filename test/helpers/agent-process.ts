/** The program as a separate process, for tests of whole daemons. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { chmodSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { eventually } from './eventually.ts'
import { OUTPOST } from './program.ts'

const STARTED = '==> outpost agent started'

export interface AgentProcess {
  readonly child: ChildProcess
  readonly pid: number
  readonly stdout: () => string
  readonly stderr: () => string
  /** Resolves with the exit code, or the signal's name. */
  readonly ended: Promise<number | string>
}

export interface SpawnOptions {
  readonly env?: Readonly<Record<string, string>>
  readonly uid?: number
  /** A program with arguments that starts the agent, for example with other capabilities. */
  readonly through?: readonly string[]
}

/** Runs as in `systemd/outpost.service`: a user with the capabilities to read and write the files of all users. */
export function asService(uid: number): readonly string[] {
  const sets = ['inh-caps', 'ambient-caps', 'bounding-set'].map((set) => `--${set}=-all,+dac_override,+fowner`)
  return ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', ...sets]
}

/** The same user without any capability. */
export function asUser(uid: number): readonly string[] {
  const sets = ['inh-caps', 'ambient-caps', 'bounding-set'].map((set) => `--${set}=-all`)
  return ['setpriv', `--reuid=${uid}`, `--regid=${uid}`, '--clear-groups', ...sets]
}

/** The reason why this process cannot start processes as other users; undefined if it can. */
export function noOtherUsers(): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root: it starts agents of other users with capabilities'
  try {
    execFileSync('setpriv', [...asService(1).slice(1), 'true'], { stdio: 'ignore' })
    return undefined
  } catch {
    return 'needs setpriv (util-linux) and the capabilities CAP_SETUID, CAP_SETPCAP, CAP_DAC_OVERRIDE and CAP_FOWNER'
  }
}

/** A directory for one test, writable for all users so that an agent of another user can run in it. */
export function workDirectory(t: Pick<TestContext, 'after'>): string {
  const path = realpathSync(mkdtempSync(join(tmpdir(), 'outpost-system-')))
  chmodSync(path, 0o777)
  // An agent of the test may still write: hooks run in the order of their registration.
  t.after(() => rmSync(path, { recursive: true, force: true, maxRetries: 10 }))
  return path
}

export function spawnAgent(
  t: Pick<TestContext, 'after'>,
  args: readonly string[],
  options: SpawnOptions = {},
): AgentProcess {
  // A preload that replaces parts of the program names the sources: a bundle has its own copies.
  const launcher = options.env?.['OUTPOST_TEST_PROGRAM'] ?? OUTPOST
  const [program, ...before] = [...(options.through ?? []), launcher]
  const child = spawn(program, [...before, 'agent', ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...options.env },
    ...(options.uid === undefined ? {} : { uid: options.uid, gid: options.uid }),
  })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  // Not at 'exit': on a busy machine the last lines are still in the pipe then.
  const ended = new Promise<number | string>((done) => child.on('close', (code, signal) => done(code ?? signal ?? '')))
  t.after(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM')
    setTimeout(() => child.kill('SIGKILL'), 5000).unref()
    await ended
  })
  return { child, pid: child.pid ?? 0, stdout: () => stdout, stderr: () => stderr, ended }
}

export interface RunningAgent extends AgentProcess {
  readonly url: string
  readonly port: number
}

/** Starts an agent and waits until it is ready. */
export async function startAgent(
  t: Pick<TestContext, 'after'>,
  args: readonly string[],
  options: SpawnOptions = {},
): Promise<RunningAgent> {
  const agent = spawnAgent(t, args, options)
  await eventually(() => {
    if (agent.child.exitCode !== null) throw new Error(`the agent exited: ${agent.stderr()}`)
    return agent.stdout().includes(STARTED) && agent.stdout().endsWith('\n')
  }, 'the agent is ready')
  const url = /https?:\/\/[\d.:[\]a-f]+:(\d+)/.exec(agent.stdout())
  return { ...agent, url: url?.[0] ?? '', port: Number(url?.[1]) }
}

/** Writes `agent.hcl` with a data directory and a free port; `more` is the rest of the file. Returns the file. */
export function writeConfig(directory: string, more: string): string {
  const file = join(directory, 'agent.hcl')
  mkdirSync(join(directory, 'data'), { recursive: true })
  writeFileSync(file, `data_dir = "${directory}/data"\nports { http = 0 }\nclient { enabled = true }\n${more}\n`)
  return file
}
