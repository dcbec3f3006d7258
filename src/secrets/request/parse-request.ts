/**
 * Parses a request before its caller is authenticated: the verb, the canonical path, the response wrapping and the body. Malformed
 * requests are refused here.
 */
import { Rejection, unsupported } from '../../engines/framework/engine.ts'
import { FieldError, isObject, type JsonObject, secondsOf, UNPRINTABLE } from '../../engines/framework/fields.ts'
import type { RawInput } from '../../platform/schema.ts'
import { parseBoolean } from '../../platform/schema.ts'
import { type MfaCredentials, parseMfaHeader } from '../mfa/mfa-header.ts'
import { type JsonLimits, parseJson } from './json.ts'
import { UNSUPPORTED_NAMESPACES } from './unsupported-paths.ts'

/** The operation that an HTTP method means. `write` becomes create or update once the engine knows whether the path exists. */
export type Verb = 'read' | 'list' | 'scan' | 'write' | 'patch' | 'delete' | 'help'

export interface WrappingRequest {
  readonly ttlSeconds: number
  readonly jwt: boolean
}

export interface CoreRequestHead {
  readonly verb: Verb
  /** Without a leading slash. The path of a list ends with a slash. */
  readonly path: string
  readonly wrapping: WrappingRequest | undefined
  /** Codes of MFA methods. They are secrets. */
  readonly mfa: MfaCredentials | undefined
}

export interface RequestBody {
  readonly data: JsonObject
  /** The JSON text that `data` was parsed from. */
  readonly text: string | undefined
}

const EMPTY_BODY: RequestBody = { data: Object.freeze({}), text: undefined }
const NAMESPACES_OF_ROOT = new Set(['', '/', 'root', 'root/', '/root', '/root/'])
/** Monitoring tools read it in any namespace. */
const PATH_OF_ANY_NAMESPACE = 'sys/replication/dr/status'
/** A body of the maximum length could have 16 million values of about 100 bytes of memory each. */
const VALUES_MAX = 1_000_000
/** Objects with many names take the parser ten times as long as lists. */
const NAMES_MAX = 100_000
/** Reading a form takes time proportional to the square of the number of pairs. */
const FORM_PAIRS_MAX = 1000

/** Throws a Rejection for a malformed or ambiguous head. */
export function requestHead(method: Verb, raw: RawInput): CoreRequestHead {
  const verb = verbOf(method, raw)
  const path = canonicalPath(raw.params['path'] ?? '', verb)
  const namespace = raw.headers['x_vault_namespace'] ?? ''
  if (!NAMESPACES_OF_ROOT.has(namespace) && !(verb === 'read' && path === PATH_OF_ANY_NAMESPACE)) {
    throw unsupported(UNSUPPORTED_NAMESPACES, 404, ['namespace not found'])
  }
  return { verb, path, wrapping: wrappingOf(raw), mfa: parseMfaHeader(raw.headers['x_vault_mfa']) }
}

function verbOf(method: Verb, raw: RawInput): Verb {
  if (method !== 'read') return method
  let verb: Verb = 'read'
  for (const [name, value] of raw.query) {
    if (name !== 'list' && name !== 'scan' && name !== 'help') continue
    if (value === '' && name !== 'help') continue
    const isSet = parseBoolean(value)
    if (isSet === undefined) throw new Rejection(400)
    if (!isSet) continue
    if (verb !== 'read' && verb !== name) throw new Rejection(400)
    verb = name
  }
  return verb
}

/** Throws a Rejection for an ambiguous path. */
function canonicalPath(path: string, verb: Verb): string {
  if (!path.isWellFormed() || UNPRINTABLE.test(path)) throw new Rejection(400)
  let canonical = path.includes('//') ? path.replaceAll(/\/{2,}/g, '/') : path
  if (canonical.startsWith('/')) canonical = canonical.slice(1)
  if (canonical.includes('.') && /(?:^|\/)\.\.?(?:\/|$)/.test(canonical)) {
    throw new Rejection(400, 'relative paths not supported')
  }
  if (verb === 'list' || verb === 'scan') return canonical.endsWith('/') ? canonical : `${canonical}/`
  if (canonical.endsWith('/') && (verb === 'write' || verb === 'patch')) {
    throw new Rejection(400, "cannot write to a path ending in '/'")
  }
  return canonical
}

