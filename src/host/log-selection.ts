/**
 * Which logs a request asks for, and where it begins in each.
 */
import { closeSync } from 'node:fs'
import { Refusal } from '../kit/errors.ts'
import { gone } from './alloc-files.ts'
import type { Allocation, Task } from './allocation.ts'
import type { Cursor } from './cursor-code.ts'
import type { LogStart } from './log-cursor.ts'
import { LogFiles, type LogPlace, logStart } from './log-files.ts'
import { laterPlace, type PlacedFile, tailPlace } from './log-position.ts'
import { requireLogOf, resumeLog } from './log-resume.ts'
import { sincePlace } from './log-since.ts'
import { OpenFile } from './read.ts'

export interface Selection {
  /** Name of a task, or `*` for all. */
  readonly task: string
  /** `stdout`, `stderr`, or `*` for both. */
  readonly type: string
}

/** Where to begin in a log, as it was asked for. */
export interface Beginning {
  readonly origin: string
  readonly offset: number
  readonly cursor: Cursor | undefined
  /** Bytes that were received behind the cursor's place. */
  readonly received: number
  readonly tailLines: number | undefined
  readonly sinceMs: number | undefined
}

/** Files of one log that are looked into to find a line or a time; the oldest beyond that are passed over. */
const SEARCHED_FILES_MAX = 1024

export function isMerged({ task, type }: Selection): boolean {
  return task === '*' || type === '*'
}

/** The logs that are asked for and have files. Throws a Refusal that says why there are none. */
export function selectLogs(allocation: Allocation, selection: Selection): readonly [LogFiles, ...LogFiles[]] {
  if (allocation.collected) throw gone(allocation)
  if (!isMerged(selection)) return [theLog(allocation, selection)]
  const [first, ...others] = existingLogs(allocation, selection)
  if (first) return [first, ...others]
  const { task } = selection
  if (task !== '*' && !allocation.tasks.has(task)) throw unknownTask(task)
  throw new Refusal('not_found', `no log found for task "${task}" and log type "${selection.type}"`)
}

/** As `selectLogs`, without any refusal. */
export function existingLogs(allocation: Allocation, { task, type }: Selection): LogFiles[] {
  const types = type === '*' ? ['stdout', 'stderr'] : [type]
  const tasks = [...allocation.tasks.values()].filter(({ name }) => task === '*' || name === task)
  const logs = tasks
    .filter((each) => !each.logsDisabled && hasStarted(each))
    .flatMap(({ name }) => types.map((each) => new LogFiles(allocation, { task: name, type: each })))
  const names = logs[0]?.names() ?? []
  return logs.filter((each) => each.indexes(names).length > 0)
}

function theLog(allocation: Allocation, { task: name, type }: Selection): LogFiles {
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
export function checkCursor(cursor: Cursor | undefined, logs: readonly LogFiles[]): void {
  if (cursor) requireLogOf(cursor, logs)
}

/** Where a request begins in one of its logs; undefined when the log has no files any more. */
export async function startOf(logs: LogFiles, at: Beginning, signal: AbortSignal): Promise<LogStart | undefined> {
  const { cursor, tailLines, sinceMs } = at
  if (cursor) return resumeLog(logs, cursor, at.received) ?? firstByte(logs)
  if (tailLines === undefined && sinceMs === undefined) {
    const place = logStart(sizesOf(logs), at)
    return place && { place }
  }
  const files = openFiles(logs)
  try {
    if (files.length === 0) return undefined
    const place = await soughtPlace(files, at, signal)
    return place && { place }
  } finally {
    for (const { file } of files) file.close()
  }
}

/**
 * The place that `since` and `tail_lines` ask for, the later one when both do; undefined when neither does. `files` must
 * not be empty and stay open.
 */
export async function soughtPlace(
  files: readonly PlacedFile[],
  { sinceMs, tailLines }: Beginning,
  signal: AbortSignal,
): Promise<LogPlace | undefined> {
  const byTime = sinceMs === undefined ? undefined : await sincePlace(files, sinceMs, signal)
  const byLines = tailLines === undefined ? undefined : await tailPlace(files, tailLines, signal)
  return byTime && byLines ? laterPlace(byTime, byLines) : (byTime ?? byLines)
}

/** The oldest byte there is of a log. */
export function firstByte(logs: LogFiles): LogStart | undefined {
  const [index] = logs.indexes()
  return index === undefined ? undefined : { place: { index, offset: 0 } }
}

function sizesOf(logs: LogFiles): { index: number; size: number }[] {
  const sizes: { index: number; size: number }[] = []
  for (const index of logs.indexes()) {
    const content = logs.open(index)
    if (!content) continue
    closeSync(content.fd)
    sizes.push({ index, size: Number(content.stat.size) })
  }
  return sizes
}

function openFiles(logs: LogFiles): PlacedFile[] {
  const files: PlacedFile[] = []
  try {
    for (const index of logs.indexes().slice(-SEARCHED_FILES_MAX)) {
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
