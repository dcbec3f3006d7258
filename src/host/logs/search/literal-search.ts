/**
 * Lines that hold a literal, found on the bytes as they are. Byte searches run at the speed of memory, so this is done on
 * the main thread, a stretch of lines at a time.
 */
import type { Lines } from './line-assembly.ts'

const NEWLINE = 10
/** Lines are mostly short: for a few bytes a loop is quicker than a call. */
const NEAR_BYTES = 128

/**
 * The begin and end of each stretch of lines of `lines` that hold `literal`, in order, as positions in their base. With
 * `most` stretches found it stops: what is behind the last was not searched.
 */
export function literalMatches<P>(lines: Lines<P>, literal: Buffer, most: number): number[] {
  const view = lines.base.subarray(lines.from, lines.judgedTo)
  if (lines.cut) return view.includes(literal) ? [lines.from, lines.to] : []
  const found: number[] = []
  let at = 0
  // Where the line before had it: log lines are alike, and to look there is quicker than to search.
  let column = -1
  while (at < view.length) {
    const alike = column >= 0 && isAt(view, at, column, literal)
    const hit = alike ? at + column : view.indexOf(literal, at)
    if (hit < 0) break
    const own = alike ? at : lineBegin(view, hit, at)
    const begin = lines.from + own
    column = own === at ? hit - own : -1
    at = lineEnd(view, hit + literal.length)
    if (found[found.length - 1] === begin) found[found.length - 1] = lines.from + at
    else if (found.length === 2 * most) break
    else found.push(begin, lines.from + at)
  }
  return found
}

/** True when the literal stands at `column` of the line that begins at `at`, and the line is as long as that. */
function isAt(view: Buffer, at: number, column: number, literal: Buffer): boolean {
  if (column > NEAR_BYTES || literal.length > NEAR_BYTES) return false
  const begin = at + column
  for (let index = 0; index < literal.length; index++) if (view[begin + index] !== literal[index]) return false
  for (let index = at; index < begin; index++) if (view[index] === NEWLINE) return false
  return true
}

/** Where the line begins that holds `hit`; a line begins at `least`. */
function lineBegin(view: Buffer, hit: number, least: number): number {
  const near = Math.max(least, hit - NEAR_BYTES)
  let at = hit
  while (at > near && view[at - 1] !== NEWLINE) at--
  if (at > near || at === least) return at
  return Math.max(least, view.lastIndexOf(NEWLINE, at) + 1)
}

/** Behind the end of the line that holds `at`. */
function lineEnd(view: Buffer, at: number): number {
  const near = Math.min(view.length, at + NEAR_BYTES)
  for (let next = at; next < near; next++) if (view[next] === NEWLINE) return next + 1
  const newline = view.indexOf(NEWLINE, near)
  return newline < 0 ? view.length : newline + 1
}
