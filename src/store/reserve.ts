/**
 * What the store keeps of a disk that fills up: a file of zeros beside the database, `<database>.reserve`, that is given up
 * piece by piece when a commit that frees or rewrites finds no space. Meanwhile all other commits are refused, so that the
 * pieces serve revocations and deletes, and nothing else of ours (docs/decisions/031).
 */
import { closeSync, constants, fstatSync, fsyncSync, ftruncateSync, openSync, statfsSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Batch, HEAD_PATH } from './batch.ts'
import { narrow } from './private-file.ts'

const RESERVE_BYTES_MAX = 8 << 20
/** Of a small disk. */
const RESERVE_PART = 1 / 16
const PIECES = 4
const OPEN_FLAGS = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK
const ZEROS = Buffer.alloc(1 << 18)
/** Free space of so many reserves: there is time to make it. */
const RESERVES_OF_PLENTY = 16
/** For what SQLite needs to open a database beside what is in it. */
const OPENING_BYTES = 256 << 10

/** Bytes by which an entry may grow that is written anew: a mark that a version is deleted, a number with one more digit. */
const GROWTH_BYTES = 128
/** Of a new entry beside others that are written anew or removed: a mark without content, as it lies in the barrier. */
const MARK_BYTES = 64

/** True for a batch that may use the reserve: it removes entries, or writes entries anew that hardly grow by it. */
export function isSparing({ deletes, puts }: Batch, sizeOf: (path: string) => number | undefined): boolean {
  let isAlone = deletes.length === 0
  let marks = 0
  for (const { path, value } of puts) {
    // It is written anew with each batch, and makes none of them one that frees.
    if (path === HEAD_PATH) continue
    const before = sizeOf(path)
    if (before === undefined ? value.length > MARK_BYTES : value.length > before + GROWTH_BYTES) return false
    if (before === undefined) marks++
    else isAlone = false
  }
  return marks === 0 || !isAlone
}

/** Undefined for another user's file, for what is no file, and without space for a name: no reason not to start. */
function openReserve(path: string): number | undefined {
  let fd: number
  try {
    fd = openSync(path, OPEN_FLAGS, 0o600)
  } catch {
    return undefined
  }
  // A pipe would hold up the writer for ever once it is full.
  if (!fstatSync(fd).isFile()) {
    closeSync(fd)
    return undefined
  }
  narrow(path)
  return fd
}

/** The reserve of one database, for the thread that writes. */
export class Reserve {
  readonly #directory: string
  readonly #fd: number | undefined
  #bytes = 0

  constructor(path: string) {
    this.#directory = dirname(path)
    this.#fd = openReserve(`${path}.reserve`)
    if (this.#fd !== undefined) this.#bytes = fstatSync(this.#fd).size
  }

  /**
   * Whether commits that need space are to be refused. Takes back what was given up as soon as there is space again;
   * `mayWait`: not now where there is plenty of it.
   */
  look(mayWait = false): boolean {
    const { free, wanted } = this.#space()
    const missing = Math.max(0, wanted - this.#bytes)
    if (free < wanted + missing) return true
    if (mayWait && free > wanted * RESERVES_OF_PLENTY) return false
    if (missing > 0) this.#grow(wanted)
    return this.#bytes < wanted && this.#fd !== undefined
  }

  /** Gives a piece back to the disk; false when there is none left. */
  giveUp(): boolean {
    if (this.#fd === undefined || this.#bytes === 0) return false
    const piece = Math.ceil(this.#space().wanted / PIECES)
    this.#bytes = Math.max(0, this.#bytes - piece)
    ftruncateSync(this.#fd, this.#bytes)
    return true
  }

  /** Before the database is opened, which takes some space by itself. */
  makeRoom(): void {
    while (this.#space().free < OPENING_BYTES && this.giveUp());
  }

  close(): void {
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
      // Another process was quicker; what has been written counts, and it is tried again.
    }
  }
}
