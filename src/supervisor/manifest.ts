/**
 * `alloc.json`: what a supervisor tells the agent and everybody else about its allocation.
 *
 * The contract is the agent's (`Tasks`, `ClientStatus`, …); the supervisor's own fields are extra and optional. A
 * manifest is only ever replaced as a whole: temporary name, fsync, rename. A reader never sees half of one.
 */
import { randomUUID } from 'node:crypto'
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isErrno } from '../platform/errors.ts'
import { replaceFile } from '../platform/own-file.ts'
import type { ProcessIdentity } from './process-identity.ts'

const MANIFEST_NAME = 'alloc.json'
/** As the agent's own limit. */
const MANIFEST_BYTES_MAX = 1 << 20
const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK

export type ClientStatus = 'pending' | 'running' | 'complete' | 'failed' | 'lost'
export type TaskState = 'pending' | 'running' | 'dead'

export interface TaskRecord {
  readonly State: TaskState
  readonly Failed: boolean
  /** RFC 3339; null while it has not started. */
  readonly StartedAt: string | null
  readonly FinishedAt: string | null
  readonly Pids: readonly number[]
  readonly LogsDisabled: boolean
  readonly MaxFiles: number
  readonly MaxFileSizeMB: number
  /** As a shell tells it: 128 and the signal's number when it was killed by one. Null while it runs. */
  readonly ExitCode: number | null
  /** How often it was started again under the same allocation ID. */
  readonly Restarts: number
  /** Clock ticks since boot, of the process in `Pids`. */
  readonly PidStartTicks?: number
}

export interface Manifest {
  readonly ID: string
  readonly Name: string
  readonly Namespace: string
  readonly JobID: string
  readonly TaskGroup: string
  readonly DesiredStatus: string
  readonly ClientStatus: string
  /** Nanoseconds since the Unix epoch. */
  readonly CreateTime: number
  readonly Tasks: Readonly<Record<string, TaskRecord>>
  readonly SupervisorPid?: number
  readonly SupervisorStartTicks?: number
  /** How long the supervisor waits between SIGTERM and SIGKILL. */
  readonly KillTimeoutMs?: number
}

export interface ManifestFile {
  readonly manifest: Manifest
  /** The user whose file it is. */
  readonly ownerId: number
}

/**
 * The manifest of an allocation directory; undefined when the directory has none. Only a regular file counts, never a link.
 * Throws the system's error when it cannot be read and an Error that says so when it is not one.
 */
export function readManifestFile(directory: string): ManifestFile | undefined {
  let descriptor: number
  try {
    // Without O_NONBLOCK the open of a pipe would wait for a writer, for ever.
    descriptor = openSync(join(directory, MANIFEST_NAME), READ)
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return undefined
    if (isErrno(error, 'ELOOP')) throw new Error(`${MANIFEST_NAME} is a symbolic link, remove it`, { cause: error })
    throw error
  }
  try {
    const facts = fstatSync(descriptor)
    const isReadable = facts.isFile() && facts.size <= MANIFEST_BYTES_MAX
    const manifest = isReadable ? parseManifest(readFileSync(descriptor, 'utf8')) : undefined
    if (!manifest) throw new Error(`${MANIFEST_NAME} is not a manifest, repair or remove it`)
    return { manifest, ownerId: facts.uid }
  } finally {
    closeSync(descriptor)
  }
}

/** As `readManifestFile`, without the owner. */
export function readManifest(directory: string): Manifest | undefined {
  return readManifestFile(directory)?.manifest
}

/**
 * Replaces the manifest durably: a new file under a name that cannot be known before, then a rename. Throws the system's
 * error; the old one is then still in place.
 */
export function writeManifest(directory: string, manifest: Manifest): void {
  const temporary = join(directory, `.${MANIFEST_NAME}.${randomUUID()}`)
  replaceFile(join(directory, MANIFEST_NAME), `${JSON.stringify(manifest)}\n`, { mode: 0o644, temporary })
}

