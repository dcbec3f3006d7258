/**
 * Access by pages of other origins (CORS). An endpoint declares it (platform/operation.ts) or leaves it to a setting, which can change
 * at run time, so it is read for each request with an Origin header.
 *
 * A request from a disallowed origin is refused before it is executed: that the browser would hide the response is not enough. A page
 * of this address is same-origin. Without any rule, pages of other origins may not make changes (`refuseForeignChange`).
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
 * CORS headers of a response. `rule`: the setting, if the endpoint leaves it to that.
 * `hasToken`: the caller has a token and needs one. Throws a Refusal if pages of other origins may not send the request.
 */
export function originHeadersFor(
  endpoint: AnyEndpoint,
  { headers, method = '' }: IncomingMessage,
  rule: CrossOrigin | undefined,
  hasToken: boolean,
): HeaderList {
  if (rule) return originHeaders(rule, headers)
  refuseForeignChange(endpoint, method, headers)
  if (endpoint.crossOrigin === 'configured') return NONE
  // Responses without a token may be restricted to this network, so pages of other origins must not read them.
  return headers.origin !== undefined && endpoint.crossOrigin && hasToken ? [...VARY, ...ANY_ORIGIN] : VARY
}

/** CORS preflight response. `isOffered`: whether the endpoint offers a verb. Throws a Refusal. */
export function preflightHeadersFor(
  headers: IncomingHttpHeaders,
  rule: CrossOrigin | undefined,
  isOffered: (verb: string) => boolean,
): HeaderList {
  if (rule) return preflightHeaders(rule, headers)
  const method = headers['access-control-request-method'] ?? ''
  if (!asksToSendToken(headers) || !isOffered(method)) return VARY_PREFLIGHT
  const headerNames = headers['access-control-request-headers']
  const allowed = headerNames === undefined ? [] : ['Access-Control-Allow-Headers', headerNames]
  return [...VARY_PREFLIGHT, ...ANY_ORIGIN, 'Access-Control-Allow-Methods', method, ...allowed]
}

/** CORS headers of the response; none for a request without foreign origin. Throws a Refusal. */
function originHeaders(rule: CrossOrigin, { origin, host = '' }: IncomingHttpHeaders): HeaderList {
  if (origin === undefined || isSameOrigin(origin, host)) return []
  if (!rule.allowedOrigins.includes('*') && !rule.allowedOrigins.includes(origin)) {
    throw new Refusal('permission_denied', 'origin not allowed', { Vary: 'Origin' })
  }
  const credentials = rule.allowCredentials ? ['Access-Control-Allow-Credentials', 'true'] : []
  return ['Vary', 'Origin', 'Access-Control-Allow-Origin', origin, ...credentials]
}

/** CORS preflight response by the setting. Throws a Refusal. */
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
 * Throws a Refusal if a page of another origin requests a change. Browsers send a preflight only before some requests, and
 * send the others in any case.
 */
function refuseForeignChange(operation: AnyEndpoint, verb: string, headers: IncomingHttpHeaders): void {
  if (SAFE_VERBS.has(verb) && !operation.changesOnGet) return
  if (!isForeignPage(headers)) return
  const why = 'web pages of other origins must not make changes'
  throw new Refusal('permission_denied', `${why}; a proxy must pass the Host header unchanged`)
}

/**
 * Whether a page of another origin sent the request, according to the browser. `Sec-Fetch-Site` is its own decision, and
 * correct even if a proxy has changed Host; `none` is a user action. Older browsers send Origin only.
 */
export function isForeignPage(headers: IncomingHttpHeaders): boolean {
  const { host = '', origin, 'sec-fetch-site': site } = headers
  if (site !== undefined) return site !== 'same-origin' && site !== 'none'
  return origin !== undefined && !isSameOrigin(origin, host)
}

/** Whether a preflight requests a token header. */
function asksToSendToken(headers: IncomingHttpHeaders): boolean {
  return TOKEN_HEADERS.test(headers['access-control-request-headers'] ?? '')
}

/** Whether `origin` has the host of the request. */
export function isSameOrigin(origin: string, host: string): boolean {
  try {
    const { protocol, host: from } = new URL(origin)
    return new URL(`${protocol}//${host}`).host === from
  } catch {
    return false // `null`, for a page that must not say where it comes from
  }
}
