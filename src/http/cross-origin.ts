/**
 * What pages of other origins may do at operations that answer in their own form. It is a setting of whoever has these
 * operations and changes as the process runs, so it is asked for at each request that names an origin. Other operations
 * say it once and for all, by themselves (kit/operation.ts).
 *
 * An origin that is not allowed is refused before anything is done: that its browser would not show it the answer is no
 * reason to carry out a request. A page from this very address is none of another origin.
 */
import type { IncomingHttpHeaders } from 'node:http'
import { Refusal } from '../kit/errors.ts'
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

/** Headers that tell a page's browser it may have the answer; none for a caller that is no such page. Throws a Refusal. */
export function originHeaders(rule: CrossOrigin, { origin, host = '' }: IncomingHttpHeaders): HeaderList {
  if (origin === undefined || isSameOrigin(origin, host)) return []
  if (!rule.allowedOrigins.includes('*') && !rule.allowedOrigins.includes(origin)) {
    throw new Refusal('permission_denied', 'origin not allowed', { Vary: 'Origin' })
  }
  const credentials = rule.allowCredentials ? ['Access-Control-Allow-Credentials', 'true'] : []
  return ['Vary', 'Origin', 'Access-Control-Allow-Origin', origin, ...credentials]
}

/** What a browser is told that asks first. Throws a Refusal. */
export function preflightHeaders(rule: CrossOrigin, headers: IncomingHttpHeaders): HeaderList {
  const list = originHeaders(rule, headers)
  if (list.length === 0) return []
  const method = headers['access-control-request-method'] ?? ''
  if (!METHODS.includes(method)) throw new Refusal('method_not_allowed', '', { Allow: METHODS.join(', ') })
  list.push('Access-Control-Allow-Methods', METHODS.join(', '))
  list.push('Access-Control-Allow-Headers', rule.allowedHeaders.join(', '))
  list.push('Access-Control-Max-Age', String(MAX_AGE_SECONDS))
  return list
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
