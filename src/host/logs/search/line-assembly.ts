/**
 * Splits bytes into blocks of whole lines. The lines of a block are contiguous in memory, and a block is not longer than
 * `LINE_BYTES_MAX`, so that work on them can yield between two. A longer line is a block of its own: its beginning and a
 * marker with its length.
 *
 * Of the incomplete last line, the first `LINE_BYTES_MAX` bytes are buffered.
 */

export const NEWLINE = 10
/** Bytes matched and output of one line, without its end: with the marker they fit a frame of 64 KiB. */
export const LINE_BYTES_MAX = 60 * 1024
const CARRY_BYTES_MIN = 256

/** Whole lines, contiguous in `base`. */
export interface LineBlock<P> {
  readonly base: Buffer
  readonly from: number
  /** Position after the end of the last line. */
  readonly to: number
  /** End of the bytes to match: `to`, except for a truncated line. */
  readonly matchTo: number
  /** Start of the first line. */
  readonly beginFile: P
  readonly begin: number
  /** End of the last line in its file. */
  readonly file: P
  readonly end: number
  readonly isTruncated: boolean
}

/** The position after the line that begins at `at` and ends before `to`. */
export function lineEnd(base: Buffer, at: number, to: number): number {
  const newline = base.indexOf(NEWLINE, at)
  return newline < 0 || newline >= to ? to : newline + 1
}

/** The lines before and behind `at`, which is a line end within them. */
export function splitLines<P>(lines: LineBlock<P>, at: number): [LineBlock<P>, LineBlock<P>] {
  const end = lines.end - (lines.to - at)
  return [
    { ...lines, to: at, matchTo: at, end },
    { ...lines, from: at, beginFile: lines.file, begin: end },
  ]
}

/** The marker after a truncated line. `bytes` is the length of the whole line, without its end. */
function truncationMarker(bytes: number): string {
  return ` [line cut: it has ${bytes} bytes]\n`
}

/** The last position up to `to` that does not split a UTF-8 character. */
function truncationPoint(line: Buffer, from: number, to: number): number {
  let at = to
  while (at > to - 3 && at > from && ((line[at] ?? 0) & 0xc0) === 0x80) at--
  return ((line[at] ?? 0) & 0xc0) === 0x80 ? to : at
}

function truncatedLine<P>(
  head: Buffer,
  bytes: number,
  where: { beginFile: P; begin: number; file: P; end: number },
): LineBlock<P> {
  const matchTo = truncationPoint(head, 0, LINE_BYTES_MAX)
  const base = Buffer.concat([head.subarray(0, matchTo), Buffer.from(truncationMarker(bytes))])
  return { base, from: 0, to: base.length, matchTo, ...where, isTruncated: true }
}

/** The incomplete last line: its first bytes and its length. */
class PartialLine<P> {
  readonly file: P
  readonly offset: number
  #kept: Buffer = Buffer.alloc(0)
  #keptBytes = 0
  #bytes = 0

  constructor(file: P, offset: number) {
    this.file = file
    this.offset = offset
  }

  append(data: Buffer): void {
    this.#bytes += data.length
    // One byte more than the maximum, to detect a split character, and one for the line end.
    const taken = Math.min(data.length, LINE_BYTES_MAX + 2 - this.#keptBytes)
    if (taken <= 0) return
    const needed = this.#keptBytes + taken
    if (needed > this.#kept.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(needed, Math.min(2 * needed, LINE_BYTES_MAX + 2), CARRY_BYTES_MIN))
      this.#kept.copy(larger, 0, 0, this.#keptBytes)
      this.#kept = larger
    }
    data.copy(this.#kept, this.#keptBytes, 0, taken)
    this.#keptBytes = needed
  }

  /** The line, which ends at `end` of `file`; `ended` if it has a line end. */
  line(file: P, end: number, ended: boolean): LineBlock<P> {
    const where = { beginFile: this.file, begin: this.offset, file, end }
    const bytes = ended ? this.#bytes - 1 : this.#bytes
    if (bytes > LINE_BYTES_MAX) return truncatedLine(this.#kept, bytes, where)
    const to = this.#keptBytes
    return { base: this.#kept, from: 0, to, matchTo: to, ...where, isTruncated: false }
  }
}

/** Bytes in, complete lines out. */
export class LineAssembly<P> {
  #carry: PartialLine<P> | undefined
  /** End of the last pushed bytes. */
  #file: P | undefined
  #end = 0

  /** Start of the incomplete line. */
  get pending(): { file: P; offset: number } | undefined {
    return this.#carry && { file: this.#carry.file, offset: this.#carry.offset }
  }

  /** The complete lines of the buffered bytes and `data`, in order. Their `base` is `data` or a separate buffer. */
  push(data: Buffer, file: P, start: number): LineBlock<P>[] {
    const lines: LineBlock<P>[] = []
    this.#file = file
    this.#end = start + data.length
    let at = 0
    if (this.#carry) {
      const newline = data.indexOf(NEWLINE)
      at = newline < 0 ? data.length : newline + 1
      this.#carry.append(data.subarray(0, at))
      if (newline < 0) return lines
      lines.push(this.#carry.line(file, start + at, true))
      this.#carry = undefined
    }
    const last = data.lastIndexOf(NEWLINE)
    while (at <= last) {
      const block = nextBlock(data, at, last, file, start)
      lines.push(block)
      at = block.end - start
    }
    if (at < data.length) {
      this.#carry = new PartialLine(file, start + at)
      this.#carry.append(data.subarray(at))
    }
    return lines
  }

  /** The incomplete line as a complete one. */
  finish(): LineBlock<P> | undefined {
    const carry = this.#carry
    this.#carry = undefined
    return carry && this.#file !== undefined ? carry.line(this.#file, this.#end, false) : undefined
  }

  reset(): void {
    this.#carry = undefined
  }
}

/** As many whole lines of `data` from `at` as fit into a block; `last` is the last line end. */
function nextBlock<P>(data: Buffer, at: number, last: number, file: P, start: number): LineBlock<P> {
  const reach = Math.min(at + LINE_BYTES_MAX, last)
  const newline = data.lastIndexOf(NEWLINE, reach)
  const begins = { beginFile: file, begin: start + at, file }
  if (newline >= at) {
    const to = newline + 1
    return { base: data, from: at, to, matchTo: to, ...begins, end: start + to, isTruncated: false }
  }
  const end = data.indexOf(NEWLINE, reach)
  return truncatedLine(data.subarray(at, end), end - at, { ...begins, end: start + end + 1 })
}
