/**
 * One look at one allocation directory: what is there, read from the disk and from nowhere else.
 *
 * Looks are synchronous: one costs about 30 microseconds from the page cache, a tenth of what the same calls cost
 * through the thread pool, and a registry of two hundred allocations must be ready in milliseconds. Callers with many
 * directories slice their work (`inSlices`). Assumes that the allocation directory is on a local disk.
 *
 * Nothing here is trusted to be what its name says: a manifest is opened without following links and without waiting
 * for a pipe's writer, and it is read only when it is a regular file of a sane size.
 */
import { yieldIfDue } from '../../platform/scheduler.ts'
import { closeSync, constants, fstatSync, lstatSync, openSync, readSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { isErrno, errnoOf } from '../../platform/errors.ts'
import type { Allocation, Task } from './allocation.ts'
import { MANIFEST_BYTES_MAX, type Manifest, TASKS_MAX, isTaskName, parseManifest } from './manifest.ts'

/** Which file was read; the same print means that reading it again would say the same. */
export interface Print {
  /** Inode of the allocation's directory: another one is another allocation, whatever its name. */
  readonly directory: number
  readonly content: string
  /** The content was changed so recently that a later change may carry the same timestamps. */
  readonly unsure: boolean
}

export type Look =
  | { readonly kind: 'absent' }
  /** As at the look that gave the print passed in. */
  | { readonly kind: 'unchanged' }
  | { readonly kind: 'manifest'; readonly print: Print; readonly manifest: Manifest; readonly bornMs: number }
  | { readonly kind: 'bare'; readonly print: Print; readonly manifest: Manifest; readonly bornMs: number }
  | { readonly kind: 'fault'; readonly print: Print; readonly fault: string }

/** Timestamps of a filesystem move in steps of up to 10 ms; a change this old has a timestamp of its own. */
const UNSURE_MS = 50

/**
 * Looks at `<allocDir>/<id>`. With the print of an earlier look it says `unchanged` at the cost of two calls. Never
 * throws for what is on the disk; `nowMs` is wall time.
 */
export function lookAt(allocDir: string, id: string, known: Print | undefined, nowMs: number): Look {
  const directory = join(allocDir, id)
  try {
    const place = lstatSync(directory)
    if (place.isSymbolicLink()) {
      return {
        kind: 'fault',
        print: print(place.ino, 'link'),
        fault: 'it is a symbolic link; move the directory itself',
      }
    }
    if (!place.isDirectory()) return { kind: 'absent' }
    return lookInside(directory, id, place, known, nowMs)
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return { kind: 'absent' }
    return { kind: 'fault', print: print(0, `errno ${errnoOf(error)}`), fault: `cannot be read: ${errnoOf(error)}` }
  }
}

interface Place {
  readonly ino: number
  readonly mtimeMs: number
  readonly ctimeMs: number
  readonly birthtimeMs: number
}

function lookInside(directory: string, id: string, place: Place, known: Print | undefined, nowMs: number): Look {
  const path = join(directory, 'alloc.json')
  const file = lstatSync(path, { throwIfNoEntry: false })
  const bornMs = Math.floor(place.birthtimeMs > 0 ? place.birthtimeMs : place.ctimeMs)
  if (!file) return lookBare(directory, id, place, known, nowMs, bornMs)
  const content = `${file.ino} ${file.size} ${file.mtimeMs} ${file.ctimeMs}`
  const seen = { directory: place.ino, content, unsure: Math.abs(nowMs - file.ctimeMs) < UNSURE_MS }
  if (isSame(known, seen)) return { kind: 'unchanged' }
  const text = readManifestText(path)
  if ('fault' in text) return { kind: 'fault', print: seen, fault: text.fault }
  const result = parseManifest(text.text, id)
  if ('fault' in result) return { kind: 'fault', print: seen, fault: result.fault }
  // A manifest that names no tasks at all leaves them to be found; one that says `{}` has none.
  const manifest = result.manifest.tasks ? result.manifest : { ...result.manifest, tasks: findTasks(directory) }
  return { kind: 'manifest', print: seen, manifest, bornMs }
}

function lookBare(
  directory: string,
  id: string,
  place: Place,
  known: Print | undefined,
  nowMs: number,
  bornMs: number,
): Look {
  const logs = lstatSync(join(directory, 'alloc', 'logs'), { throwIfNoEntry: false })
  const content = `bare ${place.mtimeMs} ${logs?.ino} ${logs?.mtimeMs}`
  const newestMs = Math.max(place.mtimeMs, logs?.mtimeMs ?? 0)
  const seen = { directory: place.ino, content, unsure: Math.abs(nowMs - newestMs) < UNSURE_MS }
  if (isSame(known, seen)) return { kind: 'unchanged' }
  const manifest = { name: id, jobId: id, tasks: findTasks(directory) }
  return { kind: 'bare', print: seen, manifest, bornMs }
}

function isSame(known: Print | undefined, seen: Print): boolean {
  return known !== undefined && !known.unsure && known.directory === seen.directory && known.content === seen.content
}

function print(directory: number, content: string): Print {
  return { directory, content, unsure: false }
}

/** The text of the manifest at `path`, or why it cannot be read. */
function readManifestText(path: string): { readonly text: string } | { readonly fault: string } {
  let fd: number
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch (error) {
    if (isErrno(error, 'ELOOP')) return { fault: 'alloc.json is a symbolic link' }
    return { fault: `alloc.json cannot be opened: ${errnoOf(error)}` }
  }
  try {
    const { size, isFile } = statOf(fd)
    if (!isFile) return { fault: 'alloc.json is not a regular file' }
    if (size > MANIFEST_BYTES_MAX) return { fault: `alloc.json is larger than ${MANIFEST_BYTES_MAX} bytes` }
    const bytes = Buffer.allocUnsafe(size)
    let length = 0
    while (length < size) {
      const got = readSync(fd, bytes, length, size - length, length)
      if (got === 0) break
      length += got
    }
    return { text: bytes.toString('utf8', 0, length) }
  } catch (error) {
    return { fault: `alloc.json cannot be read: ${errnoOf(error)}` }
  } finally {
    closeSync(fd)
  }
}

function statOf(fd: number): { size: number; isFile: boolean } {
  const stat = fstatSync(fd)
  return { size: stat.size, isFile: stat.isFile() }
}

const LOG_NAME = /^([^.].*)\.(?:stdout|stderr)\.\d+$/

/**
 * The tasks of a directory that has no word on them: every directory but `alloc` and hidden ones, and every name that
 * has a log. They are taken to be running, because nothing says otherwise and what runs must never be collected.
 */
function findTasks(directory: string): ReadonlyMap<string, Task> {
  const tasks = new Map<string, Task>()
  const add = (name: string) => {
    if (!name.startsWith('.') && isTaskName(name) && tasks.size < TASKS_MAX) tasks.set(name, runningTask(name))
  }
  for (const entry of readdirSync(directory, { withFileTypes: true })) if (entry.isDirectory()) add(entry.name)
  for (const name of logNames(directory)) add(LOG_NAME.exec(name)?.[1] ?? '')
  return tasks
}

function logNames(directory: string): readonly string[] {
  const logs = join(directory, 'alloc', 'logs')
  try {
    return lstatSync(logs).isDirectory() ? readdirSync(logs) : []
  } catch {
    return [] // no logs yet, or not for us to see: the task directories still tell the tasks
  }
}

function runningTask(name: string): Task {
  return {
    name,
    state: 'running',
    failed: false,
    startedAtMs: undefined,
    finishedAtMs: undefined,
    pids: [],
    logsDisabled: false,
    maxFiles: 10,
    maxFileSizeMb: 10,
  }
}

/** An allocation from what its manifest said and, for the rest, from what can be assumed. */
export function completeAllocation(
  manifest: Manifest,
  place: {
    readonly id: string
    readonly directory: string
    readonly bornMs: number
    readonly collected: boolean
  },
): Allocation {
  return {
    id: place.id,
    name: manifest.name ?? place.id,
    namespace: manifest.namespace ?? 'default',
    jobId: manifest.jobId ?? place.id,
    taskGroup: manifest.taskGroup ?? '',
    desiredStatus: manifest.desiredStatus ?? 'run',
    clientStatus: manifest.clientStatus ?? 'running',
    createTimeMs: manifest.createTimeMs ?? place.bornMs,
    tasks: manifest.tasks ?? new Map(),
    directory: place.directory,
    collected: place.collected,
  }
}

/** Calls `each` for every item, and gives way in between. Stops when `signal` aborts. */
export async function inSlices<T>(items: Iterable<T>, each: (item: T) => void, signal?: AbortSignal): Promise<void> {
  for (const item of items) {
    if (signal?.aborted) return
    each(item)
    const turn = yieldIfDue()
    if (turn) await turn
  }
}
