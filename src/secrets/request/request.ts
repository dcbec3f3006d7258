/**
 * What a request asks for, before anybody looks at who asks: the verb, the canonical path, how the answer is to be
 * wrapped, and the body as data. Everything that can be wrong with the form of a request is refused here.
 */
import { Rejection } from '../../engines/framework/engine.ts'
import { FieldError, isObject, type JsonObject, secondsOf, UNPRINTABLE } from '../../engines/framework/fields.ts'
import type { RawInput } from '../../platform/schema.ts'
import { parseBoolean } from '../../platform/schema.ts'
import { type Credentials, parseMfaHeader } from '../mfa/mfa-header.ts'
import { type JsonLimits, parseJson } from './json.ts'

/** What the verbs of HTTP mean. `write` becomes create or update once the path has been asked. */
export type Verb = 'read' | 'list' | 'scan' | 'write' | 'patch' | 'delete' | 'help'

export interface Wrapping {
  readonly ttlSeconds: number
  readonly jwt: boolean
}

export interface RequestHead {
  readonly verb: Verb
  /** Without a slash in front; that of a list ends with one. */
  readonly path: string
  readonly wrapping: Wrapping | undefined
  /** Codes of MFA methods. They are secrets. */
  readonly mfa: Credentials | undefined
}

export interface RequestBody {
  readonly data: JsonObject
  /** The JSON text of `data`, where a body brought it. */
  readonly text: string | undefined
}

const NOTHING: RequestBody = { data: Object.freeze({}), text: undefined }
const NAMESPACES_OF_ROOT = new Set(['', '/', 'root', 'root/', '/root', '/root/'])
/** Monitors read it in the namespace that they are configured with. */
const PATH_OF_ANY_NAMESPACE = 'sys/replication/dr/status'
/** Most values in a body. A body of the permitted length could hold sixteen million, at a hundred bytes of memory each. */
const VALUES_MAX = 1_000_000

/** Most names of members in a body: objects of many names take the parser ten times as long as lists do. */
const NAMES_MAX = 100_000
/** Most pairs in a form: what reads them takes time with the square of their number. */
const FORM_PAIRS_MAX = 1000

/** The head of a request. Throws a Rejection for one that cannot be meant. */
export function requestHead(method: Verb, raw: RawInput): RequestHead {
  const verb = verbOf(method, raw)
  const path = canonicalPath(raw.params['path'] ?? '', verb)
  const namespace = raw.headers['x_vault_namespace'] ?? ''
  if (!NAMESPACES_OF_ROOT.has(namespace) && !(verb === 'read' && path === PATH_OF_ANY_NAMESPACE)) {
    throw new Rejection(404, 'namespace not found')
  }
  return { verb, path, wrapping: wrappingOf(raw), mfa: parseMfaHeader(raw.headers['x_vault_mfa']) }
}

function verbOf(method: Verb, raw: RawInput): Verb {
  if (method !== 'read') return method
  let verb: Verb = 'read'
  for (const [name, value] of raw.query) {
    if (name !== 'list' && name !== 'scan' && name !== 'help') continue
    if (value === '' && name !== 'help') continue
    const asked = parseBoolean(value)
    if (asked === undefined) throw new Rejection(400)
    if (!asked) continue
    if (verb !== 'read' && verb !== name) throw new Rejection(400)
    verb = name
  }
  return verb
}

/** Throws a Rejection for a path that names nothing, or not clearly one thing. */
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

function wrappingOf({ headers }: RawInput): Wrapping | undefined {
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
 * The body as data; for verbs without one, the query's pairs. Throws a Rejection for what is no JSON object. A DELETE may
 * bring either where `isBodyOfDelete`.
 */
export function requestBody(
  verb: Verb,
  raw: RawInput,
  isBodyOfDelete = false,
  limits: JsonLimits = { valuesMax: VALUES_MAX, namesMax: NAMES_MAX },
): RequestBody {
  const hasBody = isBodyOfDelete && verb === 'delete' && (raw.body ?? '').trim() !== ''
  if (verb !== 'write' && verb !== 'patch' && !hasBody) return queryData(verb, raw)
  const text = raw.body ?? ''
  const type = (raw.headers['content_type'] ?? '').split(';')[0]?.trim().toLowerCase() ?? ''
  if (verb === 'patch') checkPatchType(type, raw.headers['content_type'])
  if (!/\S/.test(text)) return NOTHING
  if (verb === 'write' && type === 'application/x-www-form-urlencoded' && !/^\s*[{[]/.test(text)) return formData(text)
  const parsed = parseJson(text, limits)
  if (parsed === null) return NOTHING
  if (!isObject(parsed)) throw new Rejection(400, 'failed to decode JSON input: the body must be a JSON object')
  return { data: parsed, text }
}

function checkPatchType(type: string, given: string | undefined): void {
  if (type === 'application/merge-patch+json') return
  if (type === '') throw new Rejection(400, 'PATCH requires a Content-Type: application/merge-patch+json')
  throw new Rejection(415, `PATCH requires Content-Type of application/merge-patch+json, provided ${String(given)}`)
}

function queryData(verb: Verb, { query }: RawInput): RequestBody {
  if (query.length === 0) return NOTHING
  const pairs = query.filter(([name]) => name !== verb && name !== 'help')
  const isListing = verb === 'list' || verb === 'scan'
  // As many as the caller may have: to an engine that is a list without a limit of its own.
  const meant = isListing
    ? pairs.map(([name, value]) => [name, name === 'limit' && value === 'max' ? '0' : value] as const)
    : pairs
  return { data: collected(meant), text: undefined }
}

function formData(text: string): RequestBody {
  if (!hasAtMost(text, '&', FORM_PAIRS_MAX - 1)) {
    throw new Rejection(400, `the form in the request body has more than ${FORM_PAIRS_MAX} fields: send JSON`)
  }
  try {
    return { data: collected([...new URLSearchParams(text)]), text: undefined }
  } catch {
    throw new Rejection(400, 'the form in the request body cannot be read')
  }
}

function hasAtMost(text: string, sign: string, countMax: number): boolean {
  let count = 0
  for (let at = text.indexOf(sign); at >= 0; at = text.indexOf(sign, at + 1)) if (++count > countMax) return false
  return true
}

/** One value is a text, several are a list. A name such as `__proto__` is a name like any other. */
function collected(pairs: readonly (readonly [string, string])[]): JsonObject {
  const all = new Map<string, string | string[]>()
  for (const [name, value] of pairs) {
    const before = all.get(name)
    if (before === undefined) all.set(name, value)
    else if (typeof before === 'string') all.set(name, [before, value])
    else before.push(value)
  }
  return Object.fromEntries(all)
}
