/** `.env` files: lines `NAME=value`, with quoting that shells and most loaders understand. */
import { Rejection } from '../../framework/engine.ts'

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/
const UNQUOTED = /^[\w.,:/@%+-]*$/
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t' }

/** Throws a Rejection (400) for a member name that is not valid in a `.env` file. */
export function envText(data: Readonly<Record<string, unknown>>): string {
  return Object.entries(data)
    .map(([name, value]) => {
      if (!NAME.test(name))
        throw new Rejection(400, 'a member of this secret has a name that is not valid in a .env file')
      const text = typeof value === 'string' ? value : JSON.stringify(value)
      return `${name}=${UNQUOTED.test(text) ? text : quoted(text)}\n`
    })
    .join('')
}

/** Single quotes need no escapes, but cannot contain a quote or a newline. */
function quoted(text: string): string {
  if (!/['\r\n]/.test(text)) return `'${text}'`
  return `"${text
    .replaceAll(/["\\$`]/g, String.raw`\$&`)
    .replaceAll('\n', String.raw`\n`)
    .replaceAll('\r', String.raw`\r`)}"`
}

/** Throws a Rejection (400) with the number of an invalid line. */
export function parseEnv(text: string): Record<string, string> {
  const entries = new Map<string, string>()
  for (const [at, line] of text.split(/\r?\n/).entries()) {
    const trimmed = line.trim()
    if (trimmed === '' || trimmed.startsWith('#')) continue
    const sign = trimmed.indexOf('=')
    const [, name] =
      /^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)$/.exec(trimmed.slice(0, Math.max(0, sign)).trimEnd()) ?? []
    const read = envValue(trimmed.slice(sign + 1))
    if (name === undefined || read === undefined) throw new Rejection(400, `line ${at + 1} is not NAME=value`)
    entries.set(name, read)
  }
  return Object.fromEntries(entries)
}

/** Undefined for an invalid value. Runs in linear time, as a line may have a megabyte. */
function envValue(given: string): string | undefined {
  const value = given.trimStart()
  if (value.startsWith('"')) return doubleQuoted(value)
  if (!value.startsWith("'")) return withoutComment(given)
  const end = value.indexOf("'", 1)
  return end > 0 && isComment(value.slice(end + 1)) ? value.slice(1, end) : undefined
}

function doubleQuoted(value: string): string | undefined {
  const parts: string[] = []
  const mark = /["\\]/g
  for (let from = 1; ; from = mark.lastIndex) {
    mark.lastIndex = from
    const at = mark.exec(value)?.index
    if (at === undefined) return undefined
    parts.push(value.slice(from, at))
    if (value[at] === '"') return isComment(value.slice(at + 1)) ? parts.join('') : undefined
    const each = value[at + 1]
    if (each === undefined) return undefined
    parts.push(ESCAPES[each] ?? each)
    mark.lastIndex = at + 2
  }
}

/** Whether the text after a closing quote is empty or a comment. */
function isComment(rest: string): boolean {
  const text = rest.trimStart()
  return text === '' || text.startsWith('#')
}

/** A comment begins after white space: `a#b` is a value. */
function withoutComment(given: string): string {
  for (let at = given.indexOf('#'); at >= 0; at = given.indexOf('#', at + 1)) {
    if (/\s/.test(given.charAt(at - 1))) return given.slice(0, at).trim()
  }
  return given.trim()
}
