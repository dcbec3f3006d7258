/**
 * Parses and serializes `alloc.json`.
 *
 * Any supervisor may write a manifest, so every field is checked and bounded. A fault is one sentence that names the field
 * and never its value: a command line or a job name may contain a secret, and the sentence is logged. Unknown fields are
 * ignored, so a supervisor may store its own data in the file. `null` counts as absent, because Go writes empty fields so.
 */
import * as v from 'valibot'
import type { Allocation, Task } from './allocation.ts'

/** Far above real manifests (a kilobyte or two), and small enough for one read. */
export const MANIFEST_BYTES_MAX = 1 << 20
export const TASKS_MAX = 1000
const PIDS_MAX = 4096
/** `pid_max` of Linux can go up to 2^22. */
const PID_MAX = 1 << 22
const NAME_BYTES_MAX = 1024
/** The file name limit of all common file systems; a task's name is a directory name. */
const TASK_NAME_BYTES_MAX = 255
const INT_MAX = 2 ** 31 - 1
/** Clients read it into a signed 64-bit integer. */
const CREATE_TIME_MAX = 9e18

/** The fields that a manifest has. */
export type AllocationManifest = Partial<Omit<Allocation, 'id' | 'directory' | 'collected'>>

export type ManifestResult = { readonly manifest: AllocationManifest } | { readonly fault: string }

const name = v.nullish(v.pipe(v.string('must be a string'), v.maxBytes(NAME_BYTES_MAX, 'is too long')))
const time = v.nullish(v.pipe(v.string('must be a time or null'), v.check(isRfc3339, 'must be an RFC 3339 time')))
const flag = v.nullish(v.boolean('must be true or false'))

function wholeNumber(least: number, most: number) {
  const message = `must be a whole number from ${least} to ${most}`
  return v.pipe(v.number(message), v.integer(message), v.minValue(least, message), v.maxValue(most, message))
}

function plainObject(message: string) {
  return v.custom<Record<string, unknown>>(
    (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
    message,
  )
}

const TaskSchema = v.object(
  {
    State: v.picklist(['pending', 'running', 'dead'], 'must be pending, running or dead'),
    Failed: flag,
    StartedAt: time,
    FinishedAt: time,
    // Only displayed, so a value of another type is ignored.
    ExitCode: v.fallback(v.nullish(wholeNumber(0, INT_MAX)), undefined),
    Pids: v.nullish(
      v.pipe(
        // Process 1 is never a task, and its statistics would be those of the whole host.
        v.array(wholeNumber(2, PID_MAX), 'must be a list of process IDs'),
        v.maxLength(PIDS_MAX, `must not have more than ${PIDS_MAX} entries`),
      ),
    ),
    PidStartTicks: v.nullish(wholeNumber(0, Number.MAX_SAFE_INTEGER)),
    LogsDisabled: flag,
    MaxFiles: v.nullish(wholeNumber(1, INT_MAX)),
    MaxFileSizeMB: v.nullish(wholeNumber(1, INT_MAX)),
  },
  'must be an object',
)

const ManifestSchema = v.object(
  {
    ID: v.nullish(v.string('must be a string')),
    Name: name,
    Namespace: name,
    JobID: name,
    TaskGroup: name,
    DesiredStatus: v.nullish(v.picklist(['run', 'stop', 'evict'], 'must be run, stop or evict')),
    ClientStatus: v.nullish(
      v.picklist(
        ['pending', 'running', 'complete', 'failed', 'lost'],
        'must be pending, running, complete, failed or lost',
      ),
    ),
    CreateTime: v.nullish(
      v.pipe(
        v.number('must be nanoseconds since 1970'),
        v.finite('must be nanoseconds since 1970'),
        v.minValue(0, 'must not be negative'),
        v.maxValue(CREATE_TIME_MAX, 'must be nanoseconds since 1970'),
      ),
    ),
    // Not a valibot record: it omits keys such as `constructor`, which is a valid task name.
    Tasks: v.nullish(plainObject('must be an object')),
  },
  'alloc.json must be a JSON object',
)

/**
 * Parses the text of the `alloc.json` of the allocation `id`. Never throws; `fault` is one sentence for the log.
 */
export function parseManifest(text: string, id: string): ManifestResult {
  if (text.length > MANIFEST_BYTES_MAX) return { fault: `alloc.json is larger than ${MANIFEST_BYTES_MAX} bytes` }
  if (text.trim() === '') return { fault: 'alloc.json is empty' }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    // V8's message quotes the text and must not be logged.
    return { fault: 'alloc.json is not JSON, or only half written' }
  }
  return readManifest(value, id)
}

