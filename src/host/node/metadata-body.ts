/**
 * The body of a metadata update: `{"NodeID": "...", "Meta": {"key": "value", "gone": null}}`.
 *
 * Parsed as Go's JSON decoder does for Nomad's clients: field names in any case, unknown fields ignored, the last of equal
 * names wins, text after the first JSON value ignored. A refusal names the field but quotes nothing of the body, which
 * may contain a secret.
 */
import { Refusal } from '../../platform/errors.ts'

export interface MetadataBody {
  readonly nodeId: string | undefined
  /** Undefined if missing or `null`. */
  readonly meta: ReadonlyMap<string, string | null> | undefined
}

/** Throws a Refusal (400). `text` is undefined for a request without a body. */
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
    // UTF-8 has no lone surrogates; Go replaces them by U+FFFD as well.
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
    throw new Refusal(
      'invalid_request',
      `json: the body has more than ${NAMES_MAX} names: split it into several requests`,
    )
  }
  try {
    return JSON.parse(text.slice(start, end))
  } catch {
    // V8's message quotes the body.
    throw new Refusal('invalid_request', 'json: the body is not valid JSON')
  }
}

/**
 * Above the maximum of keys of a node. Names take ten times as long to parse as other JSON, and the body is parsed before
 * the caller's token is checked.
 */
const NAMES_MAX = 10_100

/** The end of the value that begins at `start`; undefined if the text is incomplete. Does not validate the value. */
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

/** The end of the string whose opening quote is at `start`; undefined if the text is incomplete. */
function endOfString(text: string, start: number): number | undefined {
  for (let at = start + 1; at < text.length; at++) {
    const sign = text.charAt(at)
    if (sign === '"') return at + 1
    if (sign === '\\') at++
  }
  return undefined
}
