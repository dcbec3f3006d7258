/** Values as YAML that every reader takes: what could be mistaken for something else is quoted. */
import { isJsonObject } from './exact-json.ts'

/** What a reader would not take for text, or would take for one and not the next. */
const SPECIAL = /^(?:null|true|false|yes|no|on|off|y|n)$/i
const PLAIN = /^[A-Za-z_][\w./-]*$/

/** Ends with a newline. */
export function yamlOf(value: unknown): string {
  return `${lines(value).join('\n')}\n`
}

function lines(value: unknown): string[] {
  if (Array.isArray(value)) {
    if (value.length === 0) return ['[]']
    return value.flatMap((item) => lines(item).map((line, at) => (at === 0 ? `- ${line}` : `  ${line}`)))
  }
  if (!isJsonObject(value)) return [scalar(value)]
  const members = Object.entries(value).filter(([, member]) => member !== undefined)
  return members.length === 0 ? ['{}'] : members.flatMap(([key, member]) => memberLines(scalar(key), member))
}

function memberLines(key: string, value: unknown): string[] {
  const inner = lines(value)
  if (Array.isArray(value) && value.length > 0) return [`${key}:`, ...inner]
  if (isJsonObject(value) && inner[0] !== '{}') return [`${key}:`, ...inner.map((line) => `  ${line}`)]
  return [`${key}: ${inner[0]}`]
}

function scalar(value: unknown): string {
  if (typeof value !== 'string') return value === undefined ? 'null' : JSON.stringify(value)
  return PLAIN.test(value) && !SPECIAL.test(value) ? value : JSON.stringify(value)
}
