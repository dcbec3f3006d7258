/**
 * Selects the lines of one log for `grep`, `grep_invert` and `grep_context`: bytes in, runs of whole lines out.
 *
 * A line extends to `\n`. A `\r` before it is part of the output but not matched, so that `$` matches at the visible end.
 * No match spans lines. Bytes that are not UTF-8 are output unchanged; a pattern sees U+FFFD instead.
 *
 * Of a line longer than `LINE_BYTES_MAX` only the beginning is matched and output, with a marker. So a filter holds at most
 * one such beginning and the lines before a possible match (`CONTEXT_BYTES_MAX`).
 *
 * Literals are searched here, on the main thread, in time slices: a byte search is faster than a copy to a worker thread.
 * Patterns are matched by `LineMatcher` on worker threads (docs/decisions/008).
 */
import { scheduler } from '../../../platform/scheduler.ts'
import { LineAssembly, type LineBlock, NEWLINE, splitLines } from './line-assembly.ts'
import { LineMatcher } from './line-matchers.ts'
import type { LinePattern } from './line-pattern.ts'
import { countLines, LineSelection } from './line-selection.ts'

const queue = scheduler.queue()

/** Maximum of `grep_context`. */
export const CONTEXT_LINES_MAX = 100

/** Match ranges handled in one time slice: well below a millisecond. */
const SLICE_MATCHES_MAX = 1000

/**
 * Whole selected lines: contiguous bytes of the file that end at the offset `end`. A run of one line that was truncated, or
 * that began in an earlier file, has other bytes: that line (with the marker if truncated), and `end` is the end of the
 * original line. The last line of a file may lack its line end.
 */
export interface LineRun<P> {
  readonly file: P
  readonly bytes: Buffer
  readonly end: number
  /**
   * Resume state: a filter created with this `after` and fed from `end` of `file` continues exactly. At a line end inside the
   * run it is larger by the number of lines after that (see `pieces`).
   */
  readonly after: number
}

/** The filter of one log. P identifies files for the caller, compared with `===`. */
export class LineFilter<P> {
  readonly #pattern: LinePattern | undefined
  readonly #matcher: LineMatcher | undefined
  readonly #assembly = new LineAssembly<P>()
  readonly #selection: LineSelection<P>
  readonly #counts: boolean
  #closed = false

  /** Without a `pattern` every line is selected. `context`: 0 to `CONTEXT_LINES_MAX`. `after`: that of a run, to resume there. */
  constructor(options: { pattern: LinePattern | undefined; invert: boolean; context: number; after?: number }) {
    const { pattern, invert, context, after = 0 } = options
    this.#pattern = pattern
    this.#matcher = pattern && !pattern.literal ? new LineMatcher(pattern.text) : undefined
    this.#selection = new LineSelection({ invert, context, after })
    this.#counts = context > 0 || after > 0
  }

  /**
   * Adds the next bytes of `file`, which start at its offset `start`, and returns the selected lines that are complete by now,
   * in order. `data` and the runs are valid until the next push, which must wait for the promise of this one. A line that
   * begins in one file and ends in the next belongs to the latter.
   *
   * Rejects with a Fault if the worker thread died. After `close` the promise resolves to no lines.
   */
  push(data: Buffer, file: P, start: number): LineRun<P>[] | Promise<LineRun<P>[]> {
    return this.#match(this.#assembly.push(data, file, start))
  }

  /** Handles the incomplete last line as complete, at the end of a stream that does not follow. */
  finish(): LineRun<P>[] | Promise<LineRun<P>[]> {
    const last = this.#assembly.finish()
    return last ? this.#match([last]) : []
  }

  /** Discards the incomplete line and the context after a truncation of the file. */
  reset(): void {
    this.#assembly.reset()
    this.#selection.reset()
  }

  /** Number of context lines after a match that are still to be output. */
  get after(): number {
    return this.#selection.after
  }

  /**
   * Position of the first byte that may still be output: the oldest possible context line, or the incomplete line. Undefined
   * if there is none, which stands for the end of the pushed bytes. A filter created with `after` and fed from there
   * continues exactly.
   */
  get pending(): { file: P; offset: number } | undefined {
    return this.#selection.pending ?? this.#assembly.pending
  }

  /** Cancels queued work of the worker threads; a pending push resolves to no lines. */
  close(): void {
    this.#closed = true
    this.#matcher?.close()
    this.reset()
  }

  /** Splits a run at line ends into pieces of at most `bytesMax` (not less than a frame of 64 KiB), each with a resume state. */
  *pieces(run: LineRun<P>, bytesMax: number): Generator<LineRun<P>> {
    const { bytes, file, end } = run
    let at = 0
    while (bytes.length - at > bytesMax) {
      const to = bytes.lastIndexOf(NEWLINE, at + bytesMax - 1) + 1
      const behind = this.#counts ? countLines(bytes, to, bytes.length) : 0
      yield { file, bytes: bytes.subarray(at, to), end: end - (bytes.length - to), after: run.after + behind }
      at = to
    }
    yield at === 0 ? run : { file, bytes: bytes.subarray(at), end, after: run.after }
  }

