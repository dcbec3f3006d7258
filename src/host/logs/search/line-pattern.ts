/**
 * What a caller may ask to be looked for in lines: a text that is compared byte by byte, or a pattern in RE2's syntax.
 *
 * The pattern comes from whoever may read a log, so nothing about it is trusted: it is matched by an engine whose time
 * grows with the length of the line and not faster (docs/decisions/008), what it costs to compile is estimated before it
 * is compiled, and everything refused says why. The compiled form is thrown away here; the threads that match compile it
 * again.
 */
import { createRequire } from 'node:module'
import type { RE2JS } from 're2js'
import { Refusal } from '../../../platform/errors.ts'

export const PATTERN_LENGTH_MAX = 1000
/** Byte searches take more than linear time for some texts that are longer: these go to the threads too. */
const LITERAL_BYTES_MAX = 128
/**
 * Instructions of the compiled pattern, about one a character; what `{n}` repeats counts n times. At its worst the engine
 * goes through all of them for every character: then the longest line takes most of a second.
 */
export const PROGRAM_SIZE_MAX = 1200

/** What is looked for. One with a literal needs no engine. */
export interface LinePattern {
  readonly text: string
  /** The bytes that a line must hold, when nothing in the text has a special meaning and they are not too many. */
  readonly literal: Buffer | undefined
}

/** Characters that mean something else than themselves somewhere in the syntax. */
const SPECIAL = /[\\^$.|?*+()[\]{}]/
/**
 * A carriage return may belong to the line's end, and U+FFFD stands for bytes that are not UTF-8: both are compared as
 * characters, not as bytes.
 */
const NOT_BYTES = /[\r\ufffd]/

/**
 * Checks a pattern. Throws a Refusal (`invalid_request`) whose text says what is wrong and where: empty, longer than
 * 1,000 characters, with a line break, not in RE2's syntax, or one that would make too large a program.
 */
export function compileLinePattern(text: string): LinePattern {
  if (text === '') throw refusal('is empty: give what to look for, or leave it out for every line')
  if (text.length > PATTERN_LENGTH_MAX) {
    throw refusal(`has ${text.length} characters, more than ${PATTERN_LENGTH_MAX}: look for less`)
  }
  if (text.includes('\n')) {
    throw refusal('holds a line break, and is matched against one line at a time: use | between alternatives')
  }
  if (!text.isWellFormed()) throw refusal('is not valid Unicode')
  if (!SPECIAL.test(text)) {
    const bytes = Buffer.from(text)
    return { text, literal: NOT_BYTES.test(text) || bytes.length > LITERAL_BYTES_MAX ? undefined : bytes }
  }
  // Before it is compiled: that may take seconds.
  if (programSize(text) > 2 * PROGRAM_SIZE_MAX || tablesMicroseconds(text) > TABLES_MICROSECONDS_MAX) throw tooLarge()
  if (compile(text).programSize() > PROGRAM_SIZE_MAX) throw tooLarge()
  return { text, literal: undefined }
}

function refusal(what: string): Refusal {
  return new Refusal('invalid_request', `grep ${what}`)
}

function tooLarge(): Refusal {
  return refusal('makes too large a program: use smaller counts in {n,m}, or fewer classes of characters')
}

/** Loaded with the first pattern: most agents never see one, and all of them start. */
let engine: typeof import('re2js') | undefined

function loadEngine(): typeof import('re2js') {
  // Its type is that of the package that is named; `require` alone gives it none.
  engine ??= createRequire(import.meta.url)('re2js') as typeof import('re2js')
  return engine
}

function compile(text: string): RE2JS {
  const { RE2JS: Engine, RE2JSSyntaxException } = loadEngine()
  try {
    return Engine.compile(text, Engine.MULTILINE)
  } catch (error) {
    if (!(error instanceof RE2JSSyntaxException)) throw refusal('cannot be compiled: look for something simpler')
    throw syntaxRefusal(text, error.getDescription(), error.getPattern() ?? '')
  }
}

