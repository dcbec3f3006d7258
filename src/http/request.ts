/**
 * From bytes to a `RawInput`: path parameters, query pairs, the few headers that operations name, the body. Everything
 * is decoded strictly: what is not valid percent-encoded UTF-8 is refused instead of being guessed at.
 */
import { isUtf8 } from 'node:buffer'
import type { IncomingMessage } from 'node:http'
import { Refusal } from '../platform/errors.ts'
import type { AnyEndpoint } from '../platform/operation.ts'
import type { RawInput } from '../platform/schema.ts'
import { BodyShare, FREE_BYTES } from './large-bodies.ts'

/** Longest request path; longer ones name nothing that exists. */
export const PATH_BYTES_MAX = 8192
/** More parameters than any client sends; each costs memory before anybody is authorised. */
const QUERY_PAIRS_MAX = 256

export interface Target {
  readonly path: string
  readonly query: readonly (readonly [string, string])[]
}

/** Why a request is refused whatever it asks for; undefined when it is not. */
export function headFault({
  headers,
  httpVersionMajor,
  httpVersionMinor,
  rawHeaders,
}: IncomingMessage): Refusal | undefined {
  const { expect } = headers
  // HTTP/1.0 does not know the header.
  if (
    expect !== undefined &&
    httpVersionMajor === 1 &&
    httpVersionMinor > 0 &&
    expect.toLowerCase() !== '100-continue'
  ) {
    return new Refusal('expectation_failed', 'the only expectation that is met is 100-continue')
  }
  const coding = headers['transfer-encoding']
  if (coding !== undefined) {
    const fault = codingFault(coding, httpVersionMajor === 1 && httpVersionMinor > 0)
    if (fault) return fault
  }
  let hosts = 0
  for (let at = 0; at < rawHeaders.length; at += 2) if (isHost(rawHeaders[at] ?? '')) hosts++
  return hosts > 1 ? new Refusal('invalid_request', 'the request has more than one Host header') : undefined
}

/**
 * RFC 9112 §6.1: a body that is coded in a way that is not known here cannot be read, and one that is framed in a way that its
 * version does not have may end elsewhere for whoever stands in front of us. Node takes whatever ends with `chunked`.
 */
