/**
 * Finds the position of the last N lines of a log.
 *
 * The files of a log are one text: a line without an end in one file continues in the next. They are read backward from the
 * end, block by block, so that the time does not depend on the length of the log and the memory not on the length of a line. A
 * file may shrink or vanish meanwhile: what cannot be read counts as absent.
 */
import { fstatSync } from 'node:fs'
import type { LogPosition } from './log-files.ts'
import { type OpenFile, spendTurn } from '../../files/read.ts'

/** One open file of a log. Lists are sorted by index; a single file is a list of one. */
export interface IndexedFile {
  readonly index: number
  readonly size: number
  readonly modifiedMs: number
  readonly file: OpenFile
}

const NEWLINE = 10
/** Small enough for synchronous reads, see `OpenFile`. */
export const BLOCK_BYTES = 65_536
/** After the block, for the continuation of its last line in the next file. */
const SPARE_BYTES = 128
const SPARE_BUFFERS_MAX = 4
const spareBuffers: Buffer[] = []

/** Runs `work` with a buffer of BLOCK_BYTES + SPARE_BYTES. It must have no pending read when it resolves or rejects. */
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
  if (!last) throw new Error('a log without files has no positions')
  return { index: last.index, offset: last.size }
}

/** The later of two positions. */
export function laterPosition(a: LogPosition, b: LogPosition): LogPosition {
  if (a.index !== b.index) return a.index > b.index ? a : b
  return a.offset >= b.offset ? a : b
}

/**
 * The position `lines` lines before the end of the log; the start if there are fewer. An incomplete last line counts. 0 is the
 * end. `files` must not be empty and stay open. Rejects with the signal's reason on abort.
 */
export function tailPosition(files: readonly IndexedFile[], lines: number, signal: AbortSignal): Promise<LogPosition> {
  const end = endPosition(files)
  if (lines <= 0) return Promise.resolve(end)
  return withBlock((buffer) => new BackwardScan(buffer, signal, end, lines).run(files))
}

class BackwardScan {
  readonly #buffer: Buffer
  readonly #signal: AbortSignal
  /** Newlines to find; the last one is before the position. */
  #left: number
  /** Position of the bytes that follow the current file. */
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
      const position = await this.#readBack(file)
      if (position) return position
    }
    return { index: files[0]?.index ?? 0, offset: 0 }
  }

  /** Searches one file; returns the position if it is in it or directly after it. */
  async #readBack({ file, index, size }: IndexedFile): Promise<LogPosition | undefined> {
    /** Actual end of the file. */
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

  /** Start of the searched line in the block; undefined if it is in an earlier block. */
  #lineStart(length: number): number | undefined {
    const block = this.#buffer.subarray(0, length)
    // The newline at the end of the log does not start a line.
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
  // Fast path for a block inside a long line.
  const first = block.indexOf(NEWLINE)
  if (first < 0) return 0
  let count = 1
  const { length } = block
  for (let at = first + 1; at < length; at++) count += block[at] === NEWLINE ? 1 : 0
  return count
}
