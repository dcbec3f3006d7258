/**
 * The supervisor of `outpost alloc run`: theory of operation.
 *
 * Promises: a supervisor runs one command in an allocation directory (`<data_dir>/alloc/<uuid>`), in a process of its own that needs no
 * agent and survives every agent. It captures stdout and stderr without loss of bytes that the disk can store (`log-writer.ts`), keeps
 * the manifest `alloc.json` up to date (`manifest-writer.ts`), forwards signals (`signal-forwarder.ts`), and leaves no process behind in
 * the process group of the command. At most one supervisor runs in a directory (`alloc-open.ts`). The agent only reads the directory.
 *
 * The order at the start: open and lock the directory, install the signal handlers, write the first manifest, create the layout, start
 * the command. The manifest precedes the command, because a directory without a manifest belongs to another supervisor, and a command
 * without a manifest could not be stopped.
 *
 * Assumes Linux with /proc, and a data directory whose parents other users cannot replace. Root follows no symbolic link of another user
 * and runs nothing in a directory of another user (`alloc-directory-handle.ts`).
 *
 * Failure modes: if the supervisor is killed with SIGKILL, a watchdog stops the command (`child-process.ts`), and `alloc stop` and the
 * agent report the allocation as lost. A full disk loses output, which is counted and reported in the log, but does not stop the
 * command. A manifest that cannot be written after the start is retried.
 */
import { spawn } from 'node:child_process'
import { rmdirSync } from 'node:fs'
import { basename } from 'node:path'
import { messageOf } from '../platform/errors.ts'
import { type AllocLayout, type AllocPaths, createLayout, faultOfTaskName } from './alloc-layout.ts'
import { openAllocation } from './alloc-open.ts'
import { withoutLauncherVariables } from './child-process.ts'
import { type AllocIdentity, ManifestUpdater } from './manifest-writer.ts'
import { SignalForwarder } from './signal-forwarder.ts'
import { type RunResult, supervise } from './supervise.ts'
import { SupervisorError } from './supervisor-error.ts'

const BYTES_PER_MB = 1024 * 1024
/** Set by `detach` for the background process, which reports its start over IPC. */
const DETACHED_VARIABLE = 'OUTPOST_ALLOC_DETACHED'

export interface AllocationRequest {
  /** Directory of all allocations. */
  readonly root: string
  /** Undefined: a new ID. */
  readonly id: string | undefined
  readonly name: string | undefined
  readonly namespace: string | undefined
  readonly job: string | undefined
  readonly task: string | undefined
  readonly command: readonly [string, ...string[]]
  readonly env: NodeJS.ProcessEnv
  readonly stdin: 'inherit' | 'ignore'
  readonly maxFiles: number
  readonly maxFileSizeMb: number
  readonly killTimeoutMs: number
  /** Called when the directory is ready. */
  onOpen(id: string): void
  /** Called when the command has started. */
  onStarted(id: string): void
  /** Reports problems that do not stop the command. */
  readonly warn: (message: string) => void
}

/** Runs a command as an allocation. Resolves when it has exited. Throws SupervisorError. */
export async function runAllocation(request: AllocationRequest): Promise<RunResult> {
  const { command, killTimeoutMs, maxFileSizeMb, maxFiles, warn } = request
  const task = request.task ?? taskNameOf(command[0])
  const { handle, id, previous, release } = await openAllocation(request.root, request.id ?? crypto.randomUUID())
  const identity = identityOf(request, id, task)
  const manifestUpdater = new ManifestUpdater({
    directory: handle.at,
    identity,
    task,
    maxFiles,
    maxFileSizeMb,
    killTimeoutMs,
    previous,
    warn,
  })
  // Before the manifest, because `alloc stop` signals the process that the manifest names.
  const signals = new SignalForwarder(killTimeoutMs)
  try {
    manifestUpdater.pending()
  } catch (error) {
    signals.detach()
    if (!previous) removeIfEmpty(handle.directory)
    release()
    throw new SupervisorError(
      `cannot write the manifest in ${handle.directory}, the command was not started: ${messageOf(error)}`,
      { cause: error },
    )
  }
  let layout: AllocLayout | undefined
  try {
    layout = createLayout(handle, task)
    request.onOpen(id)
    return await supervise({
      command,
      env: commandEnvironment(request.env, layout.paths, identity, task),
      stdin: request.stdin,
      task,
      layout,
      maxFiles,
      maxFileBytes: maxFileSizeMb * BYTES_PER_MB,
      manifestUpdater,
      signals,
      onStarted: () => request.onStarted(id),
      warn,
    })
  } catch (error) {
    await manifestUpdater.finished({ exitCode: 1, failed: true })
    throw error
  } finally {
    signals.detach()
    layout?.close()
    release()
  }
}

