/**
 * What pages of other origins may do. An endpoint says it itself (platform/operation.ts), or leaves it to a setting, which changes
 * as the process runs, so that it is asked for at each request that names an origin.
 *
 * An origin that is not allowed is refused before anything is done: that its browser would not show it the answer is no
 * reason to carry out a request. A page from this very address is none of another origin. Where nothing is said of an
 * origin, its pages may change nothing (`refuseForeignChange`).
 */
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { Refusal } from '../platform/errors.ts'
import type { AnyEndpoint } from '../platform/operation.ts'
import type { HeaderList } from './respond.ts'

export interface CrossOrigin {
  /** `*` among them allows any. */
  readonly allowedOrigins: readonly string[]
  /** Request headers that a page may set. */
  readonly allowedHeaders: readonly string[]
  readonly allowCredentials: boolean
}

const METHODS = ['DELETE', 'GET', 'OPTIONS', 'POST', 'PUT', 'LIST', 'SCAN', 'PATCH']
const MAX_AGE_SECONDS = 300

const VARY = ['Vary', 'Accept-Encoding', 'Vary', 'Origin']
const VARY_PREFLIGHT = [
  'Vary',
  'Accept-Encoding',
  'Vary',
  'Origin, Access-Control-Request-Method, Access-Control-Request-Headers',
]
const ANY_ORIGIN = ['Access-Control-Allow-Origin', '*', 'Access-Control-Allow-Credentials', 'true']
const NONE: HeaderList = []

/**
 * What the answer to a request says to pages of other origins. `rule`: the setting, where the endpoint leaves it to that.
 * `hasToken`: the caller has a token and needs one. Throws a Refusal where such a page may not ask at all.
 */
export function originAnswer(
  endpoint: AnyEndpoint,
  { headers, method = '' }: IncomingMessage,
  rule: CrossOrigin | undefined,
  hasToken: boolean,
): HeaderList {
  if (rule) return originHeaders(rule, headers)
  refuseForeignChange(endpoint, method, headers)
  if (endpoint.crossOrigin === 'configured') return NONE
  // What is told without a token is not every page's that is open in a browser of this network.
  return headers.origin !== undefined && endpoint.crossOrigin && hasToken ? [...VARY, ...ANY_ORIGIN] : VARY
}

/** What a browser is told that asks first. `isOffered`: whether the endpoint offers a verb. Throws a Refusal. */
export function preflightAnswer(
  headers: IncomingHttpHeaders,
  rule: CrossOrigin | undefined,
  isOffered: (verb: string) => boolean,
): HeaderList {
  if (rule) return preflightHeaders(rule, headers)
  const asked = headers['access-control-request-method'] ?? ''
  if (!asksToSendToken(headers) || !isOffered(asked)) return VARY_PREFLIGHT
  const wanted = headers['access-control-request-headers']
  const allowed = wanted === undefined ? [] : ['Access-Control-Allow-Headers', wanted]
  return [...VARY_PREFLIGHT, ...ANY_ORIGIN, 'Access-Control-Allow-Methods', asked, ...allowed]
}

/** Headers that tell a page's browser it may have the answer; none for a caller that is no such page. Throws a Refusal. */
function originHeaders(rule: CrossOrigin, { origin, host = '' }: IncomingHttpHeaders): HeaderList {
  if (origin === undefined || isSameOrigin(origin, host)) return []
  if (!rule.allowedOrigins.includes('*') && !rule.allowedOrigins.includes(origin)) {
    throw new Refusal('permission_denied', 'origin not allowed', { Vary: 'Origin' })
  }
  const credentials = rule.allowCredentials ? ['Access-Control-Allow-Credentials', 'true'] : []
  return ['Vary', 'Origin', 'Access-Control-Allow-Origin', origin, ...credentials]
}

/** What a browser is told that asks first, by the setting. Throws a Refusal. */
function preflightHeaders(rule: CrossOrigin, headers: IncomingHttpHeaders): HeaderList {
  const list = originHeaders(rule, headers)
  if (list.length === 0) return []
  const method = headers['access-control-request-method'] ?? ''
  if (!METHODS.includes(method)) throw new Refusal('method_not_allowed', '', { Allow: METHODS.join(', ') })
  list.push('Access-Control-Allow-Methods', METHODS.join(', '))
  list.push('Access-Control-Allow-Headers', rule.allowedHeaders.join(', '))
  list.push('Access-Control-Max-Age', String(MAX_AGE_SECONDS))
  return list
}

const SAFE_VERBS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'LIST', 'SCAN'])
const TOKEN_HEADERS = /(?:^|,)\s*(?:x-vault-token|x-nomad-token|authorization)\s*(?:,|$)/i

/**
 * Throws a Refusal where a page of another origin asks for a change. A browser asks first only before some requests, and
 * sends the others whatever may be done with the answer.
 */
function refuseForeignChange(operation: AnyEndpoint, verb: string, headers: IncomingHttpHeaders): void {
  if (SAFE_VERBS.has(verb) && !operation.changesOnGet) return
  if (!isForeignPage(headers)) return
  const why = 'web pages of another origin may not change anything here'
  throw new Refusal('permission_denied', `${why}; a proxy on the way must pass on the Host header as it is`)
}

/**
 * True when a browser says that a page of another origin sent the request. `Sec-Fetch-Site` is its own verdict, and also
 * right where a proxy has changed Host; `none` is the user's own doing. Browsers that are older send Origin alone.
 */
export function isForeignPage(headers: IncomingHttpHeaders): boolean {
  const { host = '', origin, 'sec-fetch-site': site } = headers
  if (site !== undefined) return site !== 'same-origin' && site !== 'none'
  return origin !== undefined && !isSameOrigin(origin, host)
}

/** True when a page asks to send a token. */
function asksToSendToken(headers: IncomingHttpHeaders): boolean {
  return TOKEN_HEADERS.test(headers['access-control-request-headers'] ?? '')
}

/** True when a page of this origin was loaded from the host that the request names. */
export function isSameOrigin(origin: string, host: string): boolean {
  try {
    const { protocol, host: from } = new URL(origin)
    return new URL(`${protocol}//${host}`).host === from
  } catch {
    return false // `null`, for a page that must not say where it comes from
  }
}
