/** The logs that a request selects, and its start position in each. */
import { collectedRefusal } from '../files/alloc-files.ts'
import type { Allocation, Task } from '../allocations/allocation.ts'
import { type ResumeCursor, LOGS_MAX } from './locate/resume-cursor.ts'
import type { LogStart } from './follow/log-cursor.ts'
import { LogFiles, type LogPosition, logStart } from './locate/log-files.ts'
import { logNotFound, noLogFound, taskNotStarted, tooManyLogs, unknownTask } from './log-errors.ts'
import { laterPosition, type IndexedFile, tailPosition } from './locate/log-position.ts'
import { requireLogOf, resumeLog } from './resume.ts'
import { sincePosition } from './locate/log-since.ts'
import { OpenFile } from '../files/read.ts'

export interface LogSelection {
  /** Name of a task, or `*` for all. */
  readonly task: string
  /** `stdout`, `stderr`, or `*` for both. */
  readonly type: string
}

/** The parameters of the start position. */
export interface StartRequest {
  readonly origin: string
  readonly offset: number
  readonly cursor: ResumeCursor | undefined
  /** Bytes received after the cursor. */
  readonly received: number
  readonly tailLines: number | undefined
  readonly sinceMs: number | undefined
}

/** Newest files of a log that are searched for a line or a time. */
const SEARCHED_FILES_MAX = 1024

export function isMerged({ task, type }: LogSelection): boolean {
  return task === '*' || type === '*'
}

/** The selected logs that have files. Throws a Refusal if there are none. */
export function selectLogs(allocation: Allocation, selection: LogSelection): readonly [LogFiles, ...LogFiles[]] {
  if (allocation.collected) throw collectedRefusal(allocation)
  if (!isMerged(selection)) return [singleLog(allocation, selection)]
  const [first, ...others] = existingLogs(allocation, selection)
  if (first) return [first, ...others]
  const { task } = selection
  if (task !== '*' && !allocation.tasks.has(task)) throw unknownTask(task)
  throw noLogFound(selection)
}

/** As `selectLogs`, without a Refusal. `listed` returns the names in the log directory if they are already known. */
export function existingLogs(
  allocation: Allocation,
  { task, type }: LogSelection,
  listed?: () => readonly string[],
): LogFiles[] {
  const types = type === '*' ? ['stdout', 'stderr'] : [type]
  const tasks = [...allocation.tasks.values()].filter(({ name }) => task === '*' || name === task)
  const logs = tasks
    .filter((each) => !each.logsDisabled && hasStarted(each))
    .flatMap(({ name }) => types.map((each) => new LogFiles(allocation, { task: name, type: each })))
  const names = listed?.() ?? logs[0]?.names() ?? []
  return logs.filter((each) => each.indexes(names).length > 0)
}

function singleLog(allocation: Allocation, { task: name, type }: LogSelection): LogFiles {
  const task = allocation.tasks.get(name)
  if (!task) throw unknownTask(name)
  if (!hasStarted(task)) throw taskNotStarted(name)
  const logs = new LogFiles(allocation, { task: name, type })
  if (task.logsDisabled) throw logNotFound(logs)
  return logs
}

function hasStarted(task: Task): boolean {
  return task.state !== 'pending' || task.startedAtMs !== undefined
}

/** True if all selected tasks have ended. */
export function tasksEnded(allocation: Allocation | undefined, task: string): boolean {
  if (!allocation) return false
  const tasks = [...allocation.tasks.values()].filter(({ name }) => task === '*' || name === task)
  return tasks.length > 0 && tasks.every(({ state }) => state === 'dead')
}

/** Throws a Refusal if the cursor belongs to other logs. */
export function checkCursor(cursor: ResumeCursor | undefined, logs: readonly LogFiles[]): void {
  if (cursor) requireLogOf(cursor, logs)
}

/** Throws a Refusal if the logs do not fit into one cursor. */
export function requireFewLogs(logs: readonly LogFiles[]): void {
  if (logs.length > LOGS_MAX) throw tooManyLogs(logs.length, LOGS_MAX)
}

/** The start of a request in one of its logs, which has the files `indexes`; undefined if the log has no files any more. */
export async function startOfLog(
  logs: LogFiles,
  indexes: readonly number[],
  at: StartRequest,
  signal: AbortSignal,
): Promise<LogStart | undefined> {
  const { cursor, tailLines, sinceMs } = at
  if (cursor) return resumeLog(logs, indexes, cursor, at.received) ?? oldestPosition(logs, indexes)
  if (tailLines === undefined && sinceMs === undefined) {
    const position = logStart(sizesOf(logs, indexes), at)
    return position && { position }
  }
  const files = openFiles(logs, indexes)
  try {
    if (files.length === 0) return undefined
    const position = await requestedPosition(files, at, signal)
    return position && { position }
  } finally {
    for (const { file } of files) file.close()
  }
}

/**
 * The position of `since` or `tail_lines`, the later of both; undefined without either. `files` must not be empty and stay
 * open.
 */
export async function requestedPosition(
  files: readonly IndexedFile[],
  { sinceMs, tailLines }: StartRequest,
  signal: AbortSignal,
): Promise<LogPosition | undefined> {
  const byTime = sinceMs === undefined ? undefined : await sincePosition(files, sinceMs, signal)
  const byLines = tailLines === undefined ? undefined : await tailPosition(files, tailLines, signal)
  return byTime && byLines ? laterPosition(byTime, byLines) : (byTime ?? byLines)
}

/** The first byte of a log with the files `indexes`; names that are not readable files are skipped. */
export function oldestPosition(logs: LogFiles, indexes: readonly number[]): LogStart | undefined {
  const index = indexes.find((each) => logs.sizeOf(each) !== undefined)
  return index === undefined ? undefined : { position: { index, offset: 0 } }
}

function sizesOf(logs: LogFiles, indexes: readonly number[]): { index: number; size: number }[] {
  return indexes.flatMap((index) => {
    const size = logs.sizeOf(index)
    return size === undefined ? [] : [{ index, size }]
  })
}

function openFiles(logs: LogFiles, indexes: readonly number[]): IndexedFile[] {
  const files: IndexedFile[] = []
  try {
    for (const index of indexes.slice(-SEARCHED_FILES_MAX)) {
      const content = logs.open(index)
      if (!content) continue
      const { size, mtimeNs } = content.stat
      files.push({ index, size: Number(size), modifiedMs: Number(mtimeNs) / 1e6, file: new OpenFile(content.fd) })
    }
    return files
  } catch (error) {
    for (const { file } of files) file.close()
    throw error
  }
}
