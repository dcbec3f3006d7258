/**
 * The lines of one log that are given to a caller who asked for some of them: `grep`, `grep_invert`, `grep_context`.
 *
 * Bytes go in as they are read, runs of whole lines come out. What a line is: everything up to `\n`; a `\r` before that
 * is given but not judged, so that `$` stands where a reader sees the end. Nothing matches across lines. Bytes that are
 * not UTF-8 are given as they are; a pattern sees U+FFFD in their place.
 *
 * A line longer than `LINE_BYTES_MAX` is judged on its beginning and given as its beginning and a marker. So a filter
 * holds no more than one such beginning and the lines before a possible match (`CONTEXT_BYTES_MAX`), whatever it is fed.
 */
import { LineAssembly, type Lines, splitLines } from './line-assembly.ts'
import { LineMatcher } from './line-matchers.ts'
import type { LinePattern } from './line-pattern.ts'
import { countLines, LineSelection } from './line-selection.ts'
import { literalMatches } from './literal-search.ts'
import { inSlices } from './time-slices.ts'

/** Lines before and after each match that may be asked for. */
export const CONTEXT_LINES_MAX = 100

/** Stretches of matching lines that are decided about in one slice of time: well below a millisecond. */
const SLICE_MATCHES_MAX = 1000

/**
 * Whole lines. `bytes` are contiguous bytes of the file ending at offset `end`, except for a line that was cut and for
 * one that began in an earlier file: then they are that one line (cut: and marked), and `end` is where the real line
 * ends. The last line of a file may lack its line end.
 */
export interface LineRun<P> {
  readonly place: P
  readonly bytes: Buffer
  readonly end: number
  /**
   * Where to go on: a filter made with this `after` and fed from `end` of `place` gives exactly what follows. At a line
   * end inside the run it is this and one more for each line of the run behind it; `pieces` knows.
   */
  readonly after: number
}

/** The filter of one log. P is what the caller tells files apart by, compared with `===`. */
export class LineFilter<P> {
  readonly #pattern: LinePattern | undefined
  readonly #matcher: LineMatcher | undefined
  readonly #assembly = new LineAssembly<P>()
  readonly #selection: LineSelection<P>
  readonly #counts: boolean
  #closed = false

  /** `pattern` undefined: every line. `context` is 0 to `CONTEXT_LINES_MAX`; `after` is that of a run, to go on there. */
  constructor(options: { pattern: LinePattern | undefined; invert: boolean; context: number; after?: number }) {
    const { pattern, invert, context, after = 0 } = options
    this.#pattern = pattern
    this.#matcher = pattern && !pattern.literal ? new LineMatcher(pattern.text) : undefined
    this.#selection = new LineSelection({ invert, context, after })
    this.#counts = context > 0 || after > 0
  }

  /**
   * Takes the next bytes of `place`, which start at offset `start` in it, and gives the selected lines that are complete
   * by now, in order. `data` and the runs are valid until the next push, which must wait for the promise of this one.
   * A line may begin in one place and end in the next: it then belongs to the place where it ends.
   *
   * Rejects with a Fault when the thread that matches died. After `close` the promise gives nothing.
   */
  push(data: Buffer, place: P, start: number): LineRun<P>[] | Promise<LineRun<P>[]> {
    return this.#judge(this.#assembly.push(data, place, start))
  }

  /** The incomplete last line, judged as if it were complete: the end of a stream that does not follow. */
  finish(): LineRun<P>[] | Promise<LineRun<P>[]> {
    const last = this.#assembly.finish()
    return last ? this.#judge([last]) : []
  }

  /** Forgets the incomplete line and the context: the file was truncated. */
  reset(): void {
    this.#assembly.reset()
    this.#selection.reset()
  }

  /** Lines of context behind a match that are still owed. */
  get after(): number {
    return this.#selection.after
  }

  /**
   * Where the first byte stands that may still be given: the oldest line that a match could make context, or the
   * incomplete line. Undefined when there is none: then it is the byte behind those that were pushed. A filter made with
   * `after` and fed from there goes on exactly.
   */
  get pending(): { place: P; offset: number } | undefined {
    return this.#selection.pending ?? this.#assembly.pending
  }

  /** Ends the filter: work that waits for a thread is dropped, and a push under way gives nothing. */
  close(): void {
    this.#closed = true
    this.#matcher?.close()
    this.reset()
  }

  /** The run in pieces of at most `bytesMax` (no less than a frame of 64 KiB) that end with a line, each one to resume from. */
  *pieces(run: LineRun<P>, bytesMax: number): Generator<LineRun<P>> {
    const { bytes, place, end } = run
    let at = 0
    while (bytes.length - at > bytesMax) {
      const to = bytes.lastIndexOf(10, at + bytesMax - 1) + 1
      const behind = this.#counts ? countLines(bytes, to, bytes.length) : 0
      yield { place, bytes: bytes.subarray(at, to), end: end - (bytes.length - to), after: run.after + behind }
      at = to
    }
    yield at === 0 ? run : { place, bytes: bytes.subarray(at), end, after: run.after }
  }

  #judge(stretches: readonly Lines<P>[]): LineRun<P>[] | Promise<LineRun<P>[]> {
    if (stretches.length === 0) return []
    if (this.#matcher) return this.#ask(this.#matcher, stretches)
    return this.#select(stretches, (lines) => this.#matches(lines))
  }

  /** Lets a thread say what matches. */
  async #ask(matcher: LineMatcher, stretches: readonly Lines<P>[]): Promise<LineRun<P>[]> {
    const found = await matcher.match(stretches.map(({ base, from, judgedTo }) => base.subarray(from, judgedTo)))
    if (!found) return []
    const positions = found.map((matches, index) => matches.map((at) => at + (stretches[index]?.from ?? 0)))
    let done = 0
    return this.#select(stretches, (lines, index) => {
      const all = positions[index] ?? new Uint32Array()
      if (lines.cut) return all.length > 0 ? [lines.from, lines.to] : []
      if (lines.from === stretches[index]?.from) done = 0
      const slice = all.subarray(done, done + 2 * SLICE_MATCHES_MAX)
      done += slice.length
      return slice
    })
  }

  /**
   * Decides about each stretch, in slices of time: a search through half a megabyte may take a while, and so may what is
   * found where lines are short.
   */
  #select(
    stretches: readonly Lines<P>[],
    matchesOf: (lines: Lines<P>, index: number) => ArrayLike<number>,
  ): LineRun<P>[] | Promise<LineRun<P>[]> {
    let index = 0
    let rest: Lines<P> | undefined
    const waits = inSlices(() => {
      const lines = rest ?? stretches[index]
      if (!lines || this.#closed) return false
      const matches = matchesOf(lines, index)
      const at = matches.length < 2 * SLICE_MATCHES_MAX ? lines.to : (matches[2 * SLICE_MATCHES_MAX - 1] ?? lines.to)
      const [taken, behind] = at < lines.to ? splitLines(lines, at) : [lines, undefined]
      this.#selection.take(taken, matches)
      rest = behind
      return rest !== undefined || ++index < stretches.length
    })
    return waits ? waits.then(() => this.#selection.takeRuns()) : this.#selection.takeRuns()
  }

  #matches(lines: Lines<P>): number[] {
    const literal = this.#pattern?.literal
    return literal ? literalMatches(lines, literal, SLICE_MATCHES_MAX) : [lines.from, lines.to]
  }
}
