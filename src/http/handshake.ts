/**
 * The opening handshake of a WebSocket (RFC 6455 §4) as far as the request goes: whether it is one, what is wrong with
 * it, and the token that a browser, which cannot set headers here, hides among the subprotocols it offers.
 */
import type { IncomingMessage } from 'node:http'
import { Refusal } from '../platform/errors.ts'
import type { AnyEndpoint } from '../platform/operation.ts'
import { isForeignPage } from './cross-origin.ts'
import { declaredBytes, tokenOf } from './request.ts'

/** The subprotocol that is chosen when it is offered. */
export const SUBPROTOCOL = 'outpost'
/** Offered beside it: this and the token in base64url. Never chosen, so it is never sent back. */
const TOKEN_PREFIX = 'outpost.token.'
const VERSION = '13'

export function asksForWebSocket(request: IncomingMessage): boolean {
  return request.headers.upgrade?.toLowerCase() === 'websocket'
}

/** Why this request for a WebSocket cannot be granted; undefined when it can. `isOpen`: calls need no token here. */
export function handshakeFault(request: IncomingMessage, operation: AnyEndpoint, isOpen: boolean): Refusal | undefined {
  const { headers } = request
  if (operation.output !== 'stream') return bad('this endpoint does not stream: ask without Upgrade')
  if (request.method !== 'GET') return bad('a WebSocket is asked for with GET')
  if (request.httpVersion !== '1.1') return bad('a WebSocket needs HTTP/1.1')
  if (headers.host === undefined) return bad('the handshake lacks Host')
  if (!/(^|,)\s*upgrade\s*(,|$)/i.test(headers.connection ?? '')) {
    return bad('the handshake lacks "Connection: Upgrade"; a proxy on the way may have removed it')
  }
  if (headers['sec-websocket-version'] !== VERSION) {
    return new Refusal('upgrade_required', `only version ${VERSION} of the WebSocket protocol is spoken here`, {
      'Sec-WebSocket-Version': VERSION,
      Upgrade: 'websocket',
    })
  }
  if (!/^[+/0-9A-Za-z]{22}==$/.test(headers['sec-websocket-key'] ?? '')) {
    return bad('Sec-WebSocket-Key must be 16 bytes in base64')
  }
  if (declaredBytes(request) > 0 || headers['transfer-encoding'] !== undefined) {
    return bad('the handshake of a WebSocket has no body')
  }
  return protocolFault(headers['sec-websocket-protocol']) ?? originFault(request, operation, isOpen)
}

/** The token among the offered subprotocols, if there is one. */
export function offeredToken(request: IncomingMessage): string | undefined {
  return tokenIn(offers(request.headers['sec-websocket-protocol'] ?? ''))
}

function offers(header: string): string[] {
  return header.split(',').map((name) => name.trim())
}

/** Nothing of what was offered is repeated in the text: it may be a token. */
function protocolFault(header: string | undefined): Refusal | undefined {
  if (header === undefined) return undefined
  const names = offers(header)
  if (!names.every((name) => /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/.test(name)) || new Set(names).size < names.length) {
    return bad('Sec-WebSocket-Protocol must be a list of different names')
  }
  if (!names.some((name) => name.startsWith(TOKEN_PREFIX))) return undefined
  // A browser gives up a connection for which none of what it offered was chosen.
  if (!names.includes(SUBPROTOCOL)) return bad(`offer the subprotocol ${SUBPROTOCOL} beside the one with the token`)
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
 * A page of any origin may open a WebSocket to any host; no browser asks first, as it does for other requests. So
 * what CORS would keep from it is refused here: all that it could have without a token of its own.
 */
function originFault(request: IncomingMessage, operation: AnyEndpoint, isOpen: boolean): Refusal | undefined {
  if (!isForeignPage(request.headers)) return undefined
  const hasToken = !isOpen && (tokenOf(request) ?? offeredToken(request)) !== undefined
  const { crossOrigin } = operation
  if (hasToken && crossOrigin !== 'configured' && crossOrigin?.includes('GET')) return undefined
  return new Refusal(
    'permission_denied',
    'this endpoint is not offered to pages of another origin, or only with a token',
  )
}

function bad(text: string): Refusal {
  return new Refusal('invalid_request', text)
}