/** As `parseManifest`, for parsed JSON. */
export function readManifest(value: unknown, id: string): ManifestResult {
  // To valibot an array is an object whose fields are all absent.
  const parsed = v.safeParse(ManifestSchema, Array.isArray(value) ? undefined : value)
  if (!parsed.success) return { fault: faultOf(parsed.issues[0]) }
  const fields = parsed.output
  if (typeof fields.ID === 'string' && fields.ID !== id) return { fault: 'ID is not the name of its directory' }
  const tasks = fields.Tasks ? readTasks(fields.Tasks) : undefined
  if (typeof tasks === 'string') return { fault: tasks }
  return {
    manifest: {
      ...(fields.Name ? { name: fields.Name } : {}),
      ...(fields.Namespace ? { namespace: fields.Namespace } : {}),
      ...(fields.JobID ? { jobId: fields.JobID } : {}),
      ...(fields.TaskGroup ? { taskGroup: fields.TaskGroup } : {}),
      ...(fields.DesiredStatus ? { desiredStatus: fields.DesiredStatus } : {}),
      ...(fields.ClientStatus ? { clientStatus: fields.ClientStatus } : {}),
      ...(fields.CreateTime ? { createTimeMs: millisecondsOf(fields.CreateTime) } : {}),
      ...(tasks ? { tasks } : {}),
    },
  }
}

/** The tasks of a manifest, or a fault. A fault names a task by its number, because its name is content too. */
function readTasks(raw: Readonly<Record<string, unknown>>): ReadonlyMap<string, Task> | string {
  const entries = Object.entries(raw)
  if (entries.length > TASKS_MAX) return `Tasks has more than ${TASKS_MAX} entries`
  const tasks = new Map<string, Task>()
  for (const [index, [taskName, value]] of entries.entries()) {
    if (!isTaskName(taskName)) return `Tasks: name ${index + 1} cannot be the name of a task directory`
    const parsed = v.safeParse(TaskSchema, value)
    if (!parsed.success) return `Tasks: entry ${index + 1}: ${faultOf(parsed.issues[0])}`
    const fields = parsed.output
    tasks.set(taskName, {
      name: taskName,
      state: fields.State,
      failed: fields.Failed ?? false,
      startedAtMs: timeMs(fields.StartedAt),
      finishedAtMs: timeMs(fields.FinishedAt),
      ...(typeof fields.ExitCode === 'number' ? { exitCode: fields.ExitCode } : {}),
      pids: fields.Pids ?? [],
      ...(fields.PidStartTicks ? { pidStartTicks: fields.PidStartTicks } : {}),
      logsDisabled: fields.LogsDisabled ?? false,
      maxFiles: fields.MaxFiles ?? 10,
      maxFileSizeMb: fields.MaxFileSizeMB ?? 10,
    })
  }
  return tasks
}

/** True for a name that is one ordinary path component and not `alloc`, the directory that all tasks share. */
export function isTaskName(text: string): boolean {
  if (text === '' || text === '.' || text === '..' || text === 'alloc') return false
  return !text.includes('/') && !text.includes('\0') && Buffer.byteLength(text) <= TASK_NAME_BYTES_MAX
}

function faultOf(issue: v.BaseIssue<unknown>): string {
  const field = issue.path?.[0]?.key
  return typeof field === 'string' ? `${field} ${issue.message}` : issue.message
}

const RFC3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)$/i

function isRfc3339(text: string): boolean {
  return RFC3339.test(text) && !Number.isNaN(Date.parse(text))
}

/** Current nanoseconds exceed 2^53 and were rounded by up to 128 in parsing, which must not lower the millisecond. */
function millisecondsOf(nanoseconds: number): number {
  return Math.floor((nanoseconds + 256) / 1e6)
}

/** Go's zero time (year 1) means "never", as `null` does. */
function timeMs(text: string | null | undefined): number | undefined {
  const ms = text ? Date.parse(text) : Number.NaN
  return ms > 0 ? ms : undefined
}

/** An allocation as an `alloc.json` value; `readManifest` returns the same allocation for it. */
export function manifestOf(allocation: Allocation): Record<string, unknown> {
  const tasks = [...allocation.tasks.values()].map((task) => [
    task.name,
    {
      State: task.state,
      Failed: task.failed,
      StartedAt: isoOrNull(task.startedAtMs),
      FinishedAt: isoOrNull(task.finishedAtMs),
      ...(task.exitCode === undefined ? {} : { ExitCode: task.exitCode }),
      Pids: task.pids,
      ...(task.pidStartTicks === undefined ? {} : { PidStartTicks: task.pidStartTicks }),
      LogsDisabled: task.logsDisabled,
      MaxFiles: task.maxFiles,
      MaxFileSizeMB: task.maxFileSizeMb,
    },
  ])
  return {
    ID: allocation.id,
    Name: allocation.name,
    Namespace: allocation.namespace,
    JobID: allocation.jobId,
    TaskGroup: allocation.taskGroup,
    DesiredStatus: allocation.desiredStatus,
    ClientStatus: allocation.clientStatus,
    CreateTime: allocation.createTimeMs * 1e6,
    Tasks: Object.fromEntries(tasks),
  }
}

function isoOrNull(ms: number | undefined): string | null {
  return ms === undefined ? null : new Date(ms).toISOString()
}
