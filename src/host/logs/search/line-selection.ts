/**
 * Selects the matching lines, or with `invert` the others, with context lines around them.
 *
 * Lines arrive in order with their matches. A line that was not selected may become context of a later match, so the last
 * lines are buffered: at most `context` lines and `CONTEXT_BYTES_MAX` bytes, which also limits the context before a match.
 */
import { lineEnd, type LineBlock, NEWLINE } from './line-assembly.ts'

/** Maximum of the context before a match. */
const CONTEXT_BYTES_MAX = 1 << 20

/** A run of selected lines: `LineRun` in line-filter.ts. */
class SelectedRun<P> {
  readonly file: P
  readonly base: Buffer
  readonly from: number
  to: number
  end: number
  after = 0

  constructor(file: P, base: Buffer, from: number, to: number, end: number) {
    this.file = file
    this.base = base
    this.from = from
    this.to = to
    this.end = end
  }

  get bytes(): Buffer {
    return this.base.subarray(this.from, this.to)
  }
}

/** A buffered line that may become context. */
type ContextLine<P> = Omit<LineBlock<P>, 'matchTo'>

/** Number of lines in `[from, to)`, of which the last may lack its end. */
export function countLines(base: Buffer, from: number, to: number): number {
  let count = 0
  for (let at = from; at < to; count++) at = lineEnd(base, at, to)
  return count
}

/** The start, at least `from`, of the line that ends before `at`. */
function lineBegin(base: Buffer, at: number, from: number): number {
  if (at - 2 < from) return from
  return Math.max(from, base.lastIndexOf(NEWLINE, at - 2) + 1)
}

/** True if two lines are adjacent in one file. */
function joins<P>(previous: ContextLine<P>, line: ContextLine<P>): boolean {
  if (previous.isTruncated || line.isTruncated || previous.end !== line.begin) return false
  return previous.beginFile === previous.file && line.beginFile === line.file && previous.file === line.file
}

export class LineSelection<P> {
  readonly #invert: boolean
  readonly #context: number
  #after: number
  #buffered: ContextLine<P>[] = []
  #bufferedBytes = 0
  #runs: SelectedRun<P>[] = []

  constructor(options: { invert: boolean; context: number; after: number }) {
    this.#invert = options.invert
    this.#context = options.context
    this.#after = options.after
  }

  /** Number of lines to be output as context after a match. */
  get after(): number {
    return this.#after
  }

  /** Start of the oldest line that may still become context. */
  get pending(): { file: P; offset: number } | undefined {
    const [oldest] = this.#buffered
    return oldest && { file: oldest.beginFile, offset: oldest.begin }
  }

  /** Returns the selected lines and clears them. */
  takeRuns(): SelectedRun<P>[] {
    const runs = this.#runs
    this.#runs = []
    return runs
  }

  reset(): void {
    this.#dropBuffered()
    this.#runs = []
    this.#after = 0
  }

  /** Handles the next `lines`. `matches` has the start and end of each matching range, in order. */
  take(lines: LineBlock<P>, matches: ArrayLike<number>): void {
    let done = lines.from
    if (!this.#invert) {
      for (let i = 0; i < matches.length; i += 2) done = this.#select(lines, done, matches[i] ?? 0, matches[i + 1] ?? 0)
    } else {
      let from = lines.from
      for (let i = 0; i < matches.length; i += 2) {
        done = this.#select(lines, done, from, matches[i] ?? 0)
        from = matches[i + 1] ?? 0
      }
      done = this.#select(lines, done, from, lines.to)
    }
    if (done < lines.to) this.#pass(lines, done, lines.to)
  }

