/** JSON that people have written: where it is wrong is told by line and column, and never by what stands there. */
import { CommandError } from '../../framework/command-shape.ts'
import { parseExact } from '../../output/exact-json.ts'

/** Numbers stay as they are written. Throws CommandError. */
export function jsonIn(text: string, file: string): unknown {
  try {
    return parseExact(text)
  } catch {
    throw new CommandError(`${sourceName(file)} holds no JSON: ${placeOf(faultIn(text), text)}`)
  }
}

export function sourceName(file: string): string {
  return file === '-' ? 'standard input' : file
}

function placeOf(at: number, text: string): string {
  if (text.trim() === '') return 'it is empty'
  if (at >= text.length) return 'it ends early'
  const before = text.slice(0, at).split('\n')
  return `line ${before.length}, column ${(before.at(-1) ?? '').length + 1} is wrong`
}

const SPACE = /[ \t\n\r]*/y
const SCALAR = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y
const [QUOTE, BACKSLASH, SPACE_CODE] = [34, 92, 32]

/** Index of the first token that cannot stand where it stands (RFC 8259); the length of the text where none is. */
export function faultIn(text: string): number {
  const open: ('{' | '[')[] = []
  let wanted: 'value' | 'value or ]' | 'key' | 'key or }' | 'colon' | 'comma' = 'value'
  for (let at = behind(SPACE, text, 0); at < text.length; ) {
    const sign = text[at] ?? ''
    const inside = open.at(-1)
    const isClosing = sign === (inside === '{' ? '}' : ']') && inside !== undefined
    const mayClose = wanted === 'comma' || wanted === (inside === '{' ? 'key or }' : 'value or ]')
    let end = at + 1
    if (isClosing && mayClose) {
      open.pop()
      wanted = 'comma'
    } else if (wanted === 'comma') {
      if (sign !== ',' || inside === undefined) return at
      wanted = inside === '{' ? 'key' : 'value'
    } else if (wanted === 'colon') {
      if (sign !== ':') return at
      wanted = 'value'
    } else if ((sign === '{' || sign === '[') && wanted.startsWith('value')) {
      open.push(sign)
      wanted = sign === '{' ? 'key or }' : 'value or ]'
    } else {
      end = sign === '"' ? behindString(text, at) : behind(SCALAR, text, at)
      const isKey = wanted.startsWith('key')
      if (end === at || (isKey && sign !== '"')) return at
      wanted = isKey ? 'colon' : 'comma'
    }
    at = behind(SPACE, text, end)
  }
  return text.length
}

/** Not by a pattern: a secret may be a text of many megabytes. */
function behindString(text: string, from: number): number {
  for (let at = from + 1; at < text.length; ) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) return at + 1
    if (code < SPACE_CODE) return from
    const end = code === BACKSLASH ? behind(ESCAPE, text, at) : at + 1
    if (end === at) return from
    at = end
  }
  return from
}

/** Index behind what the pattern takes at `from`; `from` where it takes nothing. */
function behind(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from
  return pattern.test(text) ? pattern.lastIndex : from
}
