/**
 * Bytes to whole lines. What arrives is cut at line ends into stretches of whole lines that lie together in memory, none
 * longer than `LINE_BYTES_MAX`, so that whoever works through them can stop between two. A line that is longer is a
 * stretch of its own: its beginning, and behind it a marker that says how long the line was.
 *
 * Only the incomplete last line is kept, and no more of it than its first `LINE_BYTES_MAX` bytes.
 */

const NEWLINE = 10
/** What is judged and given of one line, without its end: with its marker it fits a frame of 64 KiB. */
export const LINE_BYTES_MAX = 60 * 1024
const CARRY_BYTES_MIN = 256

/** Whole lines that lie together in `base`. */
export interface Lines<P> {
  readonly base: Buffer
  readonly from: number
  /** Behind the last line and its end. */
  readonly to: number
  /** Where in `base` that ends which is judged: `to`, except for a line that was cut. */
  readonly judgedTo: number
  /** Where the first of the lines begins. */
  readonly beginPlace: P
  readonly begin: number
  /** Where the last of the lines ends, in its file. */
  readonly place: P
  readonly end: number
  readonly cut: boolean
}

/** The lines up to `at`, which is a line end within them, and those behind it. */
export function splitLines<P>(lines: Lines<P>, at: number): [Lines<P>, Lines<P>] {
  const end = lines.end - (lines.to - at)
  return [
    { ...lines, to: at, judgedTo: at, end },
    { ...lines, from: at, beginPlace: lines.place, begin: end },
  ]
}

/** The marker behind a line that was cut. `bytes` is the length of the whole line, without its end. */
function cutMarker(bytes: number): string {
  return ` [line cut: it has ${bytes} bytes]\n`
}

/** The last byte of a cut that does not split a character of UTF-8. */
function cutAt(line: Buffer, from: number, to: number): number {
  let at = to
  while (at > to - 3 && at > from && ((line[at] ?? 0) & 0xc0) === 0x80) at--
  return ((line[at] ?? 0) & 0xc0) === 0x80 ? to : at
}

function cutLine<P>(
  head: Buffer,
  bytes: number,
  where: { beginPlace: P; begin: number; place: P; end: number },
): Lines<P> {
  const judgedTo = cutAt(head, 0, LINE_BYTES_MAX)
  const base = Buffer.concat([head.subarray(0, judgedTo), Buffer.from(cutMarker(bytes))])
  return { base, from: 0, to: base.length, judgedTo, ...where, cut: true }
}

/** The incomplete last line: its first bytes, and how many there were. */
class Carry<P> {
  readonly place: P
  readonly offset: number
  #kept: Buffer = Buffer.alloc(0)
  #keptBytes = 0
  #bytes = 0

  constructor(place: P, offset: number) {
    this.place = place
    this.offset = offset
  }

  append(data: Buffer): void {
    this.#bytes += data.length
    // One more than a line may have, so that a cut sees whether it splits a character, and one for the line's end.
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

  /** The line, which ends at `end` of `place`; `ended` when it has a line end. */
  line(place: P, end: number, ended: boolean): Lines<P> {
    const where = { beginPlace: this.place, begin: this.offset, place, end }
    const bytes = ended ? this.#bytes - 1 : this.#bytes
    if (bytes > LINE_BYTES_MAX) return cutLine(this.#kept, bytes, where)
    const to = this.#keptBytes
    return { base: this.#kept, from: 0, to, judgedTo: to, ...where, cut: false }
  }
}

/** Takes bytes, gives the lines that are complete. */
export class LineAssembly<P> {
  #carry: Carry<P> | undefined
  /** Where the last byte taken ended. */
  #place: P | undefined
  #end = 0

  /** Where the incomplete line begins. */
  get pending(): { place: P; offset: number } | undefined {
    return this.#carry && { place: this.#carry.place, offset: this.#carry.offset }
  }

  /** The complete lines among what was kept and `data`, in order. Their `base` is `data`, or a buffer of its own. */
  push(data: Buffer, place: P, start: number): Lines<P>[] {
    const lines: Lines<P>[] = []
    this.#place = place
    this.#end = start + data.length
    let at = 0
    if (this.#carry) {
      const newline = data.indexOf(NEWLINE)
      at = newline < 0 ? data.length : newline + 1
      this.#carry.append(data.subarray(0, at))
      if (newline < 0) return lines
      lines.push(this.#carry.line(place, start + at, true))
      this.#carry = undefined
    }
    const last = data.lastIndexOf(NEWLINE)
    while (at <= last) {
      const stretch = nextStretch(data, at, last, place, start)
      lines.push(stretch)
      at = stretch.end - start
    }
    if (at < data.length) {
      this.#carry = new Carry(place, start + at)
      this.#carry.append(data.subarray(at))
    }
    return lines
  }

  /** The incomplete line as if it ended here. */
  finish(): Lines<P> | undefined {
    const carry = this.#carry
    this.#carry = undefined
    return carry && this.#place !== undefined ? carry.line(this.#place, this.#end, false) : undefined
  }

  reset(): void {
    this.#carry = undefined
  }
}

/** Whole lines of `data` from `at`, as many as fit; there is a line end at `last`. */
function nextStretch<P>(data: Buffer, at: number, last: number, place: P, start: number): Lines<P> {
  const reach = Math.min(at + LINE_BYTES_MAX, last)
  const newline = data.lastIndexOf(NEWLINE, reach)
  const begins = { beginPlace: place, begin: start + at, place }
  if (newline >= at) {
    const to = newline + 1
    return { base: data, from: at, to, judgedTo: to, ...begins, end: start + to, cut: false }
  }
  const end = data.indexOf(NEWLINE, reach)
  return cutLine(data.subarray(at, end), end - at, { ...begins, end: start + end + 1 })
}