  /** Outputs the lines `[from, to)` with context; all lines before `done` are decided. */
  #select(lines: LineBlock<P>, done: number, from: number, to: number): number {
    if (from === to) return done
    let begin = from
    if (this.#context > 0 || this.#after > 0) {
      const open = this.#outputAfter(lines, done, from)
      begin = this.#contextBegin(lines, open, from)
    }
    this.#output(lines, begin, to)
    const due = this.#after > this.#context ? this.#after - countLines(lines.base, from, to) : 0
    this.#setAfter(Math.max(due, this.#context))
    return to
  }

  /** The start of the context before a match at `at`, at least `open`; outputs buffered lines if it extends to them. */
  #contextBegin(lines: LineBlock<P>, open: number, at: number): number {
    let begin = at
    let count = 0
    while (begin > open && count < this.#context) {
      const next = lines.isTruncated ? lines.from : lineBegin(lines.base, begin, open)
      if (at - next > CONTEXT_BYTES_MAX) return begin
      begin = next
      count++
    }
    if (begin === lines.from) this.#outputBuffered(this.#context - count, CONTEXT_BYTES_MAX - (at - begin))
    return begin
  }

  /** Outputs context lines after a match from `[from, to)`; returns the start of the others. */
  #outputAfter(lines: LineBlock<P>, from: number, to: number): number {
    let at = from
    let due = this.#after
    while (due > 0 && at < to) {
      at = lines.isTruncated ? to : lineEnd(lines.base, at, to)
      due--
    }
    if (at > from) {
      this.#output(lines, from, at)
      this.#setAfter(due)
    }
    return at
  }

  /** Handles lines that do not match: the first may be context of an earlier match, the last are buffered. */
  #pass(lines: LineBlock<P>, from: number, to: number): void {
    const open = this.#after > 0 ? this.#outputAfter(lines, from, to) : from
    if (this.#context === 0 || open === to) return
    let begin = to
    let count = 0
    const begins: number[] = []
    while (begin > open && count < this.#context) {
      begin = lines.isTruncated ? open : lineBegin(lines.base, begin, open)
      begins.push(begin)
      count++
    }
    if (begin > lines.from) this.#dropBuffered()
    this.#buffer(lines, begins.toReversed(), to)
  }

  /** Buffers copies of the lines that begin at `begins` and end at `to`, and drops lines beyond the limits. */
  #buffer(lines: LineBlock<P>, begins: readonly number[], to: number): void {
    const [first = to] = begins
    const base = Buffer.allocUnsafeSlow(to - first)
    lines.base.copy(base, 0, first, to)
    begins.forEach((begin, index) => {
      const next = begins[index + 1] ?? to
      this.#buffered.push({
        base,
        from: begin - first,
        to: next - first,
        file: lines.file,
        end: lines.end - (lines.to - next),
        beginFile: lines.beginFile,
        begin: lines.begin + (begin - lines.from),
        isTruncated: lines.isTruncated,
      })
      this.#bufferedBytes += next - begin
    })
    let dropped = 0
    while (this.#buffered.length - dropped > this.#context || this.#bufferedBytes > CONTEXT_BYTES_MAX) {
      const line = this.#buffered[dropped++]
      if (!line) break
      this.#bufferedBytes -= line.to - line.from
    }
    if (dropped > 0) this.#buffered.splice(0, dropped)
  }

  /** Outputs the last buffered lines, at most `count` and `bytes`, and drops the others. */
  #outputBuffered(count: number, bytes: number): void {
    let first = this.#buffered.length
    let left = bytes
    while (first > 0 && this.#buffered.length - first < count) {
      const line = this.#buffered[first - 1]
      if (!line || line.to - line.from > left) break
      left -= line.to - line.from
      first--
    }
    let group: ContextLine<P>[] = []
    for (const line of this.#buffered.slice(first)) {
      const previous = group.at(-1)
      if (!previous || !joins(previous, line)) {
        this.#outputGroup(group)
        group = []
      }
      group.push(line)
    }
    this.#outputGroup(group)
    this.#dropBuffered()
  }

  /** Outputs lines that are adjacent in their file as one run. */
  #outputGroup(group: readonly ContextLine<P>[]): void {
    const last = group.at(-1)
    if (!last) return
    const bytes =
      group.length === 1
        ? last.base.subarray(last.from, last.to)
        : Buffer.concat(group.map((line) => line.base.subarray(line.from, line.to)))
    this.#runs.push(new SelectedRun(last.file, bytes, 0, bytes.length, last.end))
  }

  #output(lines: LineBlock<P>, from: number, to: number): void {
    if (this.#buffered.length > 0) this.#dropBuffered()
    const last = this.#runs.at(-1)
    const end = lines.end - (lines.to - to)
    if (last && last.base === lines.base && last.to === from && last.file === lines.file) {
      last.to = to
      last.end = end
    } else {
      this.#runs.push(new SelectedRun(lines.file, lines.base, from, to, end))
    }
  }

  #setAfter(after: number): void {
    this.#after = after
    const last = this.#runs.at(-1)
    if (last) last.after = after
  }

  #dropBuffered(): void {
    this.#buffered = []
    this.#bufferedBytes = 0
  }
}