  #match(blocks: readonly LineBlock<P>[]): LineRun<P>[] | Promise<LineRun<P>[]> {
    if (blocks.length === 0) return []
    if (this.#matcher) return this.#matchOnWorker(this.#matcher, blocks)
    return this.#select(blocks, (lines) => this.#literalMatches(lines))
  }

  async #matchOnWorker(matcher: LineMatcher, blocks: readonly LineBlock<P>[]): Promise<LineRun<P>[]> {
    const found = await matcher.match(blocks.map(({ base, from, matchTo }) => base.subarray(from, matchTo)))
    if (!found) return []
    const positions = found.map((matches, index) => matches.map((at) => at + (blocks[index]?.from ?? 0)))
    let done = 0
    return this.#select(blocks, (lines, index) => {
      const all = positions[index] ?? new Uint32Array()
      if (lines.isTruncated) return all.length > 0 ? [lines.from, lines.to] : []
      if (lines.from === blocks[index]?.from) done = 0
      const slice = all.subarray(done, done + 2 * SLICE_MATCHES_MAX)
      done += slice.length
      return slice
    })
  }

  /** Selects the lines of each block in time slices: matching half a megabyte, or very short lines, takes longer than a turn. */
  #select(
    blocks: readonly LineBlock<P>[],
    matchesOf: (lines: LineBlock<P>, index: number) => ArrayLike<number>,
  ): LineRun<P>[] | Promise<LineRun<P>[]> {
    const slices = this.#slices(blocks, matchesOf)
    while (queue.isFree()) if (slices.next().done === true) return this.#selection.takeRuns()
    return this.#selectLater(slices)
  }

  async #selectLater(slices: Generator<void>): Promise<LineRun<P>[]> {
    do await queue.later()
    while (slices.next().done !== true)
    return this.#selection.takeRuns()
  }

  *#slices(
    blocks: readonly LineBlock<P>[],
    matchesOf: (lines: LineBlock<P>, index: number) => ArrayLike<number>,
  ): Generator<void> {
    for (const [index, block] of blocks.entries()) {
      let rest: LineBlock<P> | undefined = block
      while (rest && !this.#closed) {
        const matches = matchesOf(rest, index)
        const at: number =
          matches.length < 2 * SLICE_MATCHES_MAX ? rest.to : (matches[2 * SLICE_MATCHES_MAX - 1] ?? rest.to)
        const [lines, behind]: [LineBlock<P>, LineBlock<P>?] = at < rest.to ? splitLines(rest, at) : [rest]
        this.#selection.take(lines, matches)
        rest = behind
        if (rest || index < blocks.length - 1) yield
      }
    }
  }

  #literalMatches(lines: LineBlock<P>): number[] {
    const literal = this.#pattern?.literal
    return literal ? literalMatches(lines, literal, SLICE_MATCHES_MAX) : [lines.from, lines.to]
  }
}

/** Most lines are short, and up to this distance a loop is faster than a native call. */
const NEAR_BYTES = 128

/**
 * The start and end of each range of `lines` that contain `literal`, in order, as positions in their base. Stops after
 * `most` ranges: the lines after the last one were not searched.
 */
function literalMatches<P>(lines: LineBlock<P>, literal: Buffer, most: number): number[] {
  const view = lines.base.subarray(lines.from, lines.matchTo)
  if (lines.isTruncated) return view.includes(literal) ? [lines.from, lines.to] : []
  const found: number[] = []
  let at = 0
  // Column of the literal in the previous line: log lines are similar, and a comparison is faster than a search.
  let column = -1
  while (at < view.length) {
    const alike = column >= 0 && isAt(view, at, column, literal)
    const hit = alike ? at + column : view.indexOf(literal, at)
    if (hit < 0) break
    const own = alike ? at : lineBegin(view, hit, at)
    const begin = lines.from + own
    column = own === at ? hit - own : -1
    at = endOfLineAt(view, hit + literal.length)
    if (found[found.length - 1] === begin) found[found.length - 1] = lines.from + at
    else if (found.length === 2 * most) break
    else found.push(begin, lines.from + at)
  }
  return found
}

/** True if the literal is at `column` of the line that begins at `at`. */
function isAt(view: Buffer, at: number, column: number, literal: Buffer): boolean {
  if (column > NEAR_BYTES || literal.length > NEAR_BYTES) return false
  const begin = at + column
  for (let index = 0; index < literal.length; index++) if (view[begin + index] !== literal[index]) return false
  for (let index = at; index < begin; index++) if (view[index] === NEWLINE) return false
  return true
}

/** The beginning of the line with `hit`; `least` is a line beginning. */
function lineBegin(view: Buffer, hit: number, least: number): number {
  const near = Math.max(least, hit - NEAR_BYTES)
  let at = hit
  while (at > near && view[at - 1] !== NEWLINE) at--
  if (at > near || at === least) return at
  return Math.max(least, view.lastIndexOf(NEWLINE, at) + 1)
}

/** The position after the line with `at`. */
function endOfLineAt(view: Buffer, at: number): number {
  const near = Math.min(view.length, at + NEAR_BYTES)
  for (let next = at; next < near; next++) if (view[next] === NEWLINE) return next + 1
  const newline = view.indexOf(NEWLINE, near)
  return newline < 0 ? view.length : newline + 1
}
