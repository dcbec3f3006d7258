/**
 * Lines that match a pattern, found in blocks of whole lines. Runs in the worker thread.
 *
 * Looking at each line by itself costs more than looking, so small blocks of many lines are looked at first, and only
 * where a block matches as a whole, its lines. That a block holds no match says that no line of it does: `^` and `$` mean
 * the ends of lines in it, and what `\b` sees behind a line's end is no word either way. Only what speaks of the ends of
 * the whole text (`\A`, `\z`, and `^`, `$` when `(?-m)` takes their meaning) would be missed, so a pattern with any of
 * these is tried line by line. Where most lines match, blocks are not worth it, and are not tried for a while.
 */
import { isAscii } from 'node:buffer'
import { RE2JS } from 're2js'

const NEWLINE = 10
const CARRIAGE_RETURN = 13
/** Small, because the lines of a block that matches are looked at twice. */
const BLOCK_BYTES = 4096

/** Parts of a pattern that speak of the ends of the text, or might: an escaped backslash is skipped over. */
const TEXT_ENDS = /^(?:\\[^Az]|[^\\])*?(?:\\[Az]|\(\?[a-zA-Z]*-)/

/** Plain texts with `|` between them, in any case or not: what logs are mostly asked for. */
const ALTERNATIVES = /^(\(\?i\))?([^\\^$.?*+()[\]{}]+)$/

/**
 * Says whether an ASCII text holds a match, without the engine. Only for ASCII: in other texts, letters have more forms
 * than two.
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

/** The stretches of lines that match, in order: begin, end, begin, end. */
class Stretches {
  readonly found: number[] = []

  add(begin: number, end: number): void {
    const last = this.found.length - 1
    if (this.found[last] === begin) this.found[last] = end
    else this.found.push(begin, end)
  }
}

/** A compiled pattern. What it costs is time and memory of the thread that has it. */
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

  /** The begin and end of each stretch of lines of `lines` that match, in order. The last line may lack its end. */
  matches(lines: Buffer): number[] {
    const stretches = new Stretches()
    const ascii = isAscii(lines)
    for (let at = 0; at < lines.length; ) {
      const to = blockEnd(lines, at)
      const isBytes = ascii || isAscii(lines.subarray(at, to))
      const block = lines.toString(isBytes ? 'latin1' : 'utf8', at, to)
      const test = (isBytes && this.#plain) || this.#test
      if (!this.#byBlock || this.#dense || test(withoutReturns(block))) {
        this.#matchLines({ text: block, isBytes, test }, lines, { from: at, to }, stretches)
      }
      at = to
    }
    return stretches.found
  }

  /** Looks at each line of a block: `text` is what `span` of `lines` says, with as many line ends. */
  #matchLines(
    { text, isBytes, test }: { text: string; isBytes: boolean; test: (text: string) => boolean },
    lines: Buffer,
    { from, to }: { from: number; to: number },
    stretches: Stretches,
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
        stretches.add(at, nextAt)
        matched++
      }
      begin = next
      at = nextAt
    }
    this.#dense = matched * 2 > count
  }
}

/** The end of a block that begins at `at`: behind a line end, and where that is further, behind the first one. */
function blockEnd(lines: Buffer, at: number): number {
  if (lines.length - at <= BLOCK_BYTES) return lines.length
  const newline = lines.lastIndexOf(NEWLINE, at + BLOCK_BYTES - 1)
  return newline >= at ? newline + 1 : lineEnd(lines, at + BLOCK_BYTES, lines.length)
}

function lineEnd(lines: Buffer, at: number, to: number): number {
  const newline = lines.indexOf(NEWLINE, at)
  return newline < 0 ? to : newline + 1
}

function withoutReturns(block: string): string {
  return block.includes('\r\n') ? block.replaceAll('\r\n', '\n') : block
}
