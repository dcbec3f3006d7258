/**
 * Lines that hold a literal, found on the bytes as they are. Byte searches run at the speed of memory, so this is done on
 * the main thread, a stretch of lines at a time.
 */
import type { Lines } from './line-assembly.ts'

const NEWLINE = 10

/** The begin and end of each stretch of lines of `lines` that hold `literal`, in order, as positions in their base. */
export function literalMatches<P>(lines: Lines<P>, literal: Buffer): number[] {
  const view = lines.base.subarray(lines.from, lines.judgedTo)
  if (lines.cut) return view.includes(literal) ? [lines.from, lines.to] : []
  const found: number[] = []
  let at = 0
  let end = -1
  for (;;) {
    const hit = view.indexOf(literal, at)
    if (hit < 0) break
    const begin = Math.max(at, view.lastIndexOf(NEWLINE, hit) + 1)
    const newline = view.indexOf(NEWLINE, hit + literal.length)
    at = newline < 0 ? view.length : newline + 1
    if (begin === end) found[found.length - 1] = lines.from + at
    else found.push(lines.from + begin, lines.from + at)
    end = at
  }
  return found
}