function wrappingOf({ headers }: RawInput): WrappingRequest | undefined {
  const ttl = headers['x_vault_wrap_ttl']
  if (ttl === undefined || ttl === '') return undefined
  try {
    if (ttl.startsWith('-')) throw new FieldError('requested wrap ttl cannot be negative')
    const ttlSeconds = secondsOf(ttl)
    return ttlSeconds === 0 ? undefined : { ttlSeconds, jwt: headers['x_vault_wrap_format'] === 'jwt' }
  } catch (error) {
    if (!(error instanceof FieldError)) throw error
    throw new Rejection(400, `error parsing X-Vault-Wrap-TTL header: ${error.message}`)
  }
}

/**
 * The data of the body, or of the query for verbs without a body. Throws a Rejection if the body is not a JSON object. With
 * `allowsDeleteBody` a DELETE may have either.
 */
export function requestBody(
  verb: Verb,
  raw: RawInput,
  allowsDeleteBody = false,
  limits: JsonLimits = { valuesMax: VALUES_MAX, namesMax: NAMES_MAX },
): RequestBody {
  const hasBody = allowsDeleteBody && verb === 'delete' && (raw.body ?? '').trim() !== ''
  if (verb !== 'write' && verb !== 'patch' && !hasBody) return queryData(verb, raw)
  const text = raw.body ?? ''
  const type = (raw.headers['content_type'] ?? '').split(';')[0]?.trim().toLowerCase() ?? ''
  if (verb === 'patch') checkPatchType(type, raw.headers['content_type'])
  if (!/\S/.test(text)) return EMPTY_BODY
  if (verb === 'write' && type === 'application/x-www-form-urlencoded' && !/^\s*[{[]/.test(text)) return formData(text)
  const parsed = parseJson(text, limits)
  if (parsed === null) return EMPTY_BODY
  if (!isObject(parsed)) throw new Rejection(400, 'failed to decode JSON input: the body must be a JSON object')
  return { data: parsed, text }
}

function checkPatchType(type: string, given: string | undefined): void {
  if (type === 'application/merge-patch+json') return
  if (type === '') throw new Rejection(400, 'PATCH requires a Content-Type: application/merge-patch+json')
  throw new Rejection(415, `PATCH requires Content-Type of application/merge-patch+json, provided ${String(given)}`)
}

function queryData(verb: Verb, { query }: RawInput): RequestBody {
  if (query.length === 0) return EMPTY_BODY
  const pairs = query.filter(([name]) => name !== verb && name !== 'help')
  const isListing = verb === 'list' || verb === 'scan'
  // `max` means the limit of the caller's policies: the engine receives no limit.
  const normalised = isListing
    ? pairs.map(([name, value]) => [name, name === 'limit' && value === 'max' ? '0' : value] as const)
    : pairs
  return { data: collectPairs(normalised), text: undefined }
}

function formData(text: string): RequestBody {
  if (!hasAtMost(text, '&', FORM_PAIRS_MAX - 1)) {
    throw new Rejection(400, `the form in the request body has more than ${FORM_PAIRS_MAX} fields: send JSON`)
  }
  try {
    return { data: collectPairs([...new URLSearchParams(text)]), text: undefined }
  } catch {
    throw new Rejection(400, 'malformed form in the request body')
  }
}

function hasAtMost(text: string, sign: string, countMax: number): boolean {
  let count = 0
  for (let at = text.indexOf(sign); at >= 0; at = text.indexOf(sign, at + 1)) if (++count > countMax) return false
  return true
}

/** One value becomes a string, several become a list. A name such as `__proto__` is not special. */
function collectPairs(pairs: readonly (readonly [string, string])[]): JsonObject {
  const all = new Map<string, string | string[]>()
  for (const [name, value] of pairs) {
    const before = all.get(name)
    if (before === undefined) all.set(name, value)
    else if (typeof before === 'string') all.set(name, [before, value])
    else before.push(value)
  }
  return Object.fromEntries(all)
}
