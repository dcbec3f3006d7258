/**
 * Whether the files of an open database are still where the next start looks for them, and as long as they were written.
 * SQLite keeps them open and does not ask: commits into a file that was moved, replaced or cut succeed, and are missing
 * after the next start. So the writer asks before each transaction, and five times a second (docs/decisions/037).
 *
 * Two kinds of fault. *Moved*: a name leads to no file or to another one. The open files hold everything; what lies in the
 * write-ahead log is put into the database, so that one file has all of it, and the fault ends when the same file
 * has its name again. *Cut*: bytes are missing. Nothing brings them back, so this one stays until the process ends, and
 * the log is not put in its place any more: pages would be missing between those that are there.
 *
 * The database is looked at by its name alone: closing a second descriptor of it would give back the locks that this
 * process has on it. SQLite takes no locks on the write-ahead log.
 */
import { closeSync, constants, fstatSync, openSync, readSync, realpathSync, statSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { errnoOf } from '../../platform/errors.ts'
import { emptyWal, PAGE_BYTES } from './database.ts'
import { DISPLACED } from './store-error.ts'

export interface FileFault {
  /** With the path, what was seen and what to do: for callers who may write, and the log. */
  readonly text: string
  /** Without paths, for everybody. */
  readonly summary: string
  readonly isCut: boolean
}

/** A transaction that was refused, or whose answer can not be given, for such a fault. */
export class Displaced extends Error {
  readonly errcode = DISPLACED
}

const WAL_HEADER_BYTES = 32
const FRAME_HEADER_BYTES = 24
const FRAME_BYTES = FRAME_HEADER_BYTES + PAGE_BYTES
const OPEN_FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW
const RESTART = 'stop the server, put that file back or restore a snapshot, start it'
const BACK = `move the same file back, and commits go on; or ${RESTART}`
const WAL_BACK =
  'what it held was put into the database; move the same file back, and commits go on; or stop the server, move away ' +
  'what has its name, start it'
const CUT = 'what was written last may be lost: stop the server, restore the newest snapshot'

/** A name, and the file that it led to when the database was opened. */
class NamedFile {
  readonly path: string
  readonly #device: bigint
  readonly #inode: bigint
  #size: number

  /** Throws where there is none. */
  constructor(path: string) {
    const { dev, ino, size } = statSync(path, { bigint: true })
    this.path = path
    this.#device = dev
    this.#inode = ino
    this.#size = Number(size)
  }

  /** What is wrong with the name, in words; undefined when nothing is. `isSized`: whether its length counts, too. */
  look(isSized: boolean): { readonly what: string; readonly isCut: boolean } | undefined {
    let now: ReturnType<typeof statBig>
    try {
      now = statBig(this.path)
    } catch (error) {
      return { what: `cannot be looked at (${errnoOf(error) ?? 'unknown error'})`, isCut: false }
    }
    if (!now) return { what: 'was moved or removed', isCut: false }
    if (now.ino !== this.#inode || now.dev !== this.#device) {
      return { what: 'is another file than the one that this server has open', isCut: false }
    }
    const size = Number(now.size)
    if (!isSized) return undefined
    if (size < this.#size) return { what: cutTo(size, this.#size), isCut: true }
    this.#size = size
    return undefined
  }
}

function statBig(path: string) {
  return statSync(path, { bigint: true, throwIfNoEntry: false })
}

function cutTo(size: number, written: number): string {
  return `was cut: ${size} bytes are left of ${written}`
}

/**
 * Bytes of the write-ahead log as the thread that writes knows it, for those that read meanwhile: one who reads where the log was cut
 * may do so before that thread has looked. -1 while it is being emptied, and where there is none.
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

  /** What is wrong with the log of this database when bytes of it are missing; undefined where none are. */
  lookForCut(path: string): FileFault | undefined {
    const written = this.#shared[0] ?? -1
    try {
      const walPath = `${realpathSync(path)}-wal`
      const { size } = statSync(walPath)
      return size < written ? walFault(walPath, cutTo(size, written)) : undefined
    } catch {
      // It has another name, or none: that is not why bytes are missing in the open file.
      return undefined
    }
  }
}

function walFault(path: string, what: string): FileFault {
  return faultOf(path, 'the write-ahead log of the database', { what, isCut: true }, CUT)
}

/** For the thread that writes. */
export class FileGuard {
  readonly #path: string
  readonly #database: DatabaseSync
  readonly #file: NamedFile
  /** Undefined on a file system on which SQLite keeps no write-ahead log. */
  readonly #wal: { readonly named: NamedFile; readonly fd: number } | undefined
  /** Of the log, which only this thread makes shorter. */
  #walBytes = 0
  #cut: FileFault | undefined
  readonly #header = Buffer.alloc(FRAME_HEADER_BYTES)
  readonly #shown: WalLength

  /** Right after the database was opened and read. `shown`: says how long the log is. */
  constructor(path: string, database: DatabaseSync, shown = new WalLength()) {
    this.#path = path
    this.#database = database
    this.#shown = shown
    this.#file = new NamedFile(path)
    // Where the name of the database is a link, SQLite keeps the log beside the file.
    const walPath = `${realpathSync(path)}-wal`
    if (statSync(walPath, { throwIfNoEntry: false })) {
      this.#wal = { named: new NamedFile(walPath), fd: openSync(walPath, OPEN_FLAGS) }
    }
    this.#written(this.#walSize())
  }

  #written(bytes: number): void {
    this.#walBytes = bytes
    this.#shown.bytes = bytes
  }

  /** What is wrong now; undefined when nothing is. Looks at names and lengths. */
  look(): FileFault | undefined {
    this.#lookForCut()
    if (this.#cut) return this.#cut
    const found = this.#file.look(true)
    const fault = found && faultOf(this.#path, 'the database', found, BACK)
    if (fault?.isCut) this.#cut = fault
    if (fault) return fault
    const named = this.#wal?.named
    const lost = named?.look(false)
    return named && lost && faultOf(named.path, 'the write-ahead log of the database', lost, WAL_BACK)
  }

  /** Throws what is wrong, before anything is written. */
  beforeCommit(): void {
    const fault = this.look()
    if (fault) throw new Displaced(fault.text)
  }

  /**
   * Throws when the log was cut while the transaction was written: what it wrote lies behind a hole, and would not be
   * found. Names count before a transaction only: one that was moved after that look was as well moved after the answer.
   */
  afterCommit(): void {
    const before = this.#walBytes
    const bytes = this.#lookForCut()
    if (!this.#cut && this.#hasHole(before)) this.#cut = this.#cutFault('was cut while it was written')
    if (this.#cut) throw new Displaced(this.#cut.text)
    this.#written(bytes)
  }

  /** Puts what is in the log in its place and empties it. False when a reader stood in the way, or something is cut. */
  empty(): boolean {
    this.#lookForCut()
    if (this.#cut) return false
    this.#shown.bytes = -1
    const isEmpty = emptyWal(this.#database)
    this.#written(isEmpty ? this.#walSize() : this.#walBytes)
    return isEmpty
  }

  /** Looks, and makes one whole file of the open ones where they were moved. */
  lookAndSave(): FileFault | undefined {
    const fault = this.look()
    // A database that was taken away must not need a log that the next one would find in its place.
    if (fault && !fault.isCut && this.#walBytes > 0) this.empty()
    return fault
  }

  close(): void {
    if (this.#wal) closeSync(this.#wal.fd)
  }

  #walSize(): number {
    return this.#wal ? fstatSync(this.#wal.fd).size : 0
  }

  /** Returns how long the log is. */
  #lookForCut(): number {
    const bytes = this.#walSize()
    if (bytes < this.#walBytes) this.#cut ??= this.#cutFault(cutTo(bytes, this.#walBytes))
    return bytes
  }

  #cutFault(what: string): FileFault {
    return walFault(this.#wal?.named.path ?? this.#path, what)
  }

  /** Whether zeros are where the log began, or where its last frame was when it had so many bytes. */
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
  { what, isCut }: { readonly what: string; readonly isCut: boolean },
  next: string,
): FileFault {
  return {
    text: `commits are refused: ${name} ${path} ${what} while the server runs; ${next}`,
    summary: `commits are refused: ${name} ${what}; its log says what to do`,
    isCut,
  }
}
