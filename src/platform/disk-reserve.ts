/**
 * A file of zeros that holds space on a disk, for writes that must succeed when the disk is full: commits that free space
 * (`store/`) and audit lines (`secrets/audit/`). docs/decisions/031 and 093.
 *
 * Promises. `giveUp` and `giveUpBytes` return a piece of the reserve to the disk. `look` and `refill` restore the reserve once the disk
 * has the space for it and as much again. An existing file is used only if it is a regular file with one name that begins
 * with zeros: the content of another program is never truncated.
 *
 * Assumes one process per reserve. What can go wrong: another program takes the space that was given up; then the caller
 * gives up the next piece, until none is left. Without the right to create the file there is no reserve.
 */
import {
  chmodSync,
  closeSync,
  constants,
  fstatSync,
  fsync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readSync,
  rmSync,
  statfsSync,
  write,
  writeSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { promisify } from 'node:util'

const writeAsync = promisify(write)
const syncAsync = promisify(fsync)

const RESERVE_BYTES_MAX = 8 << 20
/** Maximum size of the reserve as a fraction of the disk. */
const RESERVE_PART = 1 / 16
const PIECES = 8
const BLOCK_BYTES = 4096
const OPEN_FLAGS = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK
const ZEROS = Buffer.alloc(1 << 18)
/** If this many times the reserve is free, creating it is not urgent. */
const RESERVES_OF_PLENTY = 16
/** Required by SQLite to open a database, in addition to the database itself. */
const OPENING_BYTES = 256 << 10
const CHECKED_BYTES = 4096

/** Undefined for a file of another program, for what is not a file, and without space for a name. */
function openReserve(path: string): number | undefined {
  let fd: number | undefined
  try {
    fd = openSync(path, OPEN_FLAGS, 0o600)
    if (isReserve(fd)) {
      chmodSync(path, 0o600)
      return fd
    }
  } catch {
    // Another user's file, or a file system without rights.
  }
  if (fd !== undefined) closeSync(fd)
  return undefined
}

function isReserve(fd: number): boolean {
  const stats = fstatSync(fd)
  // A pipe would block the writer once it is full.
  if (!stats.isFile() || stats.nlink > 1) return false
  const start = Buffer.alloc(Math.min(stats.size, CHECKED_BYTES))
  readSync(fd, start, 0, start.length, 0)
  return start.every((byte) => byte === 0)
}

export class DiskReserve {
  readonly #path: string
  readonly #directory: string
  readonly #fd: number | undefined
  #bytes = 0
  #refilling: Promise<void> | undefined
  #isClosed = false

  /** Opens the file, or creates it empty. */
  constructor(path: string) {
    this.#path = path
    this.#directory = dirname(path)
    this.#fd = openReserve(path)
    if (this.#fd !== undefined) this.#bytes = fstatSync(this.#fd).size
  }

  /**
   * True if writes that need space are to be refused. Restores what was given up as soon as there is space again;
   * `mayWait`: not now if there is plenty. Blocks for the time of the write.
   */
  look(mayWait = false): boolean {
    const { free, wanted } = this.#space()
    const missing = Math.max(0, wanted - this.#bytes)
    if (free < wanted + missing) return true
    if (mayWait && free > wanted * RESERVES_OF_PLENTY) return false
    if (missing > 0) this.#grow(wanted)
    return this.#bytes < wanted && this.#fd !== undefined
  }

  /** Restores the reserve if the disk has the space, without blocking the event loop. Never rejects. */
  async refill(): Promise<void> {
    this.#refilling ??= this.#refill()
      .catch(() => undefined)
      .finally(() => {
        this.#refilling = undefined
        if (this.#isClosed) this.#release()
      })
    await this.#refilling
  }

  /**
   * Returns an eighth of the reserve to the disk; false if only the last eighth is left, which `makeRoom` needs at the
   * next start.
   */
  giveUp(): boolean {
    const piece = this.#piece()
    return this.#bytes > piece && this.#shrink(piece)
  }

  /** Returns at least so many bytes to the disk; false if none is left. */
  giveUpBytes(bytes: number): boolean {
    // Whole blocks, and one for what the file system adds to grow a file.
    return this.#shrink((Math.ceil(bytes / BLOCK_BYTES) + 1) * BLOCK_BYTES)
  }

  /** True if nothing of the reserve is missing, or, where there can be none, if the disk has the space for it. */
  get isWhole(): boolean {
    const { free, wanted } = this.#space()
    return this.#fd === undefined ? free >= wanted : this.#bytes >= wanted
  }

  /** Called before a database is opened, which takes some space by itself. */
  makeRoom(): void {
    while (this.#space().free < OPENING_BYTES && this.#shrink(this.#piece()));
  }

  close(): void {
    this.#isClosed = true
    if (!this.#refilling) this.#release()
  }

  /** Removes the file. */
  remove(): void {
    const isOurs = this.#fd !== undefined
    this.close()
    if (isOurs) rmSync(this.#path, { force: true })
  }

  #piece(): number {
    return Math.ceil(this.#space().wanted / PIECES)
  }

  #shrink(bytes: number): boolean {
    if (this.#fd === undefined || this.#bytes === 0 || this.#isClosed) return false
    this.#bytes = Math.max(0, this.#bytes - bytes)
    ftruncateSync(this.#fd, this.#bytes)
    return true
  }

  #release(): void {
    if (this.#fd !== undefined) closeSync(this.#fd)
  }

  #space(): { readonly free: number; readonly wanted: number } {
    const { bavail, blocks, bsize } = statfsSync(this.#directory)
    return { free: bavail * bsize, wanted: Math.floor(Math.min(RESERVE_BYTES_MAX, blocks * bsize * RESERVE_PART)) }
  }

  #grow(wanted: number): void {
    if (this.#fd === undefined) return
    try {
      while (this.#bytes < wanted) {
        const length = Math.min(ZEROS.length, wanted - this.#bytes)
        this.#bytes += writeSync(this.#fd, ZEROS, 0, length, this.#bytes)
      }
      fsyncSync(this.#fd)
    } catch {
      // Another process was faster; what was written counts, and the next check continues.
    }
  }

  async #refill(): Promise<void> {
    const { free, wanted } = this.#space()
    const fd = this.#fd
    if (fd === undefined || this.#isClosed || this.#bytes >= wanted || free < 2 * wanted - this.#bytes) return
    while (this.#bytes < wanted && !this.#isClosed) {
      const from = this.#bytes
      const length = Math.min(ZEROS.length, wanted - from)
      const { bytesWritten } = await writeAsync(fd, ZEROS, 0, length, from)
      if (this.#bytes !== from) return ftruncateSync(fd, this.#bytes) // a piece was given up meanwhile
      this.#bytes += bytesWritten
    }
    await syncAsync(fd)
  }
}