function codingFault(coding: string, isKnown: boolean): Refusal | undefined {
  if (!isKnown) return new Refusal('invalid_request', 'HTTP/1.0 has no Transfer-Encoding')
  if (/^chunked$/i.test(coding)) return undefined
  const names = coding.split(',').map((each) => each.trim())
  if (!names.every((name) => TOKEN.test(name))) {
    return new Refusal('invalid_request', 'Transfer-Encoding is not a list of names')
  }
  if (!/^chunked$/i.test(names.pop() ?? '') || names.some((name) => /^chunked$/i.test(name))) {
    return new Refusal('invalid_request', 'Transfer-Encoding has to end with chunked, once')
  }
  return new Refusal('not_implemented', 'the only Transfer-Encoding that is read is chunked')
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/

function isHost(name: string): boolean {
  return name.length === 4 && name.toLowerCase() === 'host'
}

/** What precedes the path in the absolute form that a proxy's client sends. Its authority says nothing to us. */
const ABSOLUTE = /^https?:\/\/[^/?#]*/i

/** Splits and decodes the request target. `onPath` is told the path even when the rest cannot be decoded. */
export function parseTarget(url: string, onPath?: (path: string) => void): Target {
  const origin = url.startsWith('/') ? url : url.replace(ABSOLUTE, '') || '/'
  const mark = origin.indexOf('?')
  const path = mark < 0 ? origin : origin.slice(0, mark)
  onPath?.(path)
  if (path.length > PATH_BYTES_MAX) throw new Refusal('path_too_long', `path is longer than ${PATH_BYTES_MAX} bytes`)
  return { path, query: mark < 0 ? [] : parseQuery(origin.slice(mark + 1)) }
}

function parseQuery(text: string): (readonly [string, string])[] {
  const pairs: (readonly [string, string])[] = []
  for (const part of text.split('&')) {
    if (part === '') continue
    if (pairs.length >= QUERY_PAIRS_MAX) {
      throw new Refusal('invalid_request', `more than ${QUERY_PAIRS_MAX} query parameters`)
    }
    const mark = part.indexOf('=')
    const name = mark < 0 ? part : part.slice(0, mark)
    const value = mark < 0 ? '' : part.slice(mark + 1)
    pairs.push([decode(name, true), decode(value, true)])
  }
  return pairs
}

/** Strict percent-decoding; `plus` also turns `+` into a space, as in a query. */
export function decode(text: string, plus: boolean): string {
  const spaced = plus ? text.replaceAll('+', ' ') : text
  if (!spaced.includes('%')) return spaced
  try {
    return decodeURIComponent(spaced)
  } catch {
    throw new Refusal('invalid_request', 'the request target is not valid percent-encoded UTF-8')
  }
}

/**
 * Everything an operation's input may be parsed from, the body included. `begin` is told before the body is read. `takesLong` is
 * asked before more of it is read than anybody may send; where it says no, the rest of the body is left where it is.
 */
export async function readRawInput(
  request: IncomingMessage,
  target: Target,
  match: { operation: AnyEndpoint; params: Readonly<Record<string, string>> },
  options: { bytesMax: number; begin: () => void; takesLong: () => boolean },
): Promise<RawInput> {
  const limit = Math.min(bodyLimit(match.operation), options.bytesMax)
  const refusal = () => tooLarge(limit, match.operation)
  if (declaredBytes(request) > limit) throw refusal()
  const { takesLong } = options
  const left = () => ({ ...rawInput(request, target, match, undefined), isBodyLeft: true as const })
  if (declaredBytes(request) > FREE_BYTES && !takesLong()) return left()
  options.begin()
  const bytes = await bodyBytes(request, { limit, refusal, takesLong })
  return bytes ? rawInput(request, target, match, textOf(request, bytes)) : left()
}

/** Length of the body as the request announces it; 0 when it does not. */
export function declaredBytes(request: IncomingMessage): number {
  return Number(request.headers['content-length'] ?? 0)
}

export function wantsBody(request: IncomingMessage, operation: AnyEndpoint): boolean {
  return bodyLimit(operation) > 0 && request.method !== 'GET' && request.method !== 'HEAD'
}

export function rawInput(
  request: IncomingMessage,
  target: Target,
  match: { operation: AnyEndpoint; params: Readonly<Record<string, string>> },
  body: string | undefined,
): RawInput {
  const params: Record<string, string> = {}
  for (const [name, value] of Object.entries(match.params)) params[name] = decode(value, false)
  return { params, query: target.query, headers: headersFor(request, match.operation), body }
}

/** The headers that an operation's input names, and how Node calls them. */
const named = new WeakMap<AnyEndpoint['input'], readonly (readonly [string, string])[]>()

function namesOf(input: AnyEndpoint['input']): readonly (readonly [string, string])[] {
  let names = named.get(input)
  if (!names) {
    const fields = Object.entries(input.fields).filter(([, field]) => field.in === 'header')
    names = fields.map(([name]) => [name, name.replaceAll('_', '-').toLowerCase()] as const)
    named.set(input, names)
  }
  return names
}

function headersFor(request: IncomingMessage, operation: AnyEndpoint): Record<string, string> {
  const headers: Record<string, string> = {}
  for (const [name, sent] of namesOf(operation.input)) {
    const value = request.headers[sent]
    if (typeof value === 'string') headers[name] = value
  }
  return headers
}

function bodyLimit(operation: AnyEndpoint): number {
  return operation.bodyBytesMax ?? 0
}

export function tooLarge(limit: number, { bodyTooLarge }: AnyEndpoint): Refusal {
  return new Refusal('body_too_large', bodyTooLarge ?? `request body is larger than ${limit} bytes`)
}

function textOf(request: IncomingMessage, bytes: Buffer): string | undefined {
  if (bytes.length === 0 && request.headers['transfer-encoding'] === undefined) return undefined
  if (!isUtf8(bytes)) throw new Refusal('invalid_request', 'the request body is not valid UTF-8')
  return bytes.toString('utf8')
}

interface BodyLimits {
  readonly limit: number
  readonly refusal: () => Refusal
  /** Whether this caller may send more than `FREE_BYTES`. */
  readonly takesLong: () => boolean
}

const CROWDED = 'too many large request bodies are coming in at once, try again'

/** Undefined for one that was left. By events: iterating over a stream costs more than the rest of a small request. */
function bodyBytes(request: IncomingMessage, { limit, refusal, takesLong }: BodyLimits): Promise<Buffer | undefined> {
  const chunks: Buffer[] = []
  const share = new BodyShare()
  const { socket } = request
  let size = 0
  return new Promise((resolve, reject) => {
    const over = (finish: () => void) => {
      share.release()
      request.off('data', onData).off('end', onEnd).off('error', onLost).off('close', onLost)
      socket.off('close', onLost)
      finish()
    }
    const onData = (chunk: Buffer) => {
      const isLong = size <= FREE_BYTES && size + chunk.length > FREE_BYTES
      size += chunk.length
      const isLeft = isLong && size <= limit && !takesLong()
      const isRoom = size > limit || isLeft || share.grow(size)
      if (size <= limit && !isLeft && isRoom) {
        // A request that was answered before its body has ended hears nothing of its connection's end.
        if (chunks.length === 1) socket.once('close', onLost)
        chunks.push(chunk)
        return
      }
      // What still comes waits: the request must not be destroyed before its author is told why.
      over(() => {
        if (isLeft) resolve(undefined)
        else reject(isRoom ? refusal() : new Refusal('unavailable', CROWDED))
      })
      request.pause()
    }
    const onEnd = () => over(() => resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks)))
    const onLost = () => over(() => reject(new Refusal('invalid_request', 'the request body ended early')))
    if (request.destroyed) return onLost()
    request.on('data', onData).on('end', onEnd).on('error', onLost).on('close', onLost)
  })
}

/** The token of a request: `X-Vault-Token`, `X-Nomad-Token`, or `Authorization: Bearer`. Malformed means none. */
export function tokenOf(request: IncomingMessage): string | undefined {
  for (const name of ['x-vault-token', 'x-nomad-token']) {
    const value = request.headers[name]
    const token = typeof value === 'string' ? value.trim() : ''
    if (token !== '') return token
  }
  return /^bearer +(\S+)/i.exec(request.headers.authorization ?? '')?.[1]
}
