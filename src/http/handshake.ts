/**
 * The request of a WebSocket opening handshake (RFC 6455 §4): its validation, and the token that a browser, which cannot set headers
 * here, sends as a subprotocol.
 */
import type { IncomingMessage } from 'node:http'
import { Refusal } from '../platform/errors.ts'
import type { AnyEndpoint } from '../platform/operation.ts'
import { isForeignPage } from './cross-origin.ts'
import { declaredBytes, tokenOf } from './request.ts'

/** Selected if the client offers it. */
export const SUBPROTOCOL = 'outpost'
/** Prefix of the subprotocol with the token in base64url. Never selected, so it is never sent back. */
const TOKEN_PREFIX = 'outpost.token.'
const VERSION = '13'

export function requestsWebSocket(request: IncomingMessage): boolean {
  return request.headers.upgrade?.toLowerCase() === 'websocket'
}

/** Why the handshake is refused; undefined for a valid one. `isOpen`: calls need no token. */
export function handshakeFault(request: IncomingMessage, operation: AnyEndpoint, isOpen: boolean): Refusal | undefined {
  const { headers } = request
  if (operation.output !== 'stream') return bad('this endpoint does not stream: send the request without Upgrade')
  if (request.method !== 'GET') return bad('a WebSocket handshake must be a GET request')
  if (request.httpVersion !== '1.1') return bad('a WebSocket requires HTTP/1.1')
  if (headers.host === undefined) return bad('the handshake has no Host header')
  if (!/(^|,)\s*upgrade\s*(,|$)/i.test(headers.connection ?? '')) {
    return bad('the handshake has no "Connection: Upgrade"; a proxy may have removed it')
  }
  if (headers['sec-websocket-version'] !== VERSION) {
    return new Refusal('upgrade_required', `only version ${VERSION} of the WebSocket protocol is supported`, {
      'Sec-WebSocket-Version': VERSION,
      Upgrade: 'websocket',
    })
  }
  if (!/^[+/0-9A-Za-z]{22}==$/.test(headers['sec-websocket-key'] ?? '')) {
    return bad('Sec-WebSocket-Key must be 16 bytes in base64')
  }
  if (declaredBytes(request) > 0 || headers['transfer-encoding'] !== undefined) {
    return bad('a WebSocket handshake must not have a body')
  }
  return protocolFault(headers['sec-websocket-protocol']) ?? originFault(request, operation, isOpen)
}

/** The token in the offered subprotocols. */
export function offeredToken(request: IncomingMessage): string | undefined {
  return tokenIn(offers(request.headers['sec-websocket-protocol'] ?? ''))
}

function offers(header: string): string[] {
  return header.split(',').map((name) => name.trim())
}

/** The text does not quote the offered subprotocols: one may be a token. */
function protocolFault(header: string | undefined): Refusal | undefined {
  if (header === undefined) return undefined
  const names = offers(header)
  if (!names.every((name) => /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name)) || new Set(names).size < names.length) {
    return bad('Sec-WebSocket-Protocol must be a list of different names')
  }
  if (!names.some((name) => name.startsWith(TOKEN_PREFIX))) return undefined
  // A browser closes a connection if none of its subprotocols was selected.
  if (!names.includes(SUBPROTOCOL))
    return bad(`offer the subprotocol ${SUBPROTOCOL} in addition to the one with the token`)
  return tokenIn(names) === undefined ? bad(`${TOKEN_PREFIX} must be followed by the token in base64url`) : undefined
}

function tokenIn(names: readonly string[]): string | undefined {
  const text = names.find((name) => name.startsWith(TOKEN_PREFIX))?.slice(TOKEN_PREFIX.length)
  if (text === undefined || !/^[\w-]+$/.test(text)) return undefined
  try {
    const token = new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(text, 'base64url')).trim()
    return token === '' ? undefined : token
  } catch {
    return undefined
  }
}

/**
 * A page of any origin may open a WebSocket to any host, without a CORS preflight. So
 * what CORS would prevent is refused here: everything that the page could read without its own token.
 */
function originFault(request: IncomingMessage, operation: AnyEndpoint, isOpen: boolean): Refusal | undefined {
  if (!isForeignPage(request.headers)) return undefined
  const hasToken = !isOpen && (tokenOf(request) ?? offeredToken(request)) !== undefined
  const { crossOrigin } = operation
  if (hasToken && crossOrigin !== 'configured' && crossOrigin?.includes('GET')) return undefined
  return new Refusal(
    'permission_denied',
    'this endpoint serves pages of other origins only with a token, or not at all',
  )
}

function bad(text: string): Refusal {
  return new Refusal('invalid_request', text)
}
