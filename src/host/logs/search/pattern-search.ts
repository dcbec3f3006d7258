/**
 * Finds the lines that match a pattern, in blocks of whole lines. Runs on the worker thread.
 *
 * A match per line costs more than the match itself, so small blocks of many lines are tested first, and lines only in blocks
 * that match. A block without a match has no matching line: `^` and `$` match at line ends in it, and for `\b` a line end is
 * no word character either. Only assertions about the ends of the text (`\A`, `\z`, and `^`, `$` with `(?-m)`) would be missed,
 * so a pattern with one of these is tested line by line. After a block in which most lines match, the next is tested line by
 * line at once.
 */
import { isAscii } from 'node:buffer'
import { RE2JS } from 're2js'
import { lineEnd, NEWLINE } from './line-assembly.ts'

const CARRIAGE_RETURN = 13
/** Small, because the lines of a matching block are tested twice. */
const BLOCK_BYTES = 4096

/** Patterns that may contain assertions about the ends of the text; skips escaped backslashes. */
const TEXT_ENDS = /^(?:\\[^Az]|[^\\])*?(?:\\[Az]|\(\?[a-zA-Z]*-)/

/** The most common patterns: literals separated by `|`, optionally case-insensitive. */
const ALTERNATIVES = /^(\(\?i\))?([^\\^$.?*+()[\]{}]+)$/

/**
 * Matches such a pattern in an ASCII text without the engine. Only for ASCII, because other letters may have more than two
 * cases.
 */
function plainTest(pattern: string): ((text: string) => boolean) | undefined {
  const [, anyCase, texts] = ALTERNATIVES.exec(pattern) ?? []
  if (texts === undefined) return undefined
  if (anyCase === undefined) return anyOf(texts.split('|'))
  if (/[^\0-\x7f]/.test(texts)) return undefined
  const test = anyOf(texts.toLowerCase().split('|'))
  return (text) => test(text.toLowerCase())
}

function anyOf(texts: readonly string[]): (text: string) => boolean {
  return (text) => texts.some((one) => text.includes(one))
}

/** Matching line ranges in order: begin, end, begin, end. */
class MatchRanges {
  readonly found: number[] = []

  add(begin: number, end: number): void {
    const last = this.found.length - 1
    if (this.found[last] === begin) this.found[last] = end
    else this.found.push(begin, end)
  }
}

/** A compiled pattern. */
export class PatternSearch {
  readonly #test: (text: string) => boolean
  readonly #plain: ((text: string) => boolean) | undefined
  readonly #byBlock: boolean
  #dense = false

  constructor(text: string) {
    const pattern = RE2JS.compile(text, RE2JS.MULTILINE)
    this.#test = (line) => pattern.test(line)
    this.#plain = plainTest(text)
    this.#byBlock = !TEXT_ENDS.test(text)
  }

  /** The start and end of each matching range of `lines`, in order. The last line may lack its end. */
  matches(lines: Buffer): number[] {
    const ranges = new MatchRanges()
    const ascii = isAscii(lines)
    for (let at = 0; at < lines.length; ) {
      const to = blockEnd(lines, at)
      const isBytes = ascii || isAscii(lines.subarray(at, to))
      const block = lines.toString(isBytes ? 'latin1' : 'utf8', at, to)
      const test = (isBytes && this.#plain) || this.#test
      if (!this.#byBlock || this.#dense || test(withoutReturns(block))) {
        this.#matchLines({ text: block, isBytes, test }, lines, { from: at, to }, ranges)
      }
      at = to
    }
    return ranges.found
  }

  /** Tests each line of a block. `text` is the decoded `[from, to)` of `lines`, with the same line ends. */
  #matchLines(
    { text, isBytes, test }: { text: string; isBytes: boolean; test: (text: string) => boolean },
    lines: Buffer,
    { from, to }: { from: number; to: number },
    ranges: MatchRanges,
  ): void {
    let count = 0
    let matched = 0
    let at = from
    for (let begin = 0; begin < text.length; count++) {
      const newline = text.indexOf('\n', begin)
      const end = newline < 0 ? text.length : newline
      const next = newline < 0 ? text.length : newline + 1
      const ownEnd = newline > begin && text.charCodeAt(newline - 1) === CARRIAGE_RETURN ? newline - 1 : end
      const nextAt = isBytes ? from + next : lineEnd(lines, at, to)
      if (test(text.slice(begin, ownEnd))) {
        ranges.add(at, nextAt)
        matched++
      }
      begin = next
      at = nextAt
    }
    this.#dense = matched * 2 > count
  }
}

/** The end of the block that begins at `at`: after its last line end, for a long line after that line. */
function blockEnd(lines: Buffer, at: number): number {
  if (lines.length - at <= BLOCK_BYTES) return lines.length
  const newline = lines.lastIndexOf(NEWLINE, at + BLOCK_BYTES - 1)
  return newline >= at ? newline + 1 : lineEnd(lines, at + BLOCK_BYTES, lines.length)
}

function withoutReturns(block: string): string {
  return block.includes('\r\n') ? block.replaceAll('\r\n', '\n') : block
}
