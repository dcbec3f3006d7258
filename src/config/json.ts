/**
 * JSON with positions, parsed to the same tree as HCL. `JSON.parse` loses positions and repeated keys, and its errors quote the text,
 * which may contain a secret.
 */
import {
  DEPTH_MAX,
  type HclEntry,
  type HclNode,
  numberNode,
  type ObjectNode,
  SourceText,
  type StringNode,
} from './tree.ts'

const BLANKS = /[ \t\r\n]+/y
// JSON forbids control characters inside a string.
// oxlint-disable-next-line no-control-regex
const PLAIN_TEXT = /[^"\\\u0000-\u001f]+/y
const NUMBER_RUN = /[\w.+-]+/y
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/
const ESCAPE = /\\(?:["\\/bfnrt]|u[\da-fA-F]{4})/y
const ESCAPES: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' }

/**
 * Parses a JSON object (RFC 8259). Keeps the order of keys and repeated keys.
 * @throws HclError at the first fault.
 */
export function parseJson(text: string): ObjectNode {
  const source = new SourceText(text)
  source.take(BLANKS)
  if (source.peek() !== '{') source.fail(`expected \`{\`, found ${source.found()}`)
  const root = parseObject(source, 1)
  source.take(BLANKS)
  if (!source.ended) source.fail(`expected nothing after the closing \`}\`, found ${source.found()}`)
  return root
}

function parseValue(source: SourceText, depth: number): HclNode {
  const at = source.at()
  const next = source.peek()
  if (next === '"') return parseString(source)
  if (next === '{') return parseObject(source, depth)
  if (next === '[') return parseList(source, depth)
  const word = source.take(NUMBER_RUN)
  if (word === 'null') return { kind: 'null', at }
  if (word === 'true' || word === 'false') return { kind: 'boolean', at, value: word === 'true' }
  if (NUMBER.test(word)) return numberNode(source, at, word)
  if (word !== '') source.fail('expected a value, found an unquoted word: put strings in double quotes', at)
  return source.fail(`expected a value, found ${source.found()}`)
}

function parseObject(source: SourceText, depth: number): ObjectNode {
  const at = source.at()
  const entries: HclEntry[] = []
  const closed = `\`}\` to close the object opened at ${at.line}:${at.column}`
  parseSequence(source, '}', depth, closed, () => {
    if (source.peek() !== '"') source.fail(`expected a key in double quotes, found ${source.found()}`)
    const key = parseString(source)
    source.take(BLANKS)
    if (source.peek() !== ':') source.fail(`expected \`:\` after a key, found ${source.found()}`)
    source.offset++
    source.take(BLANKS)
    entries.push({ key: key.value, keyAt: key.at, labels: [], value: parseValue(source, depth + 1) })
  })
  return { kind: 'object', at, entries }
}

function parseList(source: SourceText, depth: number): HclNode {
  const at = source.at()
  const items: HclNode[] = []
  const closed = `\`]\` to close the list opened at ${at.line}:${at.column}`
  parseSequence(source, ']', depth, closed, () => items.push(parseValue(source, depth + 1)))
  return { kind: 'list', at, items }
}

/** Parses from the opening to the closing bracket, calling `item` for each element. */
function parseSequence(source: SourceText, close: string, depth: number, closed: string, item: () => void): void {
  if (depth > DEPTH_MAX) source.fail(`lists and objects nest deeper than ${DEPTH_MAX}`)
  source.offset++
  source.take(BLANKS)
  if (source.peek() === close) {
    source.offset++
    return
  }
  for (;;) {
    item()
    source.take(BLANKS)
    const next = source.peek()
    if (next !== close && next !== ',') source.fail(`expected \`,\` or ${closed}, found ${source.found()}`)
    source.offset++
    if (next === close) return
    source.take(BLANKS)
  }
}

function parseString(source: SourceText): StringNode {
  const at = source.at()
  const parts: string[] = []
  source.offset++
  for (;;) {
    parts.push(source.take(PLAIN_TEXT))
    if (source.peek() === '"') break
    if (source.peek() !== '\\') source.fail(`expected \`"\` to end the string that begins at ${at.line}:${at.column}`)
    const escape = source.take(ESCAPE)
    if (escape === '') source.fail('unknown escape: expected one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uHHHH')
    const letter = escape.charAt(1)
    parts.push(letter === 'u' ? String.fromCharCode(Number.parseInt(escape.slice(2), 16)) : (ESCAPES[letter] ?? letter))
  }
  source.offset++
  const value = parts.join('')
  if (!value.isWellFormed()) source.fail('unpaired surrogate', at)
  return { kind: 'string', at, value }
}
