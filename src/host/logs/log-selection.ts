/**
 * Which logs a request asks for, and where it begins in each.
 */
import { Refusal } from '../../platform/errors.ts'
import { gone } from '../files/alloc-files.ts'
import type { Allocation, Task } from '../allocations/allocation.ts'
import { type ResumeCursor, LOGS_MAX } from './locate/resume-cursor.ts'
import type { LogStart } from './follow/log-cursor.ts'
import { LogFiles, type LogPosition, logStart } from './locate/log-files.ts'
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

/** Where to begin in a log, as it was asked for. */
export interface StartRequest {
  readonly origin: string
  readonly offset: number
  readonly cursor: ResumeCursor | undefined
  /** Bytes that were received behind the cursor's place. */
  readonly received: number
  readonly tailLines: number | undefined
  readonly sinceMs: number | undefined
}

/** Files of one log that are looked into to find a line or a time; the oldest beyond that are passed over. */
const SEARCHED_FILES_MAX = 1024

export function isMerged({ task, type }: LogSelection): boolean {
  return task === '*' || type === '*'
}

/** The logs that are asked for and have files. Throws a Refusal that says why there are none. */
export function selectLogs(allocation: Allocation, selection: LogSelection): readonly [LogFiles, ...LogFiles[]] {
  if (allocation.collected) throw gone(allocation)
  if (!isMerged(selection)) return [theLog(allocation, selection)]
  const [first, ...others] = existingLogs(allocation, selection)
  if (first) return [first, ...others]
  const { task } = selection
  if (task !== '*' && !allocation.tasks.has(task)) throw unknownTask(task)
  throw new Refusal('not_found', `no log found for task "${task}" and log type "${selection.type}"`)
}

/** As `selectLogs`, without any refusal. `listed` gives the names in the log directory, if they are known already. */
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

function theLog(allocation: Allocation, { task: name, type }: LogSelection): LogFiles {
  const task = allocation.tasks.get(name)
  if (!task) throw unknownTask(name)
  if (!hasStarted(task)) throw new Refusal('not_found', `task "${name}" not started yet. No logs available`)
  const logs = new LogFiles(allocation, { task: name, type })
  if (task.logsDisabled) throw noLog(logs)
  return logs
}

function unknownTask(name: string): Refusal {
  return new Refusal('invalid_request', `unknown task name ${JSON.stringify(name)}`)
}

function hasStarted(task: Task): boolean {
  return task.state !== 'pending' || task.startedAtMs !== undefined
}

export function noLog({ task, type }: LogFiles): Refusal {
  return new Refusal('not_found', `log entry for task "${task}" and log type "${type}" not found`)
}

/** True when every task that is asked for has ended. */
export function tasksEnded(allocation: Allocation | undefined, task: string): boolean {
  if (!allocation) return false
  const tasks = [...allocation.tasks.values()].filter(({ name }) => task === '*' || name === task)
  return tasks.length > 0 && tasks.every(({ state }) => state === 'dead')
}

/** Throws a Refusal when the cursor has nothing to do with the logs. */
export function checkCursor(cursor: ResumeCursor | undefined, logs: readonly LogFiles[]): void {
  if (cursor) requireLogOf(cursor, logs)
}

/** Throws a Refusal when one cursor could not tell where each of the logs goes on. */
export function requireFewLogs(logs: readonly LogFiles[]): void {
  if (logs.length <= LOGS_MAX) return
  throw new Refusal(
    'invalid_request',
    `a cursor holds the places of ${LOGS_MAX} logs, and these are ${logs.length}: ask for one type or one task, or leave out cursor (outpost logs: -no-resume)`,
  )
}

/**
 * Where a request begins in one of its logs, of which there are the files `indexes`; undefined when the log has no files
 * any more.
 */
export async function startOfLog(
  logs: LogFiles,
  indexes: readonly number[],
  at: StartRequest,
  signal: AbortSignal,
): Promise<LogStart | undefined> {
  const { cursor, tailLines, sinceMs } = at
  if (cursor) return resumeLog(logs, indexes, cursor, at.received) ?? oldestPosition(logs, indexes)
  if (tailLines === undefined && sinceMs === undefined) {
    const place = logStart(sizesOf(logs, indexes), at)
    return place && { place }
  }
  const files = openFiles(logs, indexes)
  try {
    if (files.length === 0) return undefined
    const place = await requestedPosition(files, at, signal)
    return place && { place }
  } finally {
    for (const { file } of files) file.close()
  }
}

/**
 * The place that `since` and `tail_lines` ask for, the later one when both do; undefined when neither does. `files` must
 * not be empty and stay open.
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

/** The oldest byte there is of a log with the files `indexes`; names that are no readable files are passed over. */
export function oldestPosition(logs: LogFiles, indexes: readonly number[]): LogStart | undefined {
  const index = indexes.find((each) => logs.sizeOf(each) !== undefined)
  return index === undefined ? undefined : { place: { index, offset: 0 } }
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
