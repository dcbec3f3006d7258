/**
 * Runs one command: process, output, signals, manifest.
 *
 * The command leads its own session and process group. So Ctrl-C reaches it once, through the forwarder, and the whole group can be
 * stopped (`signal-forwarder.ts`).
 *
 * When the command has exited, its pipes have two seconds to close, because a child process may hold them. Then the rest of the group is
 * killed. A process with its own session is not affected.
 */
import type { ChildProcess } from 'node:child_process'
import { spawn } from 'node:child_process'
import { setTimeout as delay } from 'node:timers/promises'
import type { AllocLayout } from './alloc-layout.ts'
import { exitCodeOf, exitOf, startFaultOf, startWatchdog } from './child-process.ts'
import { LogWriter } from './log-writer.ts'
import type { ManifestUpdater } from './manifest-writer.ts'
import { openPipes } from './output-pipe.ts'
import { sendSignal, startTicksOf } from './process-identity.ts'
import type { SignalForwarder } from './signal-forwarder.ts'

/** Grace period of the pipes after the command has exited. */
const PIPE_GRACE_MS = 2000
/** Grace period of the pipes after the group was killed. */
const KILLED_PIPE_GRACE_MS = 250
/** Interval of attempts to record lost bytes in the log. */
const LOSS_RETRY_MS = 1000

export interface CommandRun {
  readonly command: readonly [string, ...string[]]
  readonly env: NodeJS.ProcessEnv
  readonly stdin: 'inherit' | 'ignore'
  readonly task: string
  readonly layout: AllocLayout
  readonly maxFiles: number
  readonly maxFileBytes: number
  readonly manifestUpdater: ManifestUpdater
  readonly signals: SignalForwarder
  /** Called when the command has started. */
  onStarted(pid: number): void
  /** Reports problems that do not stop the command. */
  readonly warn: (message: string) => void
}

export interface RunResult {
  /** The exit code of a shell. */
  readonly exitCode: number
  /** Why the command could not be started. */
  readonly startFault?: string
}

/** Runs the command. Resolves when it has exited and output and manifest are written. Throws SupervisorError. */
export async function supervise(request: CommandRun): Promise<RunResult> {
  const { manifestUpdater, signals } = request
  const logs = openLogs(request)
  const pipes = openPipes(
    request.layout.private,
    logs.map((log) => (bytes: Uint8Array) => log.write(bytes)),
  )
  const retry = setInterval(() => logs.forEach((log) => log.retry()), LOSS_RETRY_MS)
  try {
    const child = start(request, pipes[0]?.writeEnd, pipes[1]?.writeEnd)
    pipes.forEach((pipe) => pipe.closeWriteEnd())
    const exited = exitOf(child)
    if (child.pid === undefined) return await notStarted(request, await exited.catch((error: unknown) => error))
    const watchdog = startWatchdog(child.pid)
    manifestUpdater.running(child.pid, startTicksOf(child.pid))
    signals.attach(child.pid, () => manifestUpdater.stopping())
    request.onStarted(child.pid)
    const exit = await exited
    await drain(child.pid, Promise.all(pipes.map((pipe) => pipe.ended)))
    watchdog.dismiss()
    logs.forEach((log) => log.retry())
    reportLosses(logs, request.warn)
    const exitCode = exitCodeOf(exit)
    await manifestUpdater.finished({ exitCode, failed: exitCode !== 0 && !signals.isStopping })
    return { exitCode }
  } finally {
    clearInterval(retry)
    pipes.forEach((pipe) => pipe.stop())
    logs.forEach((log) => log.close())
  }
}

function openLogs(request: CommandRun): LogWriter[] {
  const { task, maxFiles, maxFileBytes } = request
  const directory = request.layout.logs
  return (['stdout', 'stderr'] as const).map((type) => new LogWriter({ directory, task, type, maxFiles, maxFileBytes }))
}

function start(request: CommandRun, stdout: number | undefined, stderr: number | undefined): ChildProcess {
  const [program, ...args] = request.command
  // detached: own session and process group.
  return spawn(program, args, { detached: true, env: request.env, stdio: [request.stdin, stdout, stderr] })
}

async function notStarted(request: CommandRun, error: unknown): Promise<RunResult> {
  const { exitCode, text } = startFaultOf(request.command[0], error)
  await request.manifestUpdater.finished({ exitCode, failed: true })
  return { exitCode, startFault: text }
}

/** Waits for the pipes to close and kills the remaining processes of the group. */
async function drain(groupId: number, closed: Promise<unknown>): Promise<void> {
  const timer = new AbortController()
  const wait = (ms: number) => delay(ms, undefined, { signal: timer.signal }).catch(() => undefined)
  await Promise.race([closed, wait(PIPE_GRACE_MS)])
  sendSignal(-groupId, 'SIGKILL')
  await Promise.race([closed, wait(KILLED_PIPE_GRACE_MS)])
  timer.abort()
}

function reportLosses(logs: readonly LogWriter[], warn: (message: string) => void): void {
  for (const log of logs) {
    if (log.lostBytes > 0) warn(`${log.lostBytes} bytes of output were not written to the log (${log.lossCause})`)
  }
}