/** Who supervises it, when that was recorded. */
export function supervisorOf(manifest: Manifest): ProcessIdentity | undefined {
  if (manifest.SupervisorPid === undefined) return undefined
  return { pid: manifest.SupervisorPid, startTicks: manifest.SupervisorStartTicks }
}

/** The processes of its tasks that should be running. */
export function processesOf(manifest: Manifest): ProcessIdentity[] {
  return Object.values(manifest.Tasks).flatMap((task) =>
    task.State === 'running' ? task.Pids.map((pid) => ({ pid, startTicks: task.PidStartTicks })) : [],
  )
}

/** The same manifest with every task that was not dead marked as ended unseen. */
export function withTasksLost(manifest: Manifest, nowMs: number): Manifest {
  const tasks = Object.entries(manifest.Tasks).map(([name, task]) => {
    if (task.State === 'dead') return [name, task] as const
    const finished = { State: 'dead', Failed: true, FinishedAt: new Date(nowMs).toISOString(), Pids: [] } as const
    return [name, { ...task, ...finished }] as const
  })
  return { ...manifest, Tasks: Object.fromEntries(tasks) }
}

/** Undefined when the text is not JSON or lacks what identifies an allocation; what else is missing gets its default. */
function parseManifest(content: string): Manifest | undefined {
  const root = recordOf(parseJson(content))
  const id = root && textOf(root, 'ID')
  if (!root || !id) return undefined
  const tasks = Object.entries(recordOf(root['Tasks']) ?? {}).map(([name, task]) => [name, parseTask(task)] as const)
  return {
    ID: id,
    Name: textOf(root, 'Name') ?? '',
    Namespace: textOf(root, 'Namespace') ?? 'default',
    JobID: textOf(root, 'JobID') ?? '',
    TaskGroup: textOf(root, 'TaskGroup') ?? '',
    DesiredStatus: textOf(root, 'DesiredStatus') ?? 'run',
    ClientStatus: textOf(root, 'ClientStatus') ?? 'running',
    CreateTime: numberOf(root, 'CreateTime') ?? 0,
    Tasks: Object.fromEntries(tasks),
    ...optional('SupervisorPid', pidOf(root['SupervisorPid'])),
    ...optional('SupervisorStartTicks', numberOf(root, 'SupervisorStartTicks')),
    ...optional('KillTimeoutMs', numberOf(root, 'KillTimeoutMs')),
  }
}

function parseTask(value: unknown): TaskRecord {
  const task = recordOf(value) ?? {}
  const state = textOf(task, 'State')
  const pids = task['Pids']
  return {
    State: state === 'pending' || state === 'dead' ? state : 'running',
    Failed: task['Failed'] === true,
    StartedAt: textOf(task, 'StartedAt') ?? null,
    FinishedAt: textOf(task, 'FinishedAt') ?? null,
    Pids: Array.isArray(pids) ? pids.map(pidOf).filter((pid) => pid !== undefined) : [],
    LogsDisabled: task['LogsDisabled'] === true,
    MaxFiles: numberOf(task, 'MaxFiles') ?? 10,
    MaxFileSizeMB: numberOf(task, 'MaxFileSizeMB') ?? 10,
    ExitCode: numberOf(task, 'ExitCode') ?? null,
    Restarts: numberOf(task, 'Restarts') ?? 0,
    ...optional('PidStartTicks', numberOf(task, 'PidStartTicks')),
  }
}

function optional<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  // A computed key widens to string, so the shape has to be asserted.
  return (value === undefined ? {} : { [key]: value }) as { [P in K]?: V }
}

function parseJson(content: string): unknown {
  try {
    return JSON.parse(content)
  } catch {
    return undefined
  }
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
  return value as Readonly<Record<string, unknown>> // just checked; TypeScript cannot say it
}

function textOf(record: Readonly<Record<string, unknown>>, key: string): string | undefined {
  const value = record[key]
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** 0, 1 and negative numbers mean whole groups of processes, or init, to those who send signals. */
function pidOf(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 1 ? value : undefined
}

function numberOf(record: Readonly<Record<string, unknown>>, key: string): number | undefined {
  const value = record[key]
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined
}
