/**
 * The manifest `alloc.json`: state of an allocation for the agent and for commands.
 *
 * The agent defines the format (`Tasks`, `ClientStatus`, …); fields of the supervisor are additional and optional. A manifest is replaced
 * atomically: temporary name, fsync, rename.
 */
import { randomUUID } from 'node:crypto'
import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isErrno } from '../platform/errors.ts'
import { replaceFile } from '../platform/program-file.ts'
import type { ProcessIdentity } from './process-identity.ts'

const MANIFEST_NAME = 'alloc.json'
/** The limit of the agent. */
const MANIFEST_BYTES_MAX = 1 << 20
const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK

export type ClientStatus = 'pending' | 'running' | 'complete' | 'failed' | 'lost'
export type TaskState = 'pending' | 'running' | 'dead'

export interface TaskRecord {
  readonly State: TaskState
  readonly Failed: boolean
  /** RFC 3339; null before the start. */
  readonly StartedAt: string | null
  readonly FinishedAt: string | null
  readonly Pids: readonly number[]
  readonly LogsDisabled: boolean
  readonly MaxFiles: number
  readonly MaxFileSizeMB: number
  /** 128 plus the signal number after a signal; null while the task runs. */
  readonly ExitCode: number | null
  /** Number of restarts with the same allocation ID. */
  readonly Restarts: number
  /** Start of the process in `Pids`, in clock ticks since boot. */
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
  /** Time between SIGTERM and SIGKILL. */
  readonly KillTimeoutMs?: number
}

export interface ManifestFile {
  readonly manifest: Manifest
  /** Owner of the file. */
  readonly ownerId: number
}

/**
 * The manifest of an allocation directory; undefined without one. Links and special files are refused. Throws the system error, or an
 * Error for a malformed manifest.
 */
export function readManifestFile(directory: string): ManifestFile | undefined {
  let descriptor: number
  try {
    // O_NONBLOCK, because the open of a pipe would wait for a writer.
    descriptor = openSync(join(directory, MANIFEST_NAME), READ)
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return undefined
    if (isErrno(error, 'ELOOP')) throw new Error(`${MANIFEST_NAME} is a symbolic link: remove it`, { cause: error })
    throw error
  }
  try {
    const facts = fstatSync(descriptor)
    const isReadable = facts.isFile() && facts.size <= MANIFEST_BYTES_MAX
    const manifest = isReadable ? parseManifest(readFileSync(descriptor, 'utf8')) : undefined
    if (!manifest) throw new Error(`${MANIFEST_NAME} is malformed: repair or remove it`)
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
 * Replaces the manifest durably: a new file with an unpredictable name, then a rename. Throws the system error; the previous manifest is
 * then unchanged.
 */
export function writeManifest(directory: string, manifest: Manifest): void {
  const temporary = join(directory, `.${MANIFEST_NAME}.${randomUUID()}`)
  replaceFile(join(directory, MANIFEST_NAME), `${JSON.stringify(manifest)}\n`, { mode: 0o644, temporary })
}

/** The supervisor, if it is recorded. */
export function supervisorOf(manifest: Manifest): ProcessIdentity | undefined {
  if (manifest.SupervisorPid === undefined) return undefined
  return { pid: manifest.SupervisorPid, startTicks: manifest.SupervisorStartTicks }
}

/** The processes of the running tasks. */
export function processesOf(manifest: Manifest): ProcessIdentity[] {
  return Object.values(manifest.Tasks).flatMap((task) =>
    task.State === 'running' ? task.Pids.map((pid) => ({ pid, startTicks: task.PidStartTicks })) : [],
  )
}

/** The manifest with all tasks that are not dead marked as failed. */
export function withTasksLost(manifest: Manifest, nowMs: number): Manifest {
  const tasks = Object.entries(manifest.Tasks).map(([name, task]) => {
    if (task.State === 'dead') return [name, task] as const
    const finished = { State: 'dead', Failed: true, FinishedAt: new Date(nowMs).toISOString(), Pids: [] } as const
    return [name, { ...task, ...finished }] as const
  })
  return { ...manifest, Tasks: Object.fromEntries(tasks) }
}

/** Undefined for invalid JSON, or without ID; other missing fields have defaults. */
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
  return value as Readonly<Record<string, unknown>> // checked above
}

function textOf(record: Readonly<Record<string, unknown>>, key: string): string | undefined {
  const value = record[key]
  return typeof value === 'string' && value !== '' ? value : undefined
}

/** 0, 1 and negative numbers would signal process groups, or init. */
function pidOf(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 1 ? value : undefined
}

function numberOf(record: Readonly<Record<string, unknown>>, key: string): number | undefined {
  const value = record[key]
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined
}
