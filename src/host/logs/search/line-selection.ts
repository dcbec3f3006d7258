/**
 * Which lines are given: those that match, or those that do not, with the lines around them.
 *
 * Lines come in order, with what matched among them. A line that was not given may still be wanted, as long as a line
 * that follows soon may match: so the last lines are kept, at most `context` of them and at most `CONTEXT_BYTES_MAX` of
 * bytes, and that is also how far back from a match the context goes.
 */
import type { Lines } from './line-assembly.ts'

const NEWLINE = 10
/** Lines before a match go back no further than this. */
export const CONTEXT_BYTES_MAX = 1 << 20

/** Lines that are given. See `LineRun` in line-filter.ts. */
export class Run<P> {
  readonly place: P
  readonly base: Buffer
  readonly from: number
  to: number
  end: number
  after = 0

  constructor(place: P, base: Buffer, from: number, to: number, end: number) {
    this.place = place
    this.base = base
    this.from = from
    this.to = to
    this.end = end
  }

  get bytes(): Buffer {
    return this.base.subarray(this.from, this.to)
  }
}

/** One line that was not given yet. */
type KeptLine<P> = Omit<Lines<P>, 'judgedTo'>

/** How many lines lie in `[from, to)`, of which the last may lack its end. */
export function countLines(base: Buffer, from: number, to: number): number {
  let count = 0
  for (let at = from; at < to; count++) at = lineEnd(base, at, to)
  return count
}

/** Behind the end of the line that begins at `at`. */
function lineEnd(base: Buffer, at: number, to: number): number {
  const newline = base.indexOf(NEWLINE, at)
  return newline < 0 || newline >= to ? to : newline + 1
}

/** The beginning of the line that ends before `at`, not before `from`. */
function lineBegin(base: Buffer, at: number, from: number): number {
  if (at - 2 < from) return from
  return Math.max(from, base.lastIndexOf(NEWLINE, at - 2) + 1)
}

/** True when two lines lie behind each other in one file, from the first byte to the last. */
function joins<P>(previous: KeptLine<P>, line: KeptLine<P>): boolean {
  if (previous.cut || line.cut || previous.end !== line.begin) return false
  return previous.beginPlace === previous.place && line.beginPlace === line.place && previous.place === line.place
}

export class LineSelection<P> {
  readonly #invert: boolean
  readonly #context: number
  #after: number
  #kept: KeptLine<P>[] = []
  #keptBytes = 0
  #runs: Run<P>[] = []

  constructor(options: { invert: boolean; context: number; after: number }) {
    this.#invert = options.invert
    this.#context = options.context
    this.#after = options.after
  }

  /** Lines that are given whatever they are, because they follow a match. */
  get after(): number {
    return this.#after
  }

  /** Where the oldest line begins that may still be given. */
  get pending(): { place: P; offset: number } | undefined {
    const [oldest] = this.#kept
    return oldest && { place: oldest.beginPlace, offset: oldest.begin }
  }

  /** What is given by now; each line is handed out once. */
  takeRuns(): Run<P>[] {
    const runs = this.#runs
    this.#runs = []
    return runs
  }

  reset(): void {
    this.#forget()
    this.#runs = []
    this.#after = 0
  }

  /** Decides about `lines`. `matches` holds the begin and end of each stretch of lines that match, in order. */
  take(lines: Lines<P>, matches: ArrayLike<number>): void {
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

  /** Gives the lines `[from, to)` and those around them; all before `done` are decided. */
  #select(lines: Lines<P>, done: number, from: number, to: number): number {
    if (from === to) return done
    let begin = from
    if (this.#context > 0 || this.#after > 0) {
      const open = this.#giveAfter(lines, done, from)
      begin = this.#before(lines, open, from)
    }
    this.#give(lines, begin, to)
    const owed = this.#after > this.#context ? this.#after - countLines(lines.base, from, to) : 0
    this.#owe(Math.max(owed, this.#context))
    return to
  }

