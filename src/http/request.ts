/**
 * From bytes to a `RawInput`: path parameters, query pairs, the headers that operations name, the body. Decoding is strict:
 * invalid percent-encoded UTF-8 is refused.
 *
 * Bodies that are being received share a memory budget: each may use `FREE_BYTES`, more is taken from `SHARED_BYTES_MAX`. Operations
 * that can tell a valid token (`Handler.takesLongBody`) give only its holders a share: others could exhaust it.
 */
import { isUtf8 } from 'node:buffer'
import type { IncomingMessage } from 'node:http'
import { Refusal } from '../platform/errors.ts'
import type { AnyEndpoint } from '../platform/operation.ts'
import type { RawInput } from '../platform/schema.ts'

const PATH_BYTES_MAX = 8192
/** Each parameter costs memory before the caller is authorized. */
const QUERY_PAIRS_MAX = 256

export interface RequestTarget {
  readonly path: string
  readonly query: readonly (readonly [string, string])[]
}

/** Why a request is refused independent of its target; undefined for a valid head. */
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
    return new Refusal('expectation_failed', 'only the expectation 100-continue is supported')
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
 * RFC 9112 §6.1: a body with an unknown coding cannot be read, and one with a framing that its
 * version does not have may end elsewhere for a proxy (request smuggling). Node accepts any list that ends with `chunked`.
 */
function codingFault(coding: string, isKnown: boolean): Refusal | undefined {
  if (!isKnown) return new Refusal('invalid_request', 'HTTP/1.0 has no Transfer-Encoding')
  if (/^chunked$/i.test(coding)) return undefined
  const names = coding.split(',').map((each) => each.trim())
  if (!names.every((name) => TOKEN.test(name))) {
    return new Refusal('invalid_request', 'Transfer-Encoding is not a list of names')
  }
  if (!/^chunked$/i.test(names.pop() ?? '') || names.some((name) => /^chunked$/i.test(name))) {
    return new Refusal('invalid_request', 'Transfer-Encoding must end with chunked, once')
  }
  return new Refusal('not_implemented', 'only Transfer-Encoding "chunked" is supported')
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/

function isHost(name: string): boolean {
  return name.length === 4 && name.toLowerCase() === 'host'
}

/** Prefix of the absolute form, which clients of a proxy send. Its authority is ignored. */
const ABSOLUTE = /^https?:\/\/[^/?#]*/i

/** Splits and decodes the request target. `onPath` receives the path even if the rest cannot be decoded. */
export function parseTarget(url: string, onPath?: (path: string) => void): RequestTarget {
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

/** Strict percent-decoding; `plus` also decodes `+` as a space, as in a query. */
function decode(text: string, plus: boolean): string {
  const spaced = plus ? text.replaceAll('+', ' ') : text
  if (!spaced.includes('%')) return spaced
  try {
    return decodeURIComponent(spaced)
  } catch {
    throw new Refusal('invalid_request', 'the request target is not valid percent-encoded UTF-8')
  }
}

/**
 * Everything that an operation's input is parsed from, with the body. `onBodyStart` is called before the body is read. `mayBeLong` is
 * called before more than `FREE_BYTES` of it are read; if it returns false, the rest of the body stays unread.
 */
export async function readRawInput(
  request: IncomingMessage,
  target: RequestTarget,
  match: { operation: AnyEndpoint; params: Readonly<Record<string, string>> },
  options: { bytesMax: number; onBodyStart: () => void; mayBeLong: () => boolean },
): Promise<RawInput> {
  const limit = Math.min(bodyLimit(match.operation), options.bytesMax)
  const refusal = () => tooLarge(limit, match.operation)
  if (declaredBytes(request) > limit) throw refusal()
  const { mayBeLong } = options
  const unread = () => ({ ...rawInput(request, target, match, undefined), isBodyLeft: true as const })
  if (declaredBytes(request) > FREE_BYTES && !mayBeLong()) return unread()
  options.onBodyStart()
  const bytes = await bodyBytes(request, { limit, refusal, mayBeLong })
  return bytes ? rawInput(request, target, match, textOf(request, bytes)) : unread()
}

/** Content-Length of the request, else 0. */
export function declaredBytes(request: IncomingMessage): number {
  return Number(request.headers['content-length'] ?? 0)
}

export function wantsBody(request: IncomingMessage, operation: AnyEndpoint): boolean {
  return bodyLimit(operation) > 0 && request.method !== 'GET' && request.method !== 'HEAD'
}

export function rawInput(
  request: IncomingMessage,
  target: RequestTarget,
  match: { operation: AnyEndpoint; params: Readonly<Record<string, string>> },
  body: string | undefined,
): RawInput {
  const params: Record<string, string> = {}
  for (const [name, value] of Object.entries(match.params)) params[name] = decode(value, false)
  return { params, query: target.query, headers: headersFor(request, match.operation), body }
}

/** Header fields of an operation's input, with Node's names of them. */
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
  /** Whether the caller may send more than `FREE_BYTES`. */
  readonly mayBeLong: () => boolean
}

const CROWDED = 'too many concurrent large request bodies, try again'

/** Undefined if the body stays unread. By events: iterating over a stream costs more than the rest of a small request. */
function bodyBytes(request: IncomingMessage, { limit, refusal, mayBeLong }: BodyLimits): Promise<Buffer | undefined> {
  const chunks: Buffer[] = []
  const share = new BodyMemory()
  const { socket } = request
  let size = 0
  return new Promise((resolve, reject) => {
    const finishWith = (finish: () => void) => {
      share.release()
      request.off('data', onData).off('end', onEnd).off('error', onLost).off('close', onLost)
      socket.off('close', onLost)
      finish()
    }
    const onData = (chunk: Buffer) => {
      const isLong = size <= FREE_BYTES && size + chunk.length > FREE_BYTES
      size += chunk.length
      const isLeft = isLong && size <= limit && !mayBeLong()
      const isRoom = size > limit || isLeft || share.grow(size)
      if (size <= limit && !isLeft && isRoom) {
        // A request that was answered before the end of its body gets no event when its connection closes.
        if (chunks.length === 1) socket.once('close', onLost)
        chunks.push(chunk)
        return
      }
      // The rest waits: the request must not be destroyed before the client has the response.
      finishWith(() => {
        if (isLeft) resolve(undefined)
        else reject(isRoom ? refusal() : new Refusal('unavailable', CROWDED))
      })
      request.pause()
    }
    const onEnd = () => finishWith(() => resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks)))
    const onLost = () => finishWith(() => reject(new Refusal('invalid_request', 'the request body ended early')))
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

/** Per body; nearly all bodies are shorter. */
export const FREE_BYTES = 1 << 20
/** Eight of the longest bodies that the secrets core accepts. */
const SHARED_BYTES_MAX = 256 << 20

let takenBytes = 0

/** The share of one body. */
class BodyMemory {
  #takenBytes = 0

  /** Reserves memory for a body of this size until `release`; false if the budget is exhausted. */
  grow(bytes: number): boolean {
    const more = bytes - FREE_BYTES - this.#takenBytes
    if (more <= 0) return true
    if (takenBytes + more > SHARED_BYTES_MAX) return false
    takenBytes += more
    this.#takenBytes += more
    return true
  }

  /** Idempotent. */
  release(): void {
    takenBytes -= this.#takenBytes
    this.#takenBytes = 0
  }
}
