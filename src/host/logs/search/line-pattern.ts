/**
 * Validates `grep` patterns: a literal that is compared byte by byte, or a regular expression in RE2 syntax.
 *
 * A pattern is untrusted input. It is matched by an engine with linear time (docs/decisions/008), its cost is estimated before
 * it is compiled, and every refusal states the reason. The compiled form is discarded: the worker threads compile it again.
 */
import { createRequire } from 'node:module'
import type { RE2JS } from 're2js'
import { Refusal } from '../../../platform/errors.ts'

const PATTERN_LENGTH_MAX = 1000
/** For some longer literals a byte search takes more than linear time, so they are matched on the worker threads too. */
const LITERAL_BYTES_MAX = 128
/**
 * Instructions of the compiled pattern, about one per character; `{n}` repeats count n times. In the worst case the engine
 * visits all of them for every character: then the longest line takes about half a second of CPU.
 */
const PROGRAM_SIZE_MAX = 1200

/** A validated pattern. */
export interface LinePattern {
  readonly text: string
  /** The bytes to search, for a short text without special characters: it needs no engine. */
  readonly literal: Buffer | undefined
}

/** Characters with a special meaning in RE2 syntax. */
const SPECIAL = /[\\^$.|?*+()[\]{}]/
/**
 * A carriage return may belong to the line end, and U+FFFD replaces bytes that are not UTF-8: both are compared as characters,
 * not as bytes.
 */
const NOT_BYTES = /[\r\ufffd]/

/**
 * Validates a pattern. Throws a Refusal (`invalid_request`) if it is empty, longer than 1,000 characters, contains a line
 * break, is not valid RE2 syntax, or would compile to too large a program.
 */
export function compileLinePattern(text: string): LinePattern {
  if (text === '') throw refusal('is empty: set a pattern, or omit it to get every line')
  if (text.length > PATTERN_LENGTH_MAX) {
    throw refusal(`has ${text.length} characters, at most ${PATTERN_LENGTH_MAX} are allowed`)
  }
  if (text.includes('\n')) {
    throw refusal('contains a line break, but is matched line by line: separate alternatives with |')
  }
  if (!text.isWellFormed()) throw refusal('is not valid Unicode')
  if (!SPECIAL.test(text)) {
    const bytes = Buffer.from(text)
    return { text, literal: NOT_BYTES.test(text) || bytes.length > LITERAL_BYTES_MAX ? undefined : bytes }
  }
  // Before the compilation, which may take seconds.
  if (programSize(text) > 2 * PROGRAM_SIZE_MAX || tablesMicroseconds(text) > TABLES_MICROSECONDS_MAX) throw tooLarge()
  if (compile(text).programSize() > PROGRAM_SIZE_MAX) throw tooLarge()
  return { text, literal: undefined }
}

function refusal(what: string): Refusal {
  return new Refusal('invalid_request', `grep ${what}`)
}

function tooLarge(): Refusal {
  return refusal('compiles to too large a program: use smaller counts in {n,m}, or fewer character classes')
}

/** Loaded with the first pattern, to keep it out of the start. */
let engine: typeof import('re2js') | undefined

function loadEngine(): typeof import('re2js') {
  // `require` is untyped; the type is that of the same package.
  engine ??= createRequire(import.meta.url)('re2js') as typeof import('re2js')
  return engine
}

function compile(text: string): RE2JS {
  const { RE2JS: Engine, RE2JSSyntaxException } = loadEngine()
  try {
    return Engine.compile(text, Engine.MULTILINE)
  } catch (error) {
    if (!(error instanceof RE2JSSyntaxException)) throw refusal('cannot be compiled: use a simpler pattern')
    throw syntaxRefusal(text, error.getDescription(), error.getPattern() ?? '')
  }
}

/** Groups of other engines that RE2 does not support, because they take more than linear time. */
const LOOKAROUND = /\(\?<?[=!]/
const BACKREFERENCE = /(?<!\\)(?:\\\\)*(\\(?:[1-9]|k[<{']|g[{<0-9-]))/

function syntaxRefusal(text: string, description: string, at: string): Refusal {
  const lookaround = LOOKAROUND.exec(text)
  if (lookaround && (at === '' || text.includes(at))) {
    return refusal(
      `uses ${lookaround[0]}…), but RE2 syntax has no lookahead and lookbehind: ` +
        'rewrite the pattern; grep_invert=true selects the lines that do not match',
    )
  }
  const backreference = BACKREFERENCE.exec(text)
  if (backreference && description.includes('escape')) {
    return refusal(`uses ${backreference[1]}, but RE2 syntax has no backreferences`)
  }
  const shown = at.startsWith('(?m)') ? at.slice('(?m)'.length) : at
  const position = shown === '' || shown === text ? -1 : text.indexOf(shown)
  const where = position < 0 ? '' : ` at character ${position + 1}: ${JSON.stringify(shown)}`
  return refusal(`is not a valid pattern (RE2 syntax): ${description}${where}; escape literal characters with \\`)
}

/**
 * Limit of the estimated time to build the tables of a pattern's character classes. Each table is built once, also for a
 * repeated class.
 */
const TABLES_MICROSECONDS_MAX = 6000
const UNICODE_CLASS = 30
const FOLDED_UNICODE_CLASS = 200
const FOLDED_UNICODE_SET = 2000

/** An upper bound of the time for the tables of all classes. */
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
 * An upper bound of the instructions, estimated in one pass: atoms times the counts of their groups. It does not parse the
 * whole syntax: other elements count as atoms, which costs little.
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
