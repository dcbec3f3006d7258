/**
 * Answers that are made whole before they are sent: JSON, nothing, errors.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { promisify } from 'node:util'
import { gzip } from 'node:zlib'
import type { AnyOperation } from '../kit/operation.ts'
import type { Target } from './request.ts'
import type { ErrorAnswer } from './errors.ts'

const gzipAsync = promisify(gzip)
/** Below this, compressing costs more than it saves: such an answer fits one packet anyway. */
const GZIP_FROM_BYTES = 1400
const PRETTY_INDENT = 4

/** JSON text of a result, `?pretty` honoured as the compatible system does: present and not exactly `0`. */
export function jsonText(value: unknown, target: Target): string {
  const pretty = target.query.find(([name]) => name === 'pretty')
  if (pretty === undefined || pretty[1] === '0') return escapeSeparators(JSON.stringify(value))
  return `${escapeSeparators(JSON.stringify(value, null, PRETTY_INDENT))}\n`
}

/** U+2028 and U+2029 are legal in JSON and end a line in old JavaScript. */
function escapeSeparators(json: string): string {
  return json.replaceAll('\u2028', '\\u2028').replaceAll('\u2029', '\\u2029')
}

export function acceptsGzip(request: IncomingMessage): boolean {
  const accepted = request.headers['accept-encoding']
  return typeof accepted === 'string' && /(^|,)\s*gzip\s*(;\s*q=(?!0(\.0*)?\s*(,|$))[^,]*)?(,|$)/i.test(accepted)
}

export async function sendJson(
  request: IncomingMessage,
  response: ServerResponse,
  operation: AnyOperation,
  text: string,
): Promise<void> {
  const wantsJson = (request.headers.accept ?? '').includes('application/json')
  const plain = operation.produces === 'text/plain' && !wantsJson
  response.setHeader('Content-Type', plain ? 'text/plain; charset=utf-8' : 'application/json')
  let body = Buffer.from(text)
  if (body.length >= GZIP_FROM_BYTES && acceptsGzip(request)) {
    body = await gzipAsync(body)
    response.setHeader('Content-Encoding', 'gzip')
  }
  response.setHeader('Content-Length', body.length)
  response.end(body)
}

/** 200 with no body at all: what stock clients take for success where there is nothing to say. */
export function sendEmpty(response: ServerResponse): void {
  response.setHeader('Content-Length', 0)
  response.end()
}

export function sendError(response: ServerResponse, answer: ErrorAnswer): void {
  const body = Buffer.from(answer.body)
  response.writeHead(answer.status, {
    ...answer.headers,
    'Content-Type': answer.contentType,
    'X-Content-Type-Options': 'nosniff',
    'Content-Length': body.length,
  })
  response.end(body)
}
