/**
 * One command from start to end: its process, its output, its signals, its manifest.
 *
 * The command leads a session and process group of its own. So Ctrl-C reaches it once, through us, and everything that
 * it started can be ended with it (`signal-forwarder.ts`).
 *
 * When the command has ended, its pipes get two seconds to close (a process it left behind may hold them); then the
 * rest of the group is killed. A process that made a session of its own is not touched.
 */
import type { ChildProcess } from 'node:child_process'
import { spawn } from 'node:child_process'
import { setTimeout as delay } from 'node:timers/promises'
import type { AllocLayout } from './alloc-layout.ts'
import { exitCodeOf, exitOf, startFaultOf } from './child-exit.ts'
import { LogWriter } from './log-writer.ts'
import type { ManifestKeeper } from './manifest-keeper.ts'
import { openPipes } from './output-pipe.ts'
import { sendSignal, startTicksOf } from './process-identity.ts'
import type { SignalForwarder } from './signal-forwarder.ts'
import { startWatchdog } from './watchdog.ts'

/** How long pipes may stay open after the command has ended. */
const PIPE_GRACE_MS = 2000
/** How long they may take once everybody who held them was killed. */
const KILLED_PIPE_GRACE_MS = 250
/** How often bytes that could not be written are tried to be accounted for in the log. */
const LOSS_RETRY_MS = 1000

export interface SuperviseRequest {
  readonly command: readonly [string, ...string[]]
  readonly env: NodeJS.ProcessEnv
  readonly stdin: 'inherit' | 'ignore'
  readonly task: string
  readonly layout: AllocLayout
  readonly maxFiles: number
  readonly maxFileBytes: number
  readonly keeper: ManifestKeeper
  readonly signals: SignalForwarder
  /** Called once the command runs. */
  onStarted(pid: number): void
  /** Tells the operator something that is no reason to end. */
  readonly warn: (message: string) => void
}

export interface Outcome {
  /** As a shell tells it. */
  readonly exitCode: number
  /** Why the command could not be started; undefined when it was. */
  readonly startFault?: string
}

/** Runs the command and resolves when it has ended and everything about it is on disk. Throws CommandError. */
export async function supervise(request: SuperviseRequest): Promise<Outcome> {
  const { keeper, signals } = request
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
    keeper.running(child.pid, startTicksOf(child.pid))
    signals.attach(child.pid, () => keeper.stopping())
    request.onStarted(child.pid)
    const exit = await exited
    await drain(child.pid, Promise.all(pipes.map((pipe) => pipe.ended)))
    watchdog.dismiss()
    logs.forEach((log) => log.retry())
    tellLosses(logs, request.warn)
    const exitCode = exitCodeOf(exit)
    await keeper.finished({ exitCode, failed: exitCode !== 0 && !signals.stopped })
    return { exitCode }
  } finally {
    clearInterval(retry)
    pipes.forEach((pipe) => pipe.stop())
    logs.forEach((log) => log.close())
  }
}

function openLogs(request: SuperviseRequest): LogWriter[] {
  const { task, maxFiles, maxFileBytes } = request
  const directory = request.layout.logs
  return (['stdout', 'stderr'] as const).map((type) => new LogWriter({ directory, task, type, maxFiles, maxFileBytes }))
}

function start(request: SuperviseRequest, stdout: number | undefined, stderr: number | undefined): ChildProcess {
  const [program, ...args] = request.command
  // detached: a session and a process group of its own.
  return spawn(program, args, { detached: true, env: request.env, stdio: [request.stdin, stdout, stderr] })
}

async function notStarted(request: SuperviseRequest, error: unknown): Promise<Outcome> {
  const { exitCode, text } = startFaultOf(request.command[0], error)
  await request.keeper.finished({ exitCode, failed: true })
  return { exitCode, startFault: text }
}

/** Waits for the pipes to close, and ends what the command left behind in its group. */
async function drain(groupId: number, closed: Promise<unknown>): Promise<void> {
  const timer = new AbortController()
  const wait = (ms: number) => delay(ms, undefined, { signal: timer.signal }).catch(() => undefined)
  await Promise.race([closed, wait(PIPE_GRACE_MS)])
  sendSignal(-groupId, 'SIGKILL')
  await Promise.race([closed, wait(KILLED_PIPE_GRACE_MS)])
  timer.abort()
}

function tellLosses(logs: readonly LogWriter[], warn: (message: string) => void): void {
  for (const log of logs) {
    if (log.lostBytes > 0) warn(`${log.lostBytes} bytes of output could not be written to the log (${log.lossCause})`)
  }
}
