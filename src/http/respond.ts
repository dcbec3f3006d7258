/**
 * Complete responses: JSON, empty, errors. `errorResponse` is the only mapping from an error to a response: a Refusal has its status
 * and text; anything else is a fault with status 500, "internal error" and the request ID, and the details are in the log only.
 *
 * Complete responses are sent in a batch at the end of the event-loop iteration. Each write to a socket wakes the client at the other
 * end if it sleeps. With work for the next response in between, clients fall asleep again each time, and waking one costs as much as
 * the rest of a small request (more on a virtual machine). In a batch the first write wakes it and the others find it
 * awake (bench/secrets.ts: a quarter to a third less CPU for a small response).
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import { Refusal } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'
import { JsonText, type WholeAnswer } from '../platform/operation.ts'
import type { RequestTarget } from './request.ts'

const gzipAsync = promisify(gzip)
/** A smaller response fits into one packet. */
const GZIP_FROM_BYTES = 1400
const PRETTY_INDENT = 4

/** JSON text of a result; `?pretty` as in the compatible system: present and not exactly `0`. */
export function jsonText(value: unknown, target: RequestTarget | undefined): string {
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
 * Headers as alternating names and values, the fastest form for Node. A name may occur several times.
 */
export type HeaderList = string[]

export interface ResponseOutlet {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly headers: HeaderList
}

/** Resolves to the number of body bytes on the wire. */
export async function sendJson(outlet: ResponseOutlet, produces: string, text: string): Promise<number> {
  const { request, response, headers } = outlet
  const wantsJson = (request.headers.accept ?? '').includes('application/json')
  headers.push('Content-Type', produces === 'text/plain' && !wantsJson ? TEXT : 'application/json')
  if (text.length < GZIP_FROM_BYTES || !acceptsGzip(request)) {
    // A string is written together with the head; bytes would take a second write.
    const length = Buffer.byteLength(text)
    headers.push('Content-Length', String(length))
    response.writeHead(200, headers)
    endBatched(response, text, length)
    return sentBytes(request, length)
  }
  const body = await gzipAsync(text)
  headers.push('Content-Encoding', 'gzip', 'Content-Length', String(body.length))
  if (response.headersSent) return 0 // it was cut meanwhile
  response.writeHead(200, headers)
  endBatched(response, body)
  return sentBytes(request, body.length)
}

function sentBytes(request: IncomingMessage, length: number): number {
  return request.method === 'HEAD' ? 0 : length
}

const TEXT = 'text/plain; charset=utf-8'

/** Without a body. Stock clients expect 200 for some of these. */
export function sendEmpty({ response, headers }: ResponseOutlet, status: 204 | undefined): void {
  if (status === undefined) headers.push('Content-Length', '0')
  response.writeHead(status ?? 200, headers)
  endBatched(response)
}

/** Cached form of a header object: most responses have the same one. */
interface HeaderSet {
  readonly list: readonly string[]
  readonly names: ReadonlySet<string>
}

const listed = new WeakMap<WholeAnswer['headers'], HeaderSet>()

function listOf(headers: WholeAnswer['headers']): HeaderSet {
  let found = listed.get(headers)
  if (!found) {
    const names = new Set(Object.keys(headers).map((name) => name.toLowerCase()))
    listed.set(headers, (found = { list: Object.entries(headers).flat(), names }))
  }
  return found
}

/** Headers of the operation override those of every response. */
export function mergeHeaders(headers: HeaderList, own: WholeAnswer['headers']): HeaderList {
  const { list: ownList, names } = listOf(own)
  const list: HeaderList = []
  for (let index = 0; index < headers.length; index += 2) {
    const [name = '', value = ''] = [headers[index], headers[index + 1]]
    if (!names.has(name.toLowerCase())) list.push(name, value)
  }
  list.push(...ownList)
  return list
}

/** Returns the number of body bytes. */
export function sendWhole(
  { request, response, headers }: ResponseOutlet,
  { status, headers: own, body }: WholeAnswer,
): number {
  const list = mergeHeaders(headers, own)
  const length = typeof body === 'string' ? Buffer.byteLength(body) : (body?.length ?? 0)
  if (status !== 204) list.push('Content-Length', String(length))
  response.writeHead(status, list)
  endBatched(response, status === 204 ? undefined : body, length)
  return status === 204 ? 0 : sentBytes(request, length)
}

/** Returns the number of body bytes. */
export function sendError({ request, response, headers }: ResponseOutlet, answer: ErrorResponse): number {
  for (const [name, value] of Object.entries(answer.headers)) headers.push(name, value)
  headers.push('Content-Type', answer.contentType, 'X-Content-Type-Options', 'nosniff')
  const length = Buffer.byteLength(answer.body)
  headers.push('Content-Length', String(length))
  response.writeHead(answer.status, headers)
  endBatched(response, answer.body, length)
  return sentBytes(request, length)
}

interface BatchedResponse {
  readonly response: ServerResponse
  readonly body: string | Uint8Array | undefined
  readonly encoding: BufferEncoding
}

let batch: BatchedResponse[] = []

/**
 * Ends a response whose head is written. `bytes`: length of the body. A text with as many characters is ASCII, which
 * needs no UTF-8 encoding.
 */
function endBatched(response: ServerResponse, body?: string | Uint8Array, bytes?: number): void {
  const encoding = typeof body === 'string' && body.length === bytes ? 'latin1' : 'utf8'
  if (batch.push({ response, body, encoding }) === 1) setImmediate(flushBatch)
}

function flushBatch(): void {
  const flushed = batch
  batch = []
  for (const { body, encoding, response } of flushed) {
    try {
      response.end(body, encoding)
    } catch {
      // An error must not affect the other responses of the batch.
      response.destroy()
    }
  }
}

export interface ErrorResponse {
  readonly status: number
  readonly text: string
  readonly contentType: string
  readonly body: string
  readonly headers: Readonly<Record<string, string>>
}

export function errorResponse(
  error: unknown,
  context: { format: 'plain' | 'errors'; requestId: string; operation: string; logger: Logger },
): ErrorResponse {
  const refusal = error instanceof Refusal ? error : undefined
  if (!refusal) logFault(error, context)
  const text = refusal?.message ?? `internal error, request ${context.requestId}`
  const plain = context.format === 'plain'
  return {
    status: refusal?.status ?? 500,
    text,
    contentType: plain ? 'text/plain; charset=utf-8' : 'application/json',
    body: plain ? text : JSON.stringify({ errors: text === '' ? [] : [text] }),
    headers: refusal?.headers ?? {},
  }
}

/** Writes a fault with its causes. Stacks say where, messages what; neither may hold input (platform/errors.ts). */
export function logFault(error: unknown, context: { requestId: string; operation: string; logger: Logger }): void {
  const parts: string[] = []
  for (let cause = error; cause instanceof Error && parts.length < 5; cause = cause.cause) {
    parts.push(cause.stack ?? cause.message)
  }
  context.logger.error('request failed', {
    operation: context.operation,
    request_id: context.requestId,
    error: parts.length > 0 ? parts.join('\ncaused by ') : String(error),
  })
}
