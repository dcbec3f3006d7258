/** `.env` files: `NAME=value` lines, quoted where a value needs it, as shells and most loaders read them. */
import { Rejection } from '../engine.ts'

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/
const UNQUOTED = /^[\w.,:/@%+-]*$/
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t' }

/** Throws a Rejection (400) for a member that no line can hold. */
export function envText(data: Readonly<Record<string, unknown>>): string {
  return Object.entries(data)
    .map(([name, value]) => {
      if (!NAME.test(name)) throw new Rejection(400, 'a member of this secret has a name that no .env file can have')
      const text = typeof value === 'string' ? value : JSON.stringify(value)
      return `${name}=${UNQUOTED.test(text) ? text : quoted(text)}\n`
    })
    .join('')
}

/** In single quotes nothing has a meaning; in double quotes only a few characters have. */
function quoted(text: string): string {
  if (!/['\r\n]/.test(text)) return `'${text}'`
  return `"${text
    .replaceAll(/["\\$`]/g, String.raw`\$&`)
    .replaceAll('\n', String.raw`\n`)
    .replaceAll('\r', String.raw`\r`)}"`
}

/** Throws a Rejection (400) that names the line which is none. */
export function parseEnv(text: string): Record<string, string> {
  const entries = new Map<string, string>()
  for (const [at, line] of text.split(/\r?\n/).entries()) {
    const trimmed = line.trim()
    if (trimmed === '' || trimmed.startsWith('#')) continue
    const [, name, value] = /^(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$/.exec(trimmed) ?? []
    const read = value === undefined ? undefined : envValue(value)
    if (name === undefined || read === undefined) throw new Rejection(400, `line ${at + 1} is not NAME=value`)
    entries.set(name, read)
  }
  return Object.fromEntries(entries)
}

function envValue(given: string): string | undefined {
  const single = /^'([^']*)'\s*(?:#.*)?$/.exec(given)?.[1]
  if (single !== undefined) return single
  const double = /^"((?:[^"\\]|\\.)*)"\s*(?:#.*)?$/.exec(given)?.[1]
  if (double !== undefined) return double.replaceAll(/\\(.)/g, (_, each: string) => ESCAPES[each] ?? each)
  if (/^['"]/.test(given)) return undefined
  return given.replace(/\s+#.*$/, '')
}
