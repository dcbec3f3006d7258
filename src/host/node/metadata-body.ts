/**
 * The body of a metadata update: `{"NodeID": "...", "Meta": {"key": "value", "gone": null}}`.
 *
 * Read as the field's clients expect: field names in any case, unknown fields ignored, the last of equal names wins,
 * whatever follows the first JSON value is ignored. A refusal tells what is wrong and where, never what was sent: a
 * body may be half of something secret.
 */
import { Refusal } from '../../platform/errors.ts'

export interface MetadataBody {
  readonly nodeId: string | undefined
  /** Undefined when it was missing or `null`. */
  readonly meta: ReadonlyMap<string, string | null> | undefined
}

/** Throws a Refusal (400). `text` is undefined when no body was sent at all. */
export function parseMetadataBody(text: string | undefined): MetadataBody {
  if (text === undefined) throw new Refusal('invalid_request', 'Request body is empty')
  const value = parseFirst(text)
  if (value === null) return { nodeId: undefined, meta: undefined }
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw new Refusal('invalid_request', `json: the body must be an object, not ${kindOf(value)}`)
  }
  let nodeId: string | undefined
  let meta: ReadonlyMap<string, string | null> | undefined
  for (const [name, field] of Object.entries(value)) {
    const folded = name.toLowerCase()
    if (folded === 'nodeid') nodeId = readNodeId(field)
    if (folded === 'meta') meta = readMeta(field)
  }
  return { nodeId, meta }
}

function readNodeId(value: unknown): string | undefined {
  if (value === null || value === '') return undefined
  if (typeof value !== 'string') {
    throw new Refusal('invalid_request', `json: NodeID must be a string, not ${kindOf(value)}`)
  }
  return value
}

function readMeta(value: unknown): ReadonlyMap<string, string | null> | undefined {
  if (value === null) return undefined
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw new Refusal('invalid_request', `json: Meta must be an object of strings and nulls, not ${kindOf(value)}`)
  }
  const meta = new Map<string, string | null>()
  for (const [key, item] of Object.entries(value)) {
    if (item !== null && typeof item !== 'string') {
      throw new Refusal('invalid_request', `json: a value in Meta must be a string or null, not ${kindOf(item)}`)
    }
    // A lone surrogate cannot be written as UTF-8; Go turns it into U+FFFD as well.
    meta.set(key.toWellFormed(), item === null ? null : item.toWellFormed())
  }
  return meta
}

function kindOf(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'array'
  return typeof value === 'boolean' ? 'bool' : typeof value
}

/** The first JSON value of `text`. */
function parseFirst(text: string): unknown {
  const start = /[^ \t\r\n]/.exec(text)?.index
  if (start === undefined) throw new Refusal('invalid_request', 'EOF')
  const end = endOfValue(text, start)
  if (end === undefined) throw new Refusal('invalid_request', 'unexpected EOF')
  if (end === 'too many') {
    throw new Refusal('invalid_request', `json: the body has more than ${NAMES_MAX} names: send some at a time`)
  }
  try {
    return JSON.parse(text.slice(start, end))
  } catch {
    // V8's message quotes the body.
    throw new Refusal('invalid_request', 'json: the body is not valid JSON')
  }
}

/**
 * All keys that a node may have, and a little. The parser takes ten times as long for names as for anything else, and nobody has
 * looked at the caller's token yet.
 */
const NAMES_MAX = 10_100

/** Where the value that begins at `start` ends, or undefined when the text ends first. Does not check the value. */
function endOfValue(text: string, start: number): number | 'too many' | undefined {
  let [depth, names] = [0, 0]
  for (let at = start; at < text.length; at++) {
    const sign = text.charAt(at)
    if (sign === '"') {
      const end = endOfString(text, at)
      if (end === undefined || depth === 0) return end
      at = end - 1
    } else if (sign === '{' || sign === '[') {
      depth++
    } else if (sign === ':' && ++names > NAMES_MAX) {
      return 'too many'
    } else if (sign === '}' || sign === ']') {
      if (--depth <= 0) return at + 1
    } else if (depth === 0) {
      const length = text.slice(at).search(/[\s"[\]{},:]/)
      return length < 0 ? text.length : at + Math.max(length, 1)
    }
  }
  return undefined
}

/** Where the string whose opening quote is at `start` ends, or undefined when the text ends first. */
function endOfString(text: string, start: number): number | undefined {
  for (let at = start + 1; at < text.length; at++) {
    const sign = text.charAt(at)
    if (sign === '"') return at + 1
    if (sign === '\\') at++
  }
  return undefined
}
