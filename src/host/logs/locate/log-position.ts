/**
 * Where the last N lines of a log begin.
 *
 * The files of a log are one text: a line that a file does not end goes on in the next one. They are read from the end
 * backwards, block by block, so that the length of the log costs nothing and the length of a line no memory. A file may
 * shrink or vanish meanwhile: what cannot be read is treated as not there.
 */
import { fstatSync } from 'node:fs'
import type { LogPosition } from './log-files.ts'
import { type OpenFile, spendTurn } from '../../files/read.ts'

/** One file of a log, open, as of one look. Lists are sorted by index; a single followed file is a list of one. */
export interface IndexedFile {
  readonly index: number
  readonly size: number
  readonly modifiedMs: number
  readonly file: OpenFile
}

const NEWLINE = 10
/** Read in place when in memory, see `OpenFile`. */
export const BLOCK_BYTES = 65_536
/** Behind the block, for what a line's beginning may need of the next file. */
const SPARE_BYTES = 128
const SPARE_BUFFERS_MAX = 4
const spareBuffers: Buffer[] = []

/** Lends a buffer of BLOCK_BYTES + SPARE_BYTES. `work` must have no read under way when it resolves or rejects. */
export async function withBlock<T>(work: (buffer: Buffer) => Promise<T>): Promise<T> {
  const buffer = spareBuffers.pop() ?? Buffer.allocUnsafeSlow(BLOCK_BYTES + SPARE_BYTES)
  try {
    return await work(buffer)
  } finally {
    if (spareBuffers.length < SPARE_BUFFERS_MAX) spareBuffers.push(buffer)
  }
}

/** The end of the newest file. `files` must not be empty. */
export function endPosition(files: readonly IndexedFile[]): LogPosition {
  const last = files.at(-1)
  if (!last) throw new Error('a log without files has no places')
  return { index: last.index, offset: last.size }
}

/** The later of two places. */
export function laterPosition(a: LogPosition, b: LogPosition): LogPosition {
  if (a.index !== b.index) return a.index > b.index ? a : b
  return a.offset >= b.offset ? a : b
}

/**
 * The place `lines` lines before the end of the log; the first place when there are fewer. An incomplete last line is a
 * line. 0 is the end. `files` must not be empty and stay open; rejects with the signal's reason when it aborts.
 */
export function tailPosition(files: readonly IndexedFile[], lines: number, signal: AbortSignal): Promise<LogPosition> {
  const end = endPosition(files)
  if (lines <= 0) return Promise.resolve(end)
  return withBlock((buffer) => new BackwardScan(buffer, signal, end, lines).run(files))
}

class BackwardScan {
  readonly #buffer: Buffer
  readonly #signal: AbortSignal
  /** Newlines to find; the last one stands in front of the place. */
  #left: number
  /** Where the bytes begin that follow the file being read. */
  #following: LogPosition
  #sawBytes = false

  constructor(buffer: Buffer, signal: AbortSignal, end: LogPosition, lines: number) {
    this.#buffer = buffer
    this.#signal = signal
    this.#following = end
    this.#left = lines
  }

  async run(files: readonly IndexedFile[]): Promise<LogPosition> {
    for (const file of files.toReversed()) {
      const place = await this.#readBack(file)
      if (place) return place
    }
    return { index: files[0]?.index ?? 0, offset: 0 }
  }

  /** Goes through one file; the place when it lies in it, or right behind it. */
  async #readBack({ file, index, size }: IndexedFile): Promise<LogPosition | undefined> {
    /** The end of the bytes that are really there. */
    let fileEnd: number | undefined
    for (let end = size; end > 0; ) {
      this.#signal.throwIfAborted()
      const start = Math.floor((end - 1) / BLOCK_BYTES) * BLOCK_BYTES
      const got = await file.read(this.#buffer, 0, end - start, start)
      const turn = spendTurn(end - start)
      if (turn) await turn
      end = got > 0 ? start : Math.min(start, fstatSync(file.fd).size)
      if (got === 0) continue
      fileEnd ??= start + got
      const at = this.#lineStart(got)
      if (at === undefined) continue
      return start + at === fileEnd ? this.#following : { index, offset: start + at }
    }
    if (fileEnd !== undefined) this.#following = { index, offset: 0 }
    return undefined
  }

  /** Where in the block the wanted line begins; undefined when it begins further in front. */
  #lineStart(length: number): number | undefined {
    const block = this.#buffer.subarray(0, length)
    // The newline that ends the log begins no line.
    if (!this.#sawBytes && block[length - 1] === NEWLINE) this.#left++
    this.#sawBytes = true
    const found = newlinesIn(block)
    if (found < this.#left) {
      this.#left -= found
      return undefined
    }
    let at = length
    for (let left = this.#left; left > 0; left--) at = block.lastIndexOf(NEWLINE, at - 1)
    return at + 1
  }
}

function newlinesIn(block: Buffer): number {
  // A block inside a long line is passed over at the speed of memory.
  const first = block.indexOf(NEWLINE)
  if (first < 0) return 0
  let count = 1
  const { length } = block
  for (let at = first + 1; at < length; at++) count += block[at] === NEWLINE ? 1 : 0
  return count
}
