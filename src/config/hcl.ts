/**
 * HCL 1, the dialect of agent files and policies: identifiers, quoted keys, strings, heredocs, numbers, booleans, lists, objects and
 * labeled blocks. The parser is strict where leniency would hide a mistake (`0755`, `5m` without quotes and a missing comma in a list are
 * faults), but several entries may share a line. Interpolation is not supported: `${...}` stays in the string as written.
 *
 * The parser reads each character once, recurses at most `DEPTH_MAX` levels, throws only `HclError`, and stops at the first fault. The
 * meaning of the tree is checked by `fields.ts` and the policies.
 */
import { parseJson } from './json.ts'
import {
  DEPTH_MAX,
  type HclEntry,
  HclError,
  type HclLabel,
  type ListNode,
  type HclNode,
  numberNode,
  type ObjectNode,
  type TextPosition,
  SourceText,
  type StringNode,
} from './tree.ts'

export { HclError, parseJson }
export type { HclEntry, HclLabel, ListNode, HclNode, ObjectNode, TextPosition, StringNode } from './tree.ts'

const IDENTIFIER = /[\p{L}_][\p{L}\p{N}_.-]*/uy
/** Also matches malformed numbers, so that they are one token. */
const NUMBER_RUN = /-?[\p{L}\p{N}_.]+(?:(?<=[eE])[+-]\d+)?/uy
const NUMBER = /^-?(?:0[xX][\da-fA-F]+|(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)$/
/** Longer names are not quoted in messages. */
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
 * Parses HCL, or JSON when the text begins with `{`, which HCL never does.
 * @throws HclError at the first fault.
 */
export function parseText(text: string): ObjectNode {
  return /^\uFEFF?\s*\{/.test(text) ? parseJson(text) : parseHcl(text)
}

/**
 * Parses HCL.
 * @throws HclError at the first fault.
 */
export function parseHcl(text: string): ObjectNode {
  const source = new SourceText(text)
  const at = source.at()
  return { kind: 'object', at, entries: parseEntries(source, undefined, 0) }
}

/** One block of a labeled kind: `token "ops" { }`, or `token = { ops = { } }`, or the same in JSON. */
export interface LabelledNode {
  readonly label: string
  readonly at: TextPosition
  readonly value: HclNode
  /** Labels after the first. */
  readonly rest: readonly HclLabel[]
}

/** The labeled blocks of an entry in any notation; undefined for an entry without a label. */
export function labelledBlocks(entry: HclEntry): readonly LabelledNode[] | undefined {
  const [first, ...rest] = entry.labels
  if (first) return [{ label: first.text, at: first.at, value: entry.value, rest }]
  const found: LabelledNode[] = []
  for (const node of entry.value.kind === 'list' ? entry.value.items : [entry.value]) {
    if (node.kind !== 'object') return undefined
    for (const inner of node.entries) {
      const values = inner.value.kind === 'list' ? inner.value.items : [inner.value]
      for (const value of values) found.push({ label: inner.key, at: inner.keyAt, value, rest: inner.labels })
    }
  }
  return found
}

/** Entries up to the `}` of the object opened at `openedAt`, or to the end of the text without it. */
function parseEntries(source: SourceText, openedAt: TextPosition | undefined, depth: number): HclEntry[] {
  const entries: HclEntry[] = []
  for (;;) {
    skipBlanks(source)
    if (source.ended) {
      if (openedAt) source.fail(`expected \`}\` to close what was opened at ${openedAt.line}:${openedAt.column}`)
      return entries
    }
    if (source.peek() === '}') {
      if (!openedAt) source.fail('unexpected `}`')
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

function parseEntry(source: SourceText, depth: number): HclEntry {
  const keyAt = source.at()
  const keyStart = source.offset
  const key = parseName(source) ?? source.fail(`expected the name of a setting, found ${source.found()}`)
  const labels: HclLabel[] = []
  for (;;) {
    skipBlanks(source)
    const at = source.at()
    // A label is on the line of its key; a name on a later line is the next setting.
    const label = at.line === keyAt.line ? parseName(source) : undefined
    if (label === undefined) break
    labels.push({ text: label, at })
  }
  if (source.peek() === '{') return { key, keyAt, labels, value: parseObject(source, depth + 1) }
  // Quotes only a bare word: a string here may be a value whose `=` is missing.
  const name = source.text.startsWith('"', keyStart) || key.length > SHOWN_MAX ? 'this name' : JSON.stringify(key)
  if (labels.length > 0) source.fail(`expected \`{\` after the label of ${name}, found ${source.found()}`)
  if (source.peek() !== '=') source.fail(`expected \`=\` or \`{\` after ${name}, found ${source.found()}`)
  source.offset++
  skipBlanks(source)
  return { key, keyAt, labels, value: parseValue(source, depth + 1) }
}

function parseName(source: SourceText): string | undefined {
  if (source.peek() === '"') return parseString(source).value
  return source.take(IDENTIFIER) || undefined
}

function parseValue(source: SourceText, depth: number): HclNode {
  const at = source.at()
  const next = source.peek()
  if (next === '"') return parseString(source)
  if (next === '<') return parseHeredoc(source)
  if (next === '[') return parseList(source, depth)
  if (next === '{') return parseObject(source, depth)
  if (/[\d-]/.test(next)) {
    const text = source.take(NUMBER_RUN)
    if (!NUMBER.test(text)) source.fail('not a number: put strings and durations in double quotes', at)
    return numberNode(source, at, text)
  }
  const word = source.take(IDENTIFIER)
  if (word === 'true' || word === 'false') return { kind: 'boolean', at, value: word === 'true' }
  if (word !== '') source.fail('expected a value, found an unquoted word: put strings in double quotes', at)
  return source.fail(`expected a value (a string, number, true, false, list or object), found ${source.found()}`)
}

function checkDepth(source: SourceText, depth: number): void {
  if (depth > DEPTH_MAX) source.fail(`lists and objects nest deeper than ${DEPTH_MAX}`)
}

function parseObject(source: SourceText, depth: number): ObjectNode {
  checkDepth(source, depth)
  const at = source.at()
  source.offset++
  return { kind: 'object', at, entries: parseEntries(source, at, depth) }
}

function parseList(source: SourceText, depth: number): ListNode {
  checkDepth(source, depth)
  const at = source.at()
  const items: HclNode[] = []
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

function parseString(source: SourceText): StringNode {
  const at = source.at()
  const parts: string[] = []
  source.offset++
  for (;;) {
    parts.push(source.take(PLAIN_TEXT))
    const next = source.peek()
    if (next === '"') break
    if (next === '\\') parts.push(parseEscape(source))
    else if (next === '$') parts.push(source.peek(1) === '{' ? takeInterpolation(source) : takeOne(source))
    else if (next === '\0') source.fail('a string must not contain the character U+0000')
    else source.fail(`expected \`"\` to end the string that begins at ${at.line}:${at.column}`)
  }
  source.offset++
  return { kind: 'string', at, value: parts.join('') }
}

function takeOne(source: SourceText): string {
  return source.text.charAt(source.offset++)
}

/** `${...}` as it is written. Quotes inside do not end the string; braces nest. */
function takeInterpolation(source: SourceText): string {
  const at = source.at()
  const from = source.offset
  let open = 0
  for (source.offset += 1; !source.ended; source.offset++) {
    const next = source.peek()
    if (next === '{') open++
    else if (next === '}' && --open === 0) return source.text.slice(from, ++source.offset)
    else if (next === '\n') break
  }
  return source.fail('expected `}` to close this `${` (write \\u0024{ for the literal text)', at)
}

function parseEscape(source: SourceText): string {
  const at = source.at()
  const letter = source.peek(1)
  source.offset += 2
  const plain = Object.hasOwn(ESCAPES, letter) ? ESCAPES[letter] : undefined
  if (plain !== undefined) return plain
  const digits = { x: 2, u: 4, U: 8 }[letter]
  if (digits === undefined) source.fail('unknown escape: expected one of \\n \\t \\r \\" \\\\ \\xHH \\uHHHH', at)
  const code = takeHex(source, digits, at)
  if (code < 0xd800 || code > 0xdfff) {
    return code === 0 || code > 0x10ffff ? source.fail('not a Unicode character', at) : String.fromCodePoint(code)
  }
  // Characters above U+FFFF may be written as a pair of surrogates, as in JSON.
  if (code <= 0xdbff && source.peek() === '\\' && source.peek(1) === 'u') {
    source.offset += 2
    const low = takeHex(source, 4, at)
    if (low >= 0xdc00 && low <= 0xdfff) return String.fromCharCode(code, low)
  }
  return source.fail('unpaired surrogate', at)
}

function takeHex(source: SourceText, digits: number, at: TextPosition): number {
  const text = source.text.slice(source.offset, source.offset + digits)
  if (text.length < digits || !/^[\da-fA-F]+$/.test(text)) source.fail(`expected ${digits} hexadecimal digits`, at)
  source.offset += digits
  return Number.parseInt(text, 16)
}

/** `<<EOT` as written, `<<-EOT` without the common indentation of its lines. Every line ends with a newline. */
function parseHeredoc(source: SourceText): StringNode {
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
      // Stops before the newline, which separates the next entry.
      source.offset = end < 0 ? source.text.length : end
      const indent = match[1] === '-' ? sharedIndent(lines) : 0
      const value = lines.map((each) => `${each.slice(indent)}\n`).join('')
      return { kind: 'string', at, value, bodyAt: { line: at.line + 1, column: indent + 1 } }
    }
    lines.push(line)
    source.offset = end < 0 ? source.text.length : end + 1
  }
  return source.fail(`expected a line with only ${marker}, to end the heredoc that begins here`, at)
}

function sharedIndent(lines: readonly string[]): number {
  let shared = Number.POSITIVE_INFINITY
  for (const line of lines) {
    const indent = line.search(/[^ \t]/)
    if (indent >= 0) shared = Math.min(shared, indent)
  }
  return Number.isFinite(shared) ? shared : 0
}

/** Skips whitespace and comments; true if there were any. */
function skipBlanks(source: SourceText): boolean {
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
