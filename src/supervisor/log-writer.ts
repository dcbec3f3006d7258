/**
 * One rotated log: bytes in, `<task>.<type>.<N>` out.
 *
 * Promises: a byte is in the file when `write` returns; there is no buffer. The index only grows, also across restarts,
 * where the highest file is continued. A file is created only when the one before it is complete, and then never
 * written again, so that a follower that sees N+1 can read N to its end and go on. A file ends at the end of a line
 * where one can be found in its last 32 KiB; only a line longer than that is split. After a rotation the newest
 * `maxFiles` are kept.
 *
 * `write` blocks while the disk does and never throws. Blocking is the back-pressure: the pipe behind it fills up and
 * the command waits, with no memory growing here. What cannot be written at all (disk full, directory gone) is counted
 * as lost and the next bytes are tried again, so that the command itself never fails for its log; once a write succeeds,
 * a line in the log says how much is missing at that place.
 */
import { closeSync, constants, fstatSync, openSync, readdirSync, readSync, unlinkSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { errnoOf, Fault, isErrno, messageOf } from '../platform/errors.ts'

/** Room at the end of a file in which a line's end is looked for. */
const LINE_END_ZONE_BYTES = 32 * 1024
const NEWLINE = 10
/** What another program has put in the place of a file since it was listed is neither followed nor waited for. */
const REOPEN = constants.O_RDWR | constants.O_APPEND | constants.O_NOFOLLOW | constants.O_NONBLOCK

export interface LogWriterOptions {
  readonly directory: string
  readonly task: string
  readonly type: 'stdout' | 'stderr'
  /** Files kept, at least 1. */
  readonly maxFiles: number
  readonly maxFileBytes: number
}

export class LogWriter {
  readonly #options: LogWriterOptions
  /** Indexes of our files, oldest first; the last one is the live file. */
  readonly #indexes: number[]
  #descriptor: number
  #sizeBytes: number
  #atLineStart: boolean
  /** The live file is complete: the next byte goes to a new one. */
  #complete = false
  /** Bytes that are missing at the end of the live file. */
  #missingBytes = 0
  #lostBytes = 0
  #cause = ''
  #closed = false

  /** Opens the newest file, or the first one. Throws the system's error. */
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
    const found = fstatSync(this.#descriptor)
    if (!found.isFile()) {
      closeSync(this.#descriptor)
      throw new Fault(`${this.#path(newest)} is not a regular file: move it away`)
    }
    this.#sizeBytes = found.size
    this.#atLineStart = this.#sizeBytes === 0 || lastByteOf(this.#descriptor, this.#sizeBytes) === NEWLINE
    this.#purge()
  }

  /** All bytes that could not be written since the start. */
  get lostBytes(): number {
    return this.#lostBytes
  }

  /** The system's name for what made bytes get lost last, such as ENOSPC. */
  get lossCause(): string {
    return this.#cause
  }

  /** Writes all of `bytes`, in as many files as it takes. Never throws; see `lostBytes`. */
  write(bytes: Uint8Array): void {
    if (this.#closed || !this.retry()) return this.#lose(bytes.length)
    const lost = bytes.length - this.#writeThrough(bytes)
    if (lost > 0) this.#lose(lost)
  }

  /** Puts the line about missing bytes into the log, if there are any; false while even that cannot be written. */
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

  /** How many bytes were written before something failed. */
  #writeThrough(bytes: Uint8Array): number {
    let from = 0
    try {
      while (from < bytes.length) {
        if (this.#complete) this.#rotate()
        const end = this.#placeToStop(bytes, from)
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

  /** Where in `bytes` the live file ends; `bytes.length` when it does not end yet. */
  #placeToStop(bytes: Uint8Array, from: number): number {
    const room = Math.max(this.#options.maxFileBytes - this.#sizeBytes, 0)
    const fits = bytes.length - from <= room
    const end = fits ? bytes.length : from + room
    const roomLeft = room - (end - from)
    // A file may stay open while the next line can still find its end in it, or when it ends with a whole line.
    if (fits && (roomLeft >= LINE_END_ZONE_BYTES || bytes[end - 1] === NEWLINE)) return end
    const zoneStart = from + Math.max(room - LINE_END_ZONE_BYTES, 0)
    const lineEnd = end > zoneStart ? bytes.lastIndexOf(NEWLINE, end - 1) : -1
    if (lineEnd >= zoneStart) return lineEnd + 1
    const endsWithLine = this.#atLineStart && this.#sizeBytes > 0 && room <= LINE_END_ZONE_BYTES
    return endsWithLine ? from : end
  }

  /** Creates the next file, then lets go of the old one. Throws the system's error, with the old one still open. */
  #rotate(): void {
    const next = this.#create((this.#indexes.at(-1) ?? -1) + 1)
    closeSync(this.#descriptor)
    this.#descriptor = next
    this.#sizeBytes = 0
    this.#atLineStart = true
    this.#complete = false
    this.#purge()
  }

  /** Creates the first free file from `index` on. It must be new: what somebody else put there is not written to. */
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
        // Already gone, or not ours to remove: either way it must not stop the log.
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
