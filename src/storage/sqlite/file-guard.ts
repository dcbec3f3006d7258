/**
 * Checks that the files of an open database still have their names and lengths. SQLite keeps them open and does not check: commits into a
 * file that was moved, replaced or truncated succeed, and are missing after the next start. So the writer checks before each
 * transaction and five times a second (docs/decisions/037).
 *
 * Two kinds of fault. *Displaced*: a name leads to no file or to another one. The open files are complete; the write-ahead log is
 * checkpointed, so that the database file alone has everything, and the fault ends when the same file has its name again.
 * *Truncated*: bytes are permanently missing, so this fault stays until the process ends, and there are no more checkpoints: they would
 * write an incomplete set of pages.
 *
 * The database is checked by its name only: closing a second descriptor would release the POSIX locks that this process holds on it.
 * SQLite has no locks on the write-ahead log.
 */
import { closeSync, constants, fstatSync, openSync, readSync, realpathSync, statSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { errnoOf } from '../../platform/errors.ts'
import { emptyWal, PAGE_BYTES } from './database.ts'
import { DISPLACED } from './store-error.ts'

export interface FileFault {
  /** With the path and what to do: for callers with write access, and the log. */
  readonly text: string
  /** Without paths: for all callers. */
  readonly summary: string
  readonly isTruncated: boolean
}

/** The transaction was refused, or its result is unknown, because of a file fault. */
export class DisplacedFilesError extends Error {
  readonly errcode = DISPLACED
}

const WAL_HEADER_BYTES = 32
const FRAME_HEADER_BYTES = 24
const FRAME_BYTES = FRAME_HEADER_BYTES + PAGE_BYTES
const OPEN_FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW
const RESTART = 'stop the server, put that file back or restore a snapshot, start the server'
const MOVE_BACK = `move the same file back to resume commits; or ${RESTART}`
const WAL_MOVE_BACK =
  'its content was written to the database; move the same file back to resume commits; or stop the server, move away ' +
  'the file that has its name, start the server'
const RESTORE = 'the latest commits may be lost: stop the server, restore the newest snapshot'

/** A path and the file that it led to when the database was opened. */
class NamedFile {
  readonly path: string
  readonly #device: bigint
  readonly #inode: bigint
  #size: number

  /** Throws the error of stat(2). */
  constructor(path: string) {
    const { dev, ino, size } = statSync(path, { bigint: true })
    this.path = path
    this.#device = dev
    this.#inode = ino
    this.#size = Number(size)
  }

  /** Returns what is wrong; undefined when nothing is. `isSized`: checks the length, too. */
  inspect(isSized: boolean): { readonly what: string; readonly isTruncated: boolean } | undefined {
    let now: ReturnType<typeof statBig>
    try {
      now = statBig(this.path)
    } catch (error) {
      return { what: `cannot be checked (${errnoOf(error) ?? 'unknown error'})`, isTruncated: false }
    }
    if (!now) return { what: 'was moved or removed', isTruncated: false }
    if (now.ino !== this.#inode || now.dev !== this.#device) {
      return { what: 'is not the file that this server has open', isTruncated: false }
    }
    const size = Number(now.size)
    if (!isSized) return undefined
    if (size < this.#size) return { what: truncatedTo(size, this.#size), isTruncated: true }
    this.#size = size
    return undefined
  }
}

function statBig(path: string) {
  return statSync(path, { bigint: true, throwIfNoEntry: false })
}

function truncatedTo(size: number, written: number): string {
  return `was truncated to ${size} of ${written} bytes`
}

/**
 * Length of the write-ahead log as the writer's thread knows it, in memory shared with the reading thread: a read of a truncated log
 * can fail before the writer has checked. -1 during a checkpoint, and without a log.
 */
export class WalLength {
  readonly #shared: Float64Array

  constructor(shared: SharedArrayBuffer = new SharedArrayBuffer(Float64Array.BYTES_PER_ELEMENT)) {
    this.#shared = new Float64Array(shared)
  }

  get shared(): SharedArrayBuffer {
    return this.#shared.buffer as SharedArrayBuffer
  }

  set bytes(bytes: number) {
    this.#shared[0] = bytes
  }

  /** Returns the fault when bytes of the log are missing. */
  findTruncation(path: string): FileFault | undefined {
    const written = this.#shared[0] ?? -1
    try {
      const walPath = `${realpathSync(path)}-wal`
      const { size } = statSync(walPath)
      return size < written ? walFault(walPath, truncatedTo(size, written)) : undefined
    } catch {
      // Displaced, which does not explain missing bytes in the open file.
      return undefined
    }
  }
}

function walFault(path: string, what: string): FileFault {
  return faultOf(path, 'the write-ahead log of the database', { what, isTruncated: true }, RESTORE)
}

/** Used by the writer's thread. */
export class FileGuard {
  readonly #path: string
  readonly #database: DatabaseSync
  readonly #file: NamedFile
  /** Undefined on a file system without support for write-ahead logs. */
  readonly #wal: { readonly named: NamedFile; readonly fd: number } | undefined
  /** Length of the log; only this thread truncates it. */
  #walBytes = 0
  #truncation: FileFault | undefined
  readonly #header = Buffer.alloc(FRAME_HEADER_BYTES)
  readonly #walLength: WalLength

  /** Must be called right after the database was opened and read. */
  constructor(path: string, database: DatabaseSync, walLength = new WalLength()) {
    this.#path = path
    this.#database = database
    this.#walLength = walLength
    this.#file = new NamedFile(path)
    // If the path is a symlink, SQLite creates the log beside its target.
    const walPath = `${realpathSync(path)}-wal`
    if (statSync(walPath, { throwIfNoEntry: false })) {
      this.#wal = { named: new NamedFile(walPath), fd: openSync(walPath, OPEN_FLAGS) }
    }
    this.#setWalBytes(this.#walSize())
  }

  #setWalBytes(bytes: number): void {
    this.#walBytes = bytes
    this.#walLength.bytes = bytes
  }

  /** Returns the current fault. Checks names and lengths. */
  inspect(): FileFault | undefined {
    this.#findTruncation()
    if (this.#truncation) return this.#truncation
    const found = this.#file.inspect(true)
    const fault = found && faultOf(this.#path, 'the database', found, MOVE_BACK)
    if (fault?.isTruncated) this.#truncation = fault
    if (fault) return fault
    const named = this.#wal?.named
    const lost = named?.inspect(false)
    return named && lost && faultOf(named.path, 'the write-ahead log of the database', lost, WAL_MOVE_BACK)
  }

  /** Throws a DisplacedFilesError for the current fault. */
  beforeCommit(): void {
    const fault = this.inspect()
    if (fault) throw new DisplacedFilesError(fault.text)
  }

  /**
   * Throws when the log was truncated during the transaction: its frames are after a hole, and recovery would not find them. Names
   * are checked before a transaction only: a move after that check is the same as a move after the commit.
   */
  afterCommit(): void {
    const before = this.#walBytes
    const bytes = this.#findTruncation()
    if (!this.#truncation && this.#hasHole(before))
      this.#truncation = this.#truncationFault('was truncated while it was written')
    if (this.#truncation) throw new DisplacedFilesError(this.#truncation.text)
    this.#setWalBytes(bytes)
  }

  /** Checkpoints and truncates the log. False when a reader blocked it, or a file is truncated. */
  empty(): boolean {
    this.#findTruncation()
    if (this.#truncation) return false
    this.#walLength.bytes = -1
    const isEmpty = emptyWal(this.#database)
    this.#setWalBytes(isEmpty ? this.#walSize() : this.#walBytes)
    return isEmpty
  }

  /** Returns the current fault. Checkpoints displaced files. */
  inspectAndSave(): FileFault | undefined {
    const fault = this.inspect()
    // A displaced database must be complete without its log: the next database would find the log under its name.
    if (fault && !fault.isTruncated && this.#walBytes > 0) this.empty()
    return fault
  }

  close(): void {
    if (this.#wal) closeSync(this.#wal.fd)
  }

  #walSize(): number {
    return this.#wal ? fstatSync(this.#wal.fd).size : 0
  }

  /** Returns the length of the log. */
  #findTruncation(): number {
    const bytes = this.#walSize()
    if (bytes < this.#walBytes) this.#truncation ??= this.#truncationFault(truncatedTo(bytes, this.#walBytes))
    return bytes
  }

  #truncationFault(what: string): FileFault {
    return walFault(this.#wal?.named.path ?? this.#path, what)
  }

  /** Whether the start of the log, or its last frame at the length `bytes`, is zeros. */
  #hasHole(bytes: number): boolean {
    const frames = Math.floor((bytes - WAL_HEADER_BYTES) / FRAME_BYTES)
    if (frames < 1) return false
    return this.#isZero(0) || this.#isZero(WAL_HEADER_BYTES + (frames - 1) * FRAME_BYTES)
  }

  #isZero(at: number): boolean {
    if (!this.#wal) return false
    const length = readSync(this.#wal.fd, this.#header, 0, FRAME_HEADER_BYTES, at)
    return this.#header.subarray(0, length).every((byte) => byte === 0)
  }
}

function faultOf(
  path: string,
  name: string,
  { what, isTruncated }: { readonly what: string; readonly isTruncated: boolean },
  next: string,
): FileFault {
  return {
    text: `commits are refused: ${name} ${path} ${what} while the server runs; ${next}`,
    summary: `commits are refused: ${name} ${what}; the server log has the instructions`,
    isTruncated,
  }
}
