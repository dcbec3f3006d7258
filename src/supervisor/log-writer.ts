/**
 * A rotated log: writes bytes to `<task>.<type>.<N>`.
 *
 * Promises: a byte is in the file when `write` returns; there is no buffer. The index only grows, also across restarts, which continue the
 * highest file. A file is created only when the previous one is complete, and a complete file is never written again, so a follower
 * that sees N+1 can read N to its end and continue. A file ends at the end of a line if there is one in its last 32 KiB; only longer
 * lines are split. After a rotation, the newest `maxFiles` files are kept.
 *
 * `write` blocks on the disk and never throws. Blocking is the back-pressure: the pipe fills up and the command waits, and memory does
 * not grow. Bytes that cannot be written (disk full, directory removed) are counted as lost, and later bytes are tried again, so the
 * command does not fail because of its log. After the next successful write, a line in the log states the number of missing bytes.
 */
import { closeSync, constants, fstatSync, openSync, readdirSync, readSync, unlinkSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { errnoOf, isErrno, messageOf } from '../platform/errors.ts'
import { SupervisorError } from './supervisor-error.ts'

/** Range at the end of a file that is searched for the end of a line. */
const LINE_END_ZONE_BYTES = 32 * 1024
const NEWLINE = 10
/** A link or pipe that has replaced the file since the directory was read is not followed and does not block. */
const REOPEN = constants.O_RDWR | constants.O_APPEND | constants.O_NOFOLLOW | constants.O_NONBLOCK

export interface LogWriterOptions {
  readonly directory: string
  readonly task: string
  readonly type: 'stdout' | 'stderr'
  /** Number of files to keep, at least 1. */
  readonly maxFiles: number
  readonly maxFileBytes: number
}

export class LogWriter {
  readonly #options: LogWriterOptions
  /** Indexes of the files, oldest first; the last is the current file. */
  readonly #indexes: number[]
  #descriptor: number
  #sizeBytes: number
  #atLineStart: boolean
  /** The current file is complete: the next byte goes to a new file. */
  #complete = false
  /** Missing bytes at the end of the current file. */
  #missingBytes = 0
  #lostBytes = 0
  #cause = ''
  #closed = false

  /** Opens the newest file, or creates the first one. Throws the system error. */
  constructor(options: LogWriterOptions) {
    this.#options = options
    this.#indexes = existingIndexes(options)
    const newest = this.#indexes.at(-1)
    if (newest === undefined) {
      this.#descriptor = this.#create(0)
      this.#sizeBytes = 0
      this.#atLineStart = true
      return
    }
    this.#descriptor = openSync(this.#path(newest), REOPEN)
    const facts = fstatSync(this.#descriptor)
    if (!facts.isFile()) {
      closeSync(this.#descriptor)
      throw new SupervisorError(`${this.#path(newest)} is not a regular file: remove it`)
    }
    this.#sizeBytes = facts.size
    this.#atLineStart = this.#sizeBytes === 0 || lastByteOf(this.#descriptor, this.#sizeBytes) === NEWLINE
    this.#purge()
  }

  /** Number of bytes that were not written since the start. */
  get lostBytes(): number {
    return this.#lostBytes
  }

  /** System error of the last loss, such as ENOSPC. */
  get lossCause(): string {
    return this.#cause
  }

  /** Writes `bytes`, to several files if required. Never throws; see `lostBytes`. */
  write(bytes: Uint8Array): void {
    if (this.#closed || !this.retry()) return this.#lose(bytes.length)
    const lost = bytes.length - this.#writeThrough(bytes)
    if (lost > 0) this.#lose(lost)
  }

  /** Writes the line about missing bytes, if any; false if it cannot be written. */
  retry(): boolean {
    if (this.#missingBytes === 0 || this.#closed) return true
    const startsFile = this.#complete || this.#sizeBytes >= this.#options.maxFileBytes
    const start = this.#atLineStart || startsFile ? '' : '\n'
    const notice = `${start}outpost: ${this.#missingBytes} bytes of output are missing here (${this.#cause})\n`
    const bytes = Buffer.from(notice)
    if (this.#writeThrough(bytes) < bytes.length) return false
    this.#missingBytes = 0
    return true
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    closeSync(this.#descriptor)
  }

  #lose(count: number): void {
    this.#missingBytes += count
    this.#lostBytes += count
  }

  /** Returns the number of bytes that were written before an error. */
  #writeThrough(bytes: Uint8Array): number {
    let from = 0
    try {
      while (from < bytes.length) {
        if (this.#complete) this.#rotate()
        const end = this.#fileEnd(bytes, from)
        while (from < end) from += this.#append(bytes, from, end)
        if (from < bytes.length) this.#complete = true
      }
    } catch (error) {
      this.#cause = errnoOf(error) ?? messageOf(error)
    }
    return from
  }

  #append(bytes: Uint8Array, from: number, end: number): number {
    const written = writeSync(this.#descriptor, bytes, from, end - from)
    this.#sizeBytes += written
    this.#atLineStart = bytes[from + written - 1] === NEWLINE
    return written
  }

  /** Index in `bytes` at which the current file ends; `bytes.length` if it does not end. */
  #fileEnd(bytes: Uint8Array, from: number): number {
    const capacity = Math.max(this.#options.maxFileBytes - this.#sizeBytes, 0)
    const fits = bytes.length - from <= capacity
    const end = fits ? bytes.length : from + capacity
    const remaining = capacity - (end - from)
    // The file continues if the next line can end in it, or if it ends with a complete line.
    if (fits && (remaining >= LINE_END_ZONE_BYTES || bytes[end - 1] === NEWLINE)) return end
    const zoneStart = from + Math.max(capacity - LINE_END_ZONE_BYTES, 0)
    const lineEnd = end > zoneStart ? bytes.lastIndexOf(NEWLINE, end - 1) : -1
    if (lineEnd >= zoneStart) return lineEnd + 1
    const endsWithLine = this.#atLineStart && this.#sizeBytes > 0 && capacity <= LINE_END_ZONE_BYTES
    return endsWithLine ? from : end
  }

  /** Creates the next file, then closes the current one. Throws the system error with the current file open. */
  #rotate(): void {
    const next = this.#create((this.#indexes.at(-1) ?? -1) + 1)
    closeSync(this.#descriptor)
    this.#descriptor = next
    this.#sizeBytes = 0
    this.#atLineStart = true
    this.#complete = false
    this.#purge()
  }

  /** Creates the first file from `index` on that does not exist; existing files of others are not written. */
  #create(index: number): number {
    const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_EXCL
    for (let candidate = index; ; candidate++) {
      try {
        const descriptor = openSync(this.#path(candidate), flags, 0o644)
        this.#indexes.push(candidate)
        return descriptor
      } catch (error) {
        if (!isErrno(error, 'EEXIST')) throw error
      }
    }
  }

  #purge(): void {
    while (this.#indexes.length > this.#options.maxFiles) {
      const oldest = this.#indexes.shift()
      try {
        if (oldest !== undefined) unlinkSync(this.#path(oldest))
      } catch {
        // Removed already, or not permitted: the log continues.
      }
    }
  }

  #path(index: number): string {
    return join(this.#options.directory, `${this.#options.task}.${this.#options.type}.${index}`)
  }
}

/** Indexes of the regular files of this log, ascending. */
function existingIndexes({ directory, task, type }: LogWriterOptions): number[] {
  const prefix = `${task}.${type}.`
  return readdirSync(directory, { withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.startsWith(prefix))
    .map((entry) => entry.name.slice(prefix.length))
    .filter((suffix) => /^(?:0|[1-9]\d{0,14})$/.test(suffix))
    .map(Number)
    .sort((a, b) => a - b)
}

function lastByteOf(descriptor: number, sizeBytes: number): number | undefined {
  const byte = new Uint8Array(1)
  readSync(descriptor, byte, 0, 1, sizeBytes - 1)
  return byte[0]
}