/** Groups that other engines know and this one cannot have, because they take more than linear time. */
const LOOKAROUND = /\(\?<?[=!]/
const BACKREFERENCE = /(?<!\\)(?:\\\\)*(\\(?:[1-9]|k[<{']|g[{<0-9-]))/

function syntaxRefusal(text: string, description: string, at: string): Refusal {
  const lookaround = LOOKAROUND.exec(text)
  if (lookaround && (at === '' || text.includes(at))) {
    return refusal(
      `uses ${lookaround[0]}…), and lookahead and lookbehind are not supported (the syntax is RE2's): ` +
        'write the pattern without it; grep_invert=true gives the lines that do not match',
    )
  }
  const backreference = BACKREFERENCE.exec(text)
  if (backreference && description.includes('escape')) {
    return refusal(`uses ${backreference[1]}, and backreferences are not supported (the syntax is RE2's)`)
  }
  const shown = at.startsWith('(?m)') ? at.slice('(?m)'.length) : at
  const position = shown === '' || shown === text ? -1 : text.indexOf(shown)
  const where = position < 0 ? '' : ` at character ${position + 1}: ${JSON.stringify(shown)}`
  return refusal(
    `is not a valid pattern (RE2 syntax): ${description}${where}; put \\ before a character to mean itself`,
  )
}

/**
 * What the tables of a pattern's classes may take to make, in microseconds: that of one is made once, however often it is
 * repeated.
 */
const TABLES_MICROSECONDS_MAX = 6000
const UNICODE_CLASS = 30
const FOLDED_UNICODE_CLASS = 200
const FOLDED_UNICODE_SET = 2000

/** An upper bound of what the tables of all classes take. */
function tablesMicroseconds(text: string): number {
  const folded = /\(\?[a-zA-Z]*i/.test(text)
  let sum = 0
  for (let at = 0; at < text.length; ) {
    const length = atomLength(text, at)
    sum += tableMicroseconds(text.slice(at, at + length), folded)
    at += length
  }
  return sum
}

function tableMicroseconds(atom: string, folded: boolean): number {
  const isSet = atom.startsWith('[')
  if (!isSet && !/^\\[pP]/.test(atom)) return 0
  if (!/\\[pPx]|[^\0-\x7f]/.test(atom)) return 1
  if (!folded) return UNICODE_CLASS
  return isSet ? FOLDED_UNICODE_SET : FOLDED_UNICODE_CLASS
}

/**
 * An upper bound of the instructions, made in one pass: atoms, multiplied by the counts of the groups they are in. It
 * need not understand everything: what it takes for an atom and is none costs little.
 */
function programSize(text: string): number {
  const open: number[] = []
  let sum = 0
  let last = 0
  for (let at = 0; at < text.length; ) {
    const counts = REPEAT.at(text, at)
    if (counts) {
      sum += last * (counts.times - 1)
      last *= counts.times
      at += counts.length
    } else if (text[at] === '(') {
      open.push(sum)
      sum = 0
      last = 0
      at++
    } else if (text[at] === ')') {
      last = sum + 1
      sum = (open.pop() ?? 0) + last
      at++
    } else {
      const length = atomLength(text, at)
      last = text.startsWith('\\Q', at) ? length : 1
      sum += last
      at += length
    }
    if (sum > Number.MAX_SAFE_INTEGER / 1e6) return sum
  }
  return open.reduce((all, outer) => all + outer, sum)
}

const REPEAT = {
  pattern: /\{(\d{1,6})(?:,(\d{0,6}))?\}/y,
  at(text: string, at: number): { times: number; length: number } | undefined {
    this.pattern.lastIndex = at
    const found = this.pattern.exec(text)
    if (!found) return undefined
    const [whole, least = '0', most = ''] = found
    return { times: Math.max(1, Number(least), Number(most)), length: whole.length }
  },
}

const ESCAPE = /\\(?:[pP](?:\{[^}]*\}|.)|x\{[^}]*\}|Q.*?(?:\\E|$)|[^])/y
const CLASS = /\[\^?\]?(?:\[:\^?\w+:\]|\\[pP]\{[^}]*\}|\\[^]|[^\]\\])*\]?/y

function atomLength(text: string, at: number): number {
  const pattern = text[at] === '\\' ? ESCAPE : text[at] === '[' ? CLASS : undefined
  if (!pattern) return 1
  pattern.lastIndex = at
  return pattern.exec(text)?.[0].length ?? 1
}
