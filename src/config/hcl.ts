/**
 * HCL, the older dialect (1) that agent files and policies are written in, as far as those need it: identifiers,
 * quoted keys, strings, heredocs, numbers, booleans, lists, objects and labelled blocks. Strict where leniency would hide a
 * slip (`0755`, `5m` without quotes, a missing comma in a list are refused), but entries may share a line with only
 * spaces between them. Interpolation has no meaning here: `${...}` stays in the string as it is written.
 *
 * The parser reads each character once, recurses at most `DEPTH_MAX` deep, throws nothing but `HclError`, and stops at
 * the first fault: what follows one is guesswork. Checking what the tree means is left to others (`fields.ts`, policies).
 */
import { parseJson } from './json.ts'
import {
  DEPTH_MAX,
  type Entry,
  HclError,
  type Label,
  type ListNode,
  type Node,
  numberNode,
  type ObjectNode,
  type Position,
  Source,
  type StringNode,
} from './tree.ts'

export { HclError, parseJson }
export type { Entry, Label, ListNode, Node, ObjectNode, Position, StringNode } from './tree.ts'

const IDENTIFIER = /[\p{L}_][\p{L}\p{N}_.-]*/uy
/** Everything that could be meant as one number, so that a wrong one is shown as a whole. */
const NUMBER_RUN = /-?[\p{L}\p{N}_.]+(?:(?<=[eE])[+-]\d+)?/uy
const NUMBER = /^-?(?:0[xX][\da-fA-F]+|(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/
/** Characters of a name that a message shows. */
const SHOWN_MAX = 64
const PLAIN_TEXT = /[^"\\$\n\r\0]+/y
const HEREDOC_OPENING = /<<(-?)([\p{L}_][\p{L}\p{N}_]*)[ \t]*\r?\n/uy
const BLANKS = /[ \t\r\n]+/y
const LINE_COMMENT = /(?:#|\/\/)[^\n]*/y
const ESCAPES: Readonly<Record<string, string>> = {
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
  '"': '"',
  '\\': '\\',
}

/**
 * Reads HCL, or JSON when the text begins with `{` (which no HCL does).
 * @throws HclError at the first fault.
 */
export function parseText(text: string): ObjectNode {
  return /^\uFEFF?\s*\{/.test(text) ? parseJson(text) : parseHcl(text)
}

/**
 * Reads HCL.
 * @throws HclError at the first fault.
 */
export function parseHcl(text: string): ObjectNode {
  const source = new Source(text)
  const at = source.at()
  return { kind: 'object', at, entries: parseEntries(source, undefined, 0) }
}

/** One block of a labelled kind: `token "ops" { }`, or `token = { ops = { } }`, or the same in JSON. */
export interface Labelled {
  readonly label: string
  readonly at: Position
  readonly value: Node
  /** Labels after the first. */
  readonly rest: readonly Label[]
}

/** The blocks that an entry of a labelled kind holds, whichever way they are written; undefined when it has no label. */
export function labelledBlocks(entry: Entry): readonly Labelled[] | undefined {
  const [first, ...rest] = entry.labels
  if (first) return [{ label: first.text, at: first.at, value: entry.value, rest }]
  const found: Labelled[] = []
  for (const node of entry.value.kind === 'list' ? entry.value.items : [entry.value]) {
    if (node.kind !== 'object') return undefined
    for (const inner of node.entries) {
      const values = inner.value.kind === 'list' ? inner.value.items : [inner.value]
      for (const value of values) found.push({ label: inner.key, at: inner.keyAt, value, rest: inner.labels })
    }
  }
  return found
}

/** Entries up to the `}` of the object opened at `openedAt`, or up to the end of the text when there is none. */
function parseEntries(source: Source, openedAt: Position | undefined, depth: number): Entry[] {
  const entries: Entry[] = []
  for (;;) {
    skipBlanks(source)
    if (source.ended) {
      if (openedAt) source.fail(`expected \`}\` to close what was opened at ${openedAt.line}:${openedAt.column}`)
      return entries
    }
    if (source.peek() === '}') {
      if (!openedAt) source.fail('this `}` closes nothing')
      source.offset++
      return entries
    }
    entries.push(parseEntry(source, depth))
    const separated = skipBlanks(source)
    if (source.peek() === ',') source.offset++
    else if (!separated && !source.ended && source.peek() !== '}') {
      source.fail(`expected a space, a comma or a new line before the next setting, found ${source.found()}`)
    }
  }
}

function parseEntry(source: Source, depth: number): Entry {
  const keyAt = source.at()
  const keyStart = source.offset
  const key = parseName(source) ?? source.fail(`expected the name of a setting, found ${source.found()}`)
  const labels: Label[] = []
  for (;;) {
    skipBlanks(source)
    const at = source.at()
    // A label stands on its key's line: what stands on a later one is the next setting.
    const label = at.line === keyAt.line ? parseName(source) : undefined
    if (label === undefined) break
    labels.push({ text: label, at })
  }
  if (source.peek() === '{') return { key, keyAt, labels, value: parseObject(source, depth + 1) }
  // Only a bare word is shown: a string in this place may be a value that lost its `=`.
  const name = source.text.startsWith('"', keyStart) || key.length > SHOWN_MAX ? 'this name' : JSON.stringify(key)
  if (labels.length > 0) source.fail(`expected \`{\` after the label of ${name}, found ${source.found()}`)
  if (source.peek() !== '=') source.fail(`expected \`=\` or \`{\` after ${name}, found ${source.found()}`)
  source.offset++
  skipBlanks(source)
  return { key, keyAt, labels, value: parseValue(source, depth + 1) }
}

function parseName(source: Source): string | undefined {
  if (source.peek() === '"') return parseString(source).value
  return source.take(IDENTIFIER) || undefined
}

function parseValue(source: Source, depth: number): Node {
  const at = source.at()
  const next = source.peek()
  if (next === '"') return parseString(source)
  if (next === '<') return parseHeredoc(source)
  if (next === '[') return parseList(source, depth)
  if (next === '{') return parseObject(source, depth)
  if (/[\d-]/.test(next)) {
    const text = source.take(NUMBER_RUN)
    if (!NUMBER.test(text)) source.fail('this is not a number: put text and durations in double quotes', at)
    return numberNode(source, at, text)
  }
  const word = source.take(IDENTIFIER)
  if (word === 'true' || word === 'false') return { kind: 'boolean', at, value: word === 'true' }
  if (word !== '') source.fail('expected a value, found an unquoted word: put text in double quotes', at)
  return source.fail(`expected a value (a string, number, true, false, list or object), found ${source.found()}`)
}

function checkDepth(source: Source, depth: number): void {
  if (depth > DEPTH_MAX) source.fail(`lists and objects nest deeper than ${DEPTH_MAX}`)
}

function parseObject(source: Source, depth: number): ObjectNode {
  checkDepth(source, depth)
  const at = source.at()
  source.offset++
  return { kind: 'object', at, entries: parseEntries(source, at, depth) }
}

function parseList(source: Source, depth: number): ListNode {
  checkDepth(source, depth)
  const at = source.at()
  const items: Node[] = []
  source.offset++
  for (;;) {
    skipBlanks(source)
    if (source.peek() === ']') break
    if (source.ended) source.fail(`expected \`]\` to close the list opened at ${at.line}:${at.column}`)
    items.push(parseValue(source, depth + 1))
    skipBlanks(source)
    if (source.peek() === ',') source.offset++
    else if (source.peek() !== ']') source.fail(`expected \`,\` or \`]\` in a list, found ${source.found()}`)
  }
  source.offset++
  return { kind: 'list', at, items }
}

function parseString(source: Source): StringNode {
  const at = source.at()
  const parts: string[] = []
  source.offset++
  for (;;) {
    parts.push(source.take(PLAIN_TEXT))
    const next = source.peek()
    if (next === '"') break
    if (next === '\\') parts.push(parseEscape(source))
    else if (next === '$') parts.push(source.peek(1) === '{' ? takeInterpolation(source) : takeOne(source))
    else if (next === '\0') source.fail('a string must not hold the character U+0000')
    else source.fail(`expected \`"\` to end the string that begins at ${at.line}:${at.column}`)
  }
  source.offset++
  return { kind: 'string', at, value: parts.join('') }
}

function takeOne(source: Source): string {
  return source.text.charAt(source.offset++)
}

/** `${...}` as it is written. Quotes inside do not end the string; braces nest. */
function takeInterpolation(source: Source): string {
  const at = source.at()
  const from = source.offset
  let open = 0
  for (source.offset += 1; !source.ended; source.offset++) {
    const next = source.peek()
    if (next === '{') open++
    else if (next === '}' && --open === 0) return source.text.slice(from, ++source.offset)
    else if (next === '\n') break
  }
  return source.fail('expected `}` to close this `${` (write \\u0024{ where it is plain text)', at)
}

function parseEscape(source: Source): string {
  const at = source.at()
  const letter = source.peek(1)
  source.offset += 2
  const plain = Object.hasOwn(ESCAPES, letter) ? ESCAPES[letter] : undefined
  if (plain !== undefined) return plain
  const digits = { x: 2, u: 4, U: 8 }[letter]
  if (digits === undefined) source.fail('unknown escape: expected one of \\n \\t \\r \\" \\\\ \\xHH \\uHHHH', at)
  const code = takeHex(source, digits, at)
  if (code < 0xd800 || code > 0xdfff) {
    return code === 0 || code > 0x10ffff ? source.fail('no such character', at) : String.fromCodePoint(code)
  }
  // Characters beyond U+FFFF may be written as a pair of surrogates, as JSON writes them; half a pair is nothing.
  if (code <= 0xdbff && source.peek() === '\\' && source.peek(1) === 'u') {
    source.offset += 2
    const low = takeHex(source, 4, at)
    if (low >= 0xdc00 && low <= 0xdfff) return String.fromCharCode(code, low)
  }
  return source.fail('half of a surrogate pair is not a character', at)
}

function takeHex(source: Source, digits: number, at: Position): number {
  const text = source.text.slice(source.offset, source.offset + digits)
  if (text.length < digits || !/^[\da-fA-F]+$/.test(text)) source.fail(`expected ${digits} hexadecimal digits`, at)
  source.offset += digits
  return Number.parseInt(text, 16)
}

/** `<<EOT` as written, `<<-EOT` without the indentation that all its lines share. Every line ends in a newline. */
function parseHeredoc(source: Source): StringNode {
  const at = source.at()
  const opening = source.take(HEREDOC_OPENING)
  const match = new RegExp(HEREDOC_OPENING.source, 'u').exec(opening)
  if (!match) source.fail('expected `<<NAME` or `<<-NAME` at the end of the line', at)
  const marker = match[2] ?? ''
  const lines: string[] = []
  while (!source.ended) {
    const end = source.text.indexOf('\n', source.offset)
    const line = source.text.slice(source.offset, end < 0 ? undefined : end).replace(/\r$/, '')
    if (line.trim() === marker) {
      // Stops before the newline, so that what follows the heredoc is separated from it.
      source.offset = end < 0 ? source.text.length : end
      const indent = match[1] === '-' ? sharedIndent(lines) : 0
      const value = lines.map((each) => `${each.slice(indent)}\n`).join('')
      return { kind: 'string', at, value, bodyAt: { line: at.line + 1, column: indent + 1 } }
    }
    lines.push(line)
    source.offset = end < 0 ? source.text.length : end + 1
  }
  return source.fail(`expected a line with only ${marker}, to end the text that begins here`, at)
}

function sharedIndent(lines: readonly string[]): number {
  let shared = Number.POSITIVE_INFINITY
  for (const line of lines) {
    const indent = line.search(/[^ \t]/)
    if (indent >= 0) shared = Math.min(shared, indent)
  }
  return Number.isFinite(shared) ? shared : 0
}

/** Skips spaces, new lines and comments; true when there were any. */
function skipBlanks(source: Source): boolean {
  const from = source.offset
  for (;;) {
    const before = source.offset
    source.take(BLANKS)
    source.take(LINE_COMMENT)
    if (source.peek() === '/' && source.peek(1) === '*') {
      const end = source.text.indexOf('*/', source.offset + 2)
      if (end < 0) source.fail('expected `*/` to end the comment that begins here')
      source.offset = end + 2
    }
    if (source.offset === before) return source.offset > from
  }
}
