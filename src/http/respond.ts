/**
 * Answers that are made whole before they are sent: JSON, nothing, errors.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { JsonText, type WholeAnswer } from '../platform/operation.ts'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { endSoon } from './deferred-close.ts'
import type { Target } from './request.ts'
import type { ErrorAnswer } from './errors.ts'

const gzipAsync = promisify(gzip)
/** Below this, compressing costs more than it saves: such an answer fits one packet anyway. */
const GZIP_FROM_BYTES = 1400
const PRETTY_INDENT = 4

/** JSON text of a result, `?pretty` honoured as the compatible system does: present and not exactly `0`. */
export function jsonText(value: unknown, target: Target | undefined): string {
  const pretty = target?.query.find(([name]) => name === 'pretty')
  if (pretty !== undefined && pretty[1] !== '0') {
    const parsed: unknown = value instanceof JsonText ? JSON.parse(value.text) : value
    return `${escapeSeparators(JSON.stringify(parsed, null, PRETTY_INDENT))}\n`
  }
  return escapeSeparators(value instanceof JsonText ? value.text : JSON.stringify(value))
}

/** U+2028 and U+2029 are legal in JSON and end a line in old JavaScript. */
function escapeSeparators(json: string): string {
  return json.replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029')
}

function acceptsGzip(request: IncomingMessage): boolean {
  const accepted = request.headers['accept-encoding']
  return typeof accepted === 'string' && /(^|,)\s*gzip\s*(;\s*q=(?!0(\.0*)?\s*(,|$))[^,]*)?(,|$)/i.test(accepted)
}

/**
 * Headers of one answer as Node writes them quickest: names and values in turn. A name may stand in it several times.
 */
export type HeaderList = string[]

/** Where an answer goes, and the headers that are settled before its kind is known. */
export interface Outlet {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly headers: HeaderList
}

/** Resolves with the number of body bytes on the wire. */
export async function sendJson(outlet: Outlet, produces: string, text: string): Promise<number> {
  const { request, response, headers } = outlet
  const wantsJson = (request.headers.accept ?? '').includes('application/json')
  headers.push('Content-Type', produces === 'text/plain' && !wantsJson ? TEXT : 'application/json')
  if (text.length < GZIP_FROM_BYTES || !acceptsGzip(request)) {
    // A string goes out in one write together with the head; bytes would take a second one.
    const length = Buffer.byteLength(text)
    headers.push('Content-Length', String(length))
    response.writeHead(200, headers)
    endSoon(response, text, length)
    return sentBytes(request, length)
  }
  const body = await gzipAsync(text)
  headers.push('Content-Encoding', 'gzip', 'Content-Length', String(body.length))
  if (response.headersSent) return 0 // it was cut meanwhile
  response.writeHead(200, headers)
  endSoon(response, body)
  return sentBytes(request, body.length)
}

function sentBytes(request: IncomingMessage, length: number): number {
  return request.method === 'HEAD' ? 0 : length
}

const TEXT = 'text/plain; charset=utf-8'

/** No body at all: 200 is what stock clients take for success where there is nothing to say. */
export function sendEmpty({ response, headers }: Outlet, status: 204 | undefined): void {
  if (status === undefined) headers.push('Content-Length', '0')
  response.writeHead(status ?? 200, headers)
  endSoon(response)
}

/** Headers of an answer as a list, and their names in lower case: most answers have the same ones. */
interface Listed {
  readonly list: readonly string[]
  readonly names: ReadonlySet<string>
}

const listed = new WeakMap<WholeAnswer['headers'], Listed>()

function listOf(headers: WholeAnswer['headers']): Listed {
  let found = listed.get(headers)
  if (!found) {
    const names = new Set(Object.keys(headers).map((name) => name.toLowerCase()))
    listed.set(headers, (found = { list: Object.entries(headers).flat(), names }))
  }
  return found
}

/** What the operation says of a header counts more than what is said of every answer. */
export function withOwn(headers: HeaderList, own: WholeAnswer['headers']): HeaderList {
  const { list: ownList, names } = listOf(own)
  const list: HeaderList = []
  for (let index = 0; index < headers.length; index += 2) {
    const [name = '', value = ''] = [headers[index], headers[index + 1]]
    if (!names.has(name.toLowerCase())) list.push(name, value)
  }
  list.push(...ownList)
  return list
}

/** As it is. Returns the number of body bytes. */
export function sendWhole({ request, response, headers }: Outlet, { status, headers: own, body }: WholeAnswer): number {
  const list = withOwn(headers, own)
  const length = typeof body === 'string' ? Buffer.byteLength(body) : (body?.length ?? 0)
  if (status !== 204) list.push('Content-Length', String(length))
  response.writeHead(status, list)
  endSoon(response, status === 204 ? undefined : body, length)
  return status === 204 ? 0 : sentBytes(request, length)
}

/** Returns the number of body bytes. */
export function sendError({ request, response, headers }: Outlet, answer: ErrorAnswer): number {
  for (const [name, value] of Object.entries(answer.headers)) headers.push(name, value)
  headers.push('Content-Type', answer.contentType, 'X-Content-Type-Options', 'nosniff')
  const length = Buffer.byteLength(answer.body)
  headers.push('Content-Length', String(length))
  response.writeHead(answer.status, headers)
  endSoon(response, answer.body, length)
  return sentBytes(request, length)
}
