/** Parses JSON files. Errors contain line and column, and never the content, which is secret. */
import { CommandError } from '../../framework/define-command.ts'
import { parseExact } from '../../output/json.ts'

/** Numbers keep their text. Throws CommandError. */
export function parseJsonFile(text: string, file: string): unknown {
  try {
    return parseExact(text)
  } catch {
    throw new CommandError(`${sourceName(file)} is not valid JSON: ${positionText(faultIn(text), text)}`)
  }
}

export function sourceName(file: string): string {
  return file === '-' ? 'standard input' : file
}

function positionText(at: number, text: string): string {
  if (text.trim() === '') return 'it is empty'
  if (at >= text.length) return 'unexpected end'
  const before = text.slice(0, at).split('\n')
  return `error at line ${before.length}, column ${(before.at(-1) ?? '').length + 1}`
}

const SPACE = /[ \t\n\r]*/y
const SCALAR = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y
const [QUOTE, BACKSLASH, SPACE_CODE] = [34, 92, 32]

/** Index of the first unexpected token (RFC 8259); the length of the text without one. */
export function faultIn(text: string): number {
  const open: ('{' | '[')[] = []
  let expected: 'value' | 'value or ]' | 'key' | 'key or }' | 'colon' | 'comma' = 'value'
  for (let at = skip(SPACE, text, 0); at < text.length; ) {
    const character = text[at] ?? ''
    const inside = open.at(-1)
    const isClosing = character === (inside === '{' ? '}' : ']') && inside !== undefined
    const mayClose = expected === 'comma' || expected === (inside === '{' ? 'key or }' : 'value or ]')
    let end = at + 1
    if (isClosing && mayClose) {
      open.pop()
      expected = 'comma'
    } else if (expected === 'comma') {
      if (character !== ',' || inside === undefined) return at
      expected = inside === '{' ? 'key' : 'value'
    } else if (expected === 'colon') {
      if (character !== ':') return at
      expected = 'value'
    } else if ((character === '{' || character === '[') && expected.startsWith('value')) {
      open.push(character)
      expected = character === '{' ? 'key or }' : 'value or ]'
    } else {
      end = character === '"' ? skipString(text, at) : skip(SCALAR, text, at)
      const isKey = expected.startsWith('key')
      if (end === at || (isKey && character !== '"')) return at
      expected = isKey ? 'colon' : 'comma'
    }
    at = skip(SPACE, text, end)
  }
  return text.length
}

/** Without a regular expression, because a string may have many megabytes. */
function skipString(text: string, from: number): number {
  for (let at = from + 1; at < text.length; ) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) return at + 1
    if (code < SPACE_CODE) return from
    const end = code === BACKSLASH ? skip(ESCAPE, text, at) : at + 1
    if (end === at) return from
    at = end
  }
  return from
}

/** Index after the match of the pattern at `from`; `from` without a match. */
function skip(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from
  return pattern.test(text) ? pattern.lastIndex : from
}
