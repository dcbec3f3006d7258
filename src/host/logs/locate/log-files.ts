/**
 * The rotated files of one task's log: `alloc/logs/<task>.<type>.<N>`, N counting up, the highest one live, the lowest
 * ones removed as time goes by. Which of them exist is looked up in the directory each time it may have changed; what
 * is no regular decimal index is not a log file and is passed over.
 */
import { closeSync, readdirSync } from 'node:fs'
import { isErrno, Refusal } from '../../../platform/errors.ts'
import { type ReadableFile, findFile, openFile, refusalOf } from '../../files/alloc-files.ts'
import type { Allocation } from '../../allocations/allocation.ts'
import { logHash } from './resume-cursor.ts'

const LOG_DIRECTORY = 'alloc/logs'
/** Indexes above are no log files: they could not be counted up any further. */
const INDEX_MAX = Number.MAX_SAFE_INTEGER - 1

/** By the name without its index: hundreds of logs are looked up in one listing. */
const indexesOfNames = new WeakMap<readonly string[], ReadonlyMap<string, readonly number[]>>()

function indexesIn(names: readonly string[]): ReadonlyMap<string, readonly number[]> {
  const known = indexesOfNames.get(names)
  if (known) return known
  const found = new Map<string, number[]>()
  for (const name of names) {
    const at = name.lastIndexOf('.') + 1
    const text = name.slice(at)
    const index = Number(text)
    // Only the canonical form: `007` and `7` would be two files with one place in the order.
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
  /** Names this log in a cursor. */
  readonly hash: number

  constructor(allocation: Allocation, options: { task: string; type: string }) {
    this.#allocation = allocation
    this.task = options.task
    this.type = options.type
    this.#prefix = `${options.task}.${options.type}.`
    this.hash = logHash(`${options.task}.${options.type}`)
  }

  /** Existing indexes in ascending order; empty when there are none or the directory is gone. */
  indexes(names: readonly string[] = this.names()): readonly number[] {
    return indexesIn(names).get(this.#prefix) ?? []
  }

  path(index: number): string {
    return `${LOG_DIRECTORY}/${this.#prefix}${index}`
  }

  /** Opens one of the files, or undefined when it is gone or is no file whose content may be read. */
  open(index: number): ReadableFile | undefined {
    try {
      return openFile(this.#allocation, this.path(index))
    } catch (error) {
      if (error instanceof Refusal && ['not_found', 'invalid_request', 'prohibited'].includes(error.code))
        return undefined
      throw error
    }
  }

  /** Bytes of one of the files, or undefined as `open`. */
  sizeOf(index: number): number | undefined {
    const content = this.open(index)
    if (!content) return undefined
    closeSync(content.fd)
    return Number(content.stat.size)
  }

  /** When the file of an index came into being, where the file system tells; 0 when it does not, or the file is gone. */
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

  /** All names in the log directory, of whatever task. */
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

/** A place in the log: an index of a file and a byte in it. */
export interface LogPosition {
  readonly index: number
  readonly offset: number
}

/**
 * Where a request begins, as the compatible system walks: from the lowest file forward (`start`) or from the highest
 * backward (`end`, where a positive offset counts back). `sizes` are in ascending order of their index.
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