/** Keeps a directory with content, which existed before. */
function removeIfEmpty(directory: string): void {
  try {
    rmdirSync(directory)
  } catch {
    // `alloc gc` removes it.
  }
}

function identityOf(request: AllocationRequest, id: string, task: string): AllocIdentity {
  const job = request.job ?? task
  return {
    ID: id,
    Name: request.name ?? `${job}.${task}[0]`,
    Namespace: request.namespace ?? 'default',
    JobID: job,
    TaskGroup: task,
  }
}

/** The name of the program if it is a valid task name, else `task`. */
function taskNameOf(program: string): string {
  const name = basename(program)
  return name !== '' && faultOfTaskName(name) === undefined ? name : 'task'
}

function commandEnvironment(
  env: NodeJS.ProcessEnv,
  paths: AllocPaths,
  identity: AllocIdentity,
  task: string,
): NodeJS.ProcessEnv {
  return {
    ...withoutLauncherVariables(env),
    OUTPOST_ALLOC_ID: identity.ID,
    NOMAD_ALLOC_ID: identity.ID,
    NOMAD_SHORT_ALLOC_ID: identity.ID.slice(0, 8),
    NOMAD_ALLOC_NAME: identity.Name,
    NOMAD_ALLOC_INDEX: '0',
    NOMAD_ALLOC_DIR: paths.shared,
    NOMAD_TASK_DIR: paths.local,
    NOMAD_SECRETS_DIR: paths.secrets,
    NOMAD_TASK_NAME: task,
    NOMAD_GROUP_NAME: identity.TaskGroup,
    NOMAD_JOB_ID: identity.JobID,
    NOMAD_JOB_NAME: identity.JobID,
    NOMAD_NAMESPACE: identity.Namespace,
  }
}

export type StartReport = { readonly started: string } | { readonly failed: string }

/** Sends the start report to the process that called `detach`; undefined in other processes. Removes the variable from `env`. */
export function startReporter(env: NodeJS.ProcessEnv): ((report: StartReport) => void) | undefined {
  if (env[DETACHED_VARIABLE] === undefined || !process.send) return undefined
  delete env[DETACHED_VARIABLE] // not for the command
  return (report) => {
    // The other process may have exited; the command runs in any case.
    if (process.connected) process.send?.(report, undefined, {}, () => process.connected && process.disconnect())
  }
}

/**
 * Runs `outpost ARGS` as a background process in its own session and waits for its start report. Resolves with the allocation ID once
 * the command has started. Throws SupervisorError.
 */
export async function detach(args: readonly string[], env: NodeJS.ProcessEnv): Promise<string> {
  const program = process.argv[1] ?? ''
  const child = spawn(process.execPath, [...process.execArgv, program, ...args], {
    detached: true,
    env: { ...env, [DETACHED_VARIABLE]: '1' },
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  })
  const report = await new Promise<StartReport>((resolve) => {
    child.once('message', (message) => resolve(startReportOf(message)))
    child.once('error', (error) => resolve({ failed: `cannot start the supervisor: ${error.message}` }))
    child.once('exit', () => resolve({ failed: 'the supervisor exited before the command started' }))
  })
  if (child.connected) child.disconnect()
  child.unref()
  if ('failed' in report) throw new SupervisorError(report.failed)
  return report.started
}

function startReportOf(message: unknown): StartReport {
  if (typeof message === 'object' && message !== null) {
    if ('started' in message && typeof message.started === 'string') return { started: message.started }
    if ('failed' in message && typeof message.failed === 'string') return { failed: message.failed }
  }
  return { failed: 'the supervisor sent a malformed report' }
}