  /** The first of the lines before a match at `at`, down to `open`; gives those that lie before `open`, if they reach. */
  #before(lines: Lines<P>, open: number, at: number): number {
    let begin = at
    let count = 0
    while (begin > open && count < this.#context) {
      const next = lines.cut ? lines.from : lineBegin(lines.base, begin, open)
      if (at - next > CONTEXT_BYTES_MAX) return begin
      begin = next
      count++
    }
    if (begin === lines.from) this.#giveKept(this.#context - count, CONTEXT_BYTES_MAX - (at - begin))
    return begin
  }

  /** Gives the lines that are owed, from `[from, to)`; returns where those begin that are not given. */
  #giveAfter(lines: Lines<P>, from: number, to: number): number {
    let at = from
    let owed = this.#after
    while (owed > 0 && at < to) {
      at = lines.cut ? to : lineEnd(lines.base, at, to)
      owed--
    }
    if (at > from) {
      this.#give(lines, from, at)
      this.#owe(owed)
    }
    return at
  }

  /** Passes over lines that do not match: the first may be owed, the last are kept. */
  #pass(lines: Lines<P>, from: number, to: number): void {
    const open = this.#after > 0 ? this.#giveAfter(lines, from, to) : from
    if (this.#context === 0 || open === to) return
    let begin = to
    let count = 0
    const begins: number[] = []
    while (begin > open && count < this.#context) {
      begin = lines.cut ? open : lineBegin(lines.base, begin, open)
      begins.push(begin)
      count++
    }
    if (begin > lines.from) this.#forget()
    this.#keep(lines, begins.toReversed(), to)
  }

  /** Keeps copies of the lines that begin at `begins` and end at `to`, and lets go what is too far back by then. */
  #keep(lines: Lines<P>, begins: readonly number[], to: number): void {
    const [first = to] = begins
    const base = Buffer.allocUnsafeSlow(to - first)
    lines.base.copy(base, 0, first, to)
    begins.forEach((begin, index) => {
      const next = begins[index + 1] ?? to
      this.#kept.push({
        base,
        from: begin - first,
        to: next - first,
        place: lines.place,
        end: lines.end - (lines.to - next),
        beginPlace: lines.beginPlace,
        begin: lines.begin + (begin - lines.from),
        cut: lines.cut,
      })
      this.#keptBytes += next - begin
    })
    let gone = 0
    while (this.#kept.length - gone > this.#context || this.#keptBytes > CONTEXT_BYTES_MAX) {
      const line = this.#kept[gone++]
      if (!line) break
      this.#keptBytes -= line.to - line.from
    }
    if (gone > 0) this.#kept.splice(0, gone)
  }

  /** Gives the last of the kept lines, at most `count` and `bytes`, and forgets the others. */
  #giveKept(count: number, bytes: number): void {
    let first = this.#kept.length
    let left = bytes
    while (first > 0 && this.#kept.length - first < count) {
      const line = this.#kept[first - 1]
      if (!line || line.to - line.from > left) break
      left -= line.to - line.from
      first--
    }
    let group: KeptLine<P>[] = []
    for (const line of this.#kept.slice(first)) {
      const previous = group.at(-1)
      if (!previous || !joins(previous, line)) {
        this.#giveGroup(group)
        group = []
      }
      group.push(line)
    }
    this.#giveGroup(group)
    this.#forget()
  }

  /** Gives lines that lie together in their file as one run. */
  #giveGroup(group: readonly KeptLine<P>[]): void {
    const last = group.at(-1)
    if (!last) return
    const bytes =
      group.length === 1
        ? last.base.subarray(last.from, last.to)
        : Buffer.concat(group.map((line) => line.base.subarray(line.from, line.to)))
    this.#runs.push(new Run(last.place, bytes, 0, bytes.length, last.end))
  }

  #give(lines: Lines<P>, from: number, to: number): void {
    if (this.#kept.length > 0) this.#forget()
    const last = this.#runs.at(-1)
    const end = lines.end - (lines.to - to)
    if (last && last.base === lines.base && last.to === from && last.place === lines.place) {
      last.to = to
      last.end = end
    } else {
      this.#runs.push(new Run(lines.place, lines.base, from, to, end))
    }
  }

  #owe(after: number): void {
    this.#after = after
    const last = this.#runs.at(-1)
    if (last) last.after = after
  }

  #forget(): void {
    this.#kept = []
    this.#keptBytes = 0
  }
}
