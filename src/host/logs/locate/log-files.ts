/**
 * The rotated files of one task's log: `alloc/logs/<task>.<type>.<N>`. N increases, the highest is the live file, and the
 * lowest ones are removed by the supervisor. The directory is listed again whenever it may have changed. Names without a
 * canonical decimal index are not log files.
 */
import { closeSync, readdirSync } from 'node:fs'
import { isErrno, Refusal } from '../../../platform/errors.ts'
import { type ReadableFile, findFile, openFile, refusalOf } from '../../files/alloc-files.ts'
import type { Allocation } from '../../allocations/allocation.ts'
import { logHash } from './resume-cursor.ts'

const LOG_DIRECTORY = 'alloc/logs'
/** Larger indexes are not log files: they have no successor. */
const INDEX_MAX = Number.MAX_SAFE_INTEGER - 1

/** By name without index; cached per listing, because hundreds of logs use one. */
const indexesOfNames = new WeakMap<readonly string[], ReadonlyMap<string, readonly number[]>>()

function indexesIn(names: readonly string[]): ReadonlyMap<string, readonly number[]> {
  const known = indexesOfNames.get(names)
  if (known) return known
  const found = new Map<string, number[]>()
  for (const name of names) {
    const at = name.lastIndexOf('.') + 1
    const text = name.slice(at)
    const index = Number(text)
    // Only the canonical form: `007` and `7` would be two files with the same index.
    if (!/^(0|[1-9]\d*)$/.test(text) || index > INDEX_MAX) continue
    const prefix = name.slice(0, at)
    const same = found.get(prefix)
    if (same) same.push(index)
    else found.set(prefix, [index])
  }
  for (const indexes of found.values()) indexes.sort((a, b) => a - b)
  indexesOfNames.set(names, found)
  return found
}

export class LogFiles {
  readonly #allocation: Allocation
  readonly #prefix: string
  readonly task: string
  readonly type: string
  /** Identifies this log in a cursor. */
  readonly hash: number

  constructor(allocation: Allocation, options: { task: string; type: string }) {
    this.#allocation = allocation
    this.task = options.task
    this.type = options.type
    this.#prefix = `${options.task}.${options.type}.`
    this.hash = logHash(`${options.task}.${options.type}`)
  }

  /** Existing indexes in ascending order; empty if there are none or the directory does not exist. */
  indexes(names: readonly string[] = this.names()): readonly number[] {
    return indexesIn(names).get(this.#prefix) ?? []
  }

  path(index: number): string {
    return `${LOG_DIRECTORY}/${this.#prefix}${index}`
  }

  /** Opens one of the files; undefined if it does not exist or must not be read. */
  open(index: number): ReadableFile | undefined {
    try {
      return openFile(this.#allocation, this.path(index))
    } catch (error) {
      if (error instanceof Refusal && ['not_found', 'invalid_request', 'prohibited'].includes(error.code))
        return undefined
      throw error
    }
  }

  /** Size of one of the files in bytes; undefined as `open`. */
  sizeOf(index: number): number | undefined {
    const content = this.open(index)
    if (!content) return undefined
    closeSync(content.fd)
    return Number(content.stat.size)
  }

  /** Creation time of a file; 0 if the file system does not record it or the file does not exist. */
  bornNs(index: number): bigint {
    try {
      const found = findFile(this.#allocation, this.path(index), 'stat')
      closeSync(found.fd)
      return found.stat.birthtimeNs
    } catch {
      return 0n
    }
  }

  directoryExists(): boolean {
    try {
      closeSync(findFile(this.#allocation, LOG_DIRECTORY, 'open').fd)
      return true
    } catch (error) {
      return !(error instanceof Refusal && error.code === 'not_found')
    }
  }

  /** All names in the log directory, of all tasks. */
  names(): string[] {
    try {
      const found = findFile(this.#allocation, LOG_DIRECTORY, 'open')
      try {
        return found.stat.isDirectory() ? readdirSync(`/proc/self/fd/${found.fd}`) : []
      } finally {
        closeSync(found.fd)
      }
    } catch (error) {
      if (error instanceof Refusal && error.code === 'not_found') return []
      if (isErrno(error, 'ENOENT')) return []
      const shown = error instanceof Refusal ? error : refusalOf(error, 'open', LOG_DIRECTORY)
      if (shown instanceof Refusal) throw new Refusal(shown.code, `failed to list entries: ${shown.message}`)
      throw shown
    }
  }
}

/** A position in a log: the index of a file and an offset in it. */
export interface LogPosition {
  readonly index: number
  readonly offset: number
}

/**
 * The start position of a request by Nomad's rules: from the lowest file forward (`start`), or from the highest backward
 * (`end`, where a positive offset counts backward). `sizes` are in ascending order of the index.
 */
export function logStart(
  sizes: readonly { index: number; size: number }[],
  request: { origin: string; offset: number },
): LogPosition | undefined {
  const fromEnd = request.origin === 'end'
  let at = fromEnd ? sizes.length - 1 : 0
  let offset = fromEnd ? -request.offset : request.offset
  for (;;) {
    const file = sizes[at]
    if (!file) return undefined
    if (offset >= 0) {
      if (offset <= file.size) return { index: file.index, offset }
      if (at === sizes.length - 1) return { index: file.index, offset: file.size }
      offset -= file.size
      at++
    } else {
      if (file.size + offset >= 0) return { index: file.index, offset: file.size + offset }
      if (at === 0) return { index: file.index, offset: 0 }
      offset += file.size
      at--
    }
  }
}
