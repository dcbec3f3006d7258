/**
 * HTTP requests of commands to an agent or server (`agent-target.ts`). Every failure becomes a `CommandError` with one line: cause and
 * next step. Messages never contain a token.
 */
import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http'
import type { Readable } from 'node:stream'
import { errnoOf, messageOf, TOKEN_HEADER, UNKNOWN_TOKEN } from '../../platform/errors.ts'
import { CommandError } from '../framework/define-command.ts'
import { type JsonFields, fieldsOf } from '../output/json.ts'
import { humanAge, isoSeconds } from '../output/table.ts'
import { type AgentTarget, type TlsTrust, tokenVariableOf } from './agent-target.ts'

// `import` of node:http would evaluate undici: 10 ms. TLS is loaded only for https.
const opener = (protocol: string) =>
  (protocol === 'https:' ? process.getBuiltinModule('node:https') : process.getBuiltinModule('node:http')).request

/** A list becomes one parameter per value. */
export type Query = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>

export interface AgentRequest {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE' | 'PATCH'
  /** With a leading slash; appended to the path of the address. */
  readonly path: string
  readonly query?: Query
  /** Sent as JSON. */
  readonly body?: unknown
  /** Streamed instead of `body`. */
  readonly upload?: Upload
  /** Additional headers. */
  readonly headers?: Readonly<Record<string, string>>
  /** Timeout for the response head; 0: none. */
  readonly headTimeoutMs?: number
  readonly signal?: AbortSignal
}

export interface Upload {
  readonly source: Readable
  /** Undefined if unknown. */
  readonly bytes: number | undefined
}

/** A response with another status than 2xx. */
export class AgentRefusal extends CommandError {
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }

  /** False if a retry may succeed: a host that the server cannot reach may be restarting. */
  get isFinal(): boolean {
    if (this.status === 404 && this.message.includes(NO_PATH)) return false
    return this.status >= 400 && this.status < 500 && this.status !== 408 && this.status !== 429
  }
}

/** Error of the secrets core about a token in the request body, such as that of `auth/token/lookup`. */
const OTHER_TOKEN = 'bad token'

/** Error of a server about a known host that is not connected. */
const NO_PATH = 'No path to node'

/** Limit for the body of an error response. */
const ERROR_BYTES_MAX = 64 * 1024
const MESSAGE_CHARS_MAX = 500
/** Origins that have answered this process: a later failure is not caused by the wrong protocol. */
const answeredOrigins = new Set<string>()
/** Limit for a response that is read completely. */
const RESPONSE_BYTES_MAX = 64 * 1024 * 1024
/** Above the request timeout of agents (90 s). */
const HEAD_TIMEOUT_MS = 100_000

/**
 * Sends one request and resolves to its response when the head has arrived, for any status. The caller reads or destroys the body.
 * Throws CommandError without a response.
 */
export function openResponse(target: AgentTarget, request: AgentRequest): Promise<IncomingMessage> {
  const url = new URL(target.url.pathname.replace(/\/$/, '') + request.path, target.url)
  for (const [name, value] of Object.entries(request.query ?? {})) {
    if (Array.isArray(value)) for (const each of value) url.searchParams.append(name, String(each))
    else if (value !== undefined) url.searchParams.set(name, String(value))
  }
  const body = request.body === undefined ? undefined : Buffer.from(JSON.stringify(request.body))
  const options: RequestOptions & TlsTrust = {
    method: request.method ?? 'GET',
    headers: {
      ...(target.token === undefined ? {} : { 'X-Nomad-Token': target.token, 'X-Vault-Token': target.token }),
      ...(body ? { 'Content-Type': 'application/json', 'Content-Length': body.length } : {}),
      ...(request.upload?.bytes === undefined ? {} : { 'Content-Length': request.upload.bytes }),
      ...request.headers,
    },
    ...(request.signal ? { signal: request.signal } : {}),
    ...target.tls,
  }
  const open = opener(url.protocol)
  return new Promise((resolve, reject) => {
    const outgoing = open(url, options, (response) => {
      // The body has no timeout.
      outgoing.setTimeout(0)
      answeredOrigins.add(target.url.origin)
      resolve(response)
    })
    outgoing.on('error', (error) => reject(connectionError(error, target)))
    const timeoutMs = request.headTimeoutMs ?? HEAD_TIMEOUT_MS
    if (timeoutMs > 0)
      outgoing.setTimeout(timeoutMs, () => outgoing.destroy(new Error(`no response within ${timeoutMs / 1000} s`)))
    if (request.upload) sendUpload(request.upload.source, outgoing, reject)
    else outgoing.end(body)
  })
}

/** An error of the source ends the request with that error. */
function sendUpload(source: Readable, outgoing: ClientRequest, fail: (error: Error) => void): void {
  source.on('error', (error) => {
    fail(error)
    outgoing.destroy()
  })
  outgoing.on('close', () => source.destroy())
  source.pipe(outgoing)
}

/** Sends one request and resolves to its body as text. Throws CommandError unless the status is 2xx. */
export async function requestText(target: AgentTarget, request: AgentRequest): Promise<string> {
  const response = await openResponse(target, request)
  await requireSuccess(response, target)
  return responseText(response, target)
}

/** The error for a body that cannot be read completely. */
export function bodyError(error: unknown, target: AgentTarget): CommandError {
  return connectionError(error, target)
}

/** Sends one request and resolves to its JSON body; undefined without a body. Throws CommandError. */
export async function requestJson(target: AgentTarget, request: AgentRequest): Promise<unknown> {
  const text = await requestText(target, request)
  if (text === '') return undefined
  try {
    return JSON.parse(text)
  } catch {
    throw new CommandError(`${target.url.origin} did not return JSON, check that it is an outpost agent`)
  }
}

/** Sends one request and resolves to its JSON list. Throws CommandError. */
export async function requestList(target: AgentTarget, request: AgentRequest): Promise<readonly unknown[]> {
  return listIn(await requestJson(target, request), target)
}

function listIn(body: unknown, target: AgentTarget): readonly unknown[] {
  if (Array.isArray(body)) return body
  throw new CommandError(`${target.url.origin} did not return a list, check that it is an outpost agent or server`)
}

/** Throws CommandError with the text of the response unless the status is 2xx. Reads the body only for an error. */
export async function requireSuccess(response: IncomingMessage, target: AgentTarget): Promise<void> {
  const status = response.statusCode ?? 0
  if (status >= 200 && status < 300) return
  const { text } = await readBody(response, undefined, ERROR_BYTES_MAX)
  const refusal = refusalOf(response, text, target)
  throw refusal.message.includes(NO_PATH) ? await withNode(refusal, requestPath(response), target) : refusal
}

function requestPath(response: IncomingMessage): string {
  // Set by Node on responses to requests of this process.
  const { req } = response as IncomingMessage & { readonly req?: { readonly path: string } }
  return req?.path ?? ''
}

const UUID_IN_PATH = /[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/

/**
 * Adds the name of the node that cannot be reached, and since when, if the token may read that. `path`: that of the refused
 * request, with the ID of the node in its query or that of an allocation.
 */
async function withNode(refusal: AgentRefusal, path: string, target: AgentTarget): Promise<AgentRefusal> {
  const given = new URL(path, target.url).searchParams.get('node_id')
  const allocationId = UUID_IN_PATH.exec(path)?.[0]
  const nodeId = given ?? (allocationId && (await fieldsAt(target, `/v1/allocation/${allocationId}`))?.text('NodeID'))
  const node = nodeId ? await fieldsAt(target, `/v1/node/${nodeId}`) : undefined
  if (!node || node.text('Name') === '') return refusal
  const atMs = node.number('StatusUpdatedAt') * 1000
  const reason = node.text('StatusDescription')
  const state =
    node.text('Status') === 'ready'
      ? 'does not respond'
      : `has been ${node.text('Status')} since ${isoSeconds(atMs)} (${humanAge(atMs, Date.now())})${reason === '' ? '' : `: ${reason}`}`
  return new AgentRefusal(refusal.status, `node ${node.text('Name')} (${nodeId}) ${state}; ${refusal.message}`)
}

/** Undefined for any error. */
async function fieldsAt(target: AgentTarget, path: string): Promise<JsonFields | undefined> {
  try {
    const response = await openResponse(target, { path })
    const { text } = await readBody(response, target, ERROR_BYTES_MAX)
    return response.statusCode === 200 ? fieldsOf(parseJson(text)) : undefined
  } catch {
    return undefined
  }
}

/** The error for a response with another status than 2xx, with the next step if it is known. */
export function refusalOf(response: IncomingMessage, body: string, target: AgentTarget): AgentRefusal {
  const { statusCode: status = 0, statusMessage } = response
  const message = errorText(body) || statusMessage || 'no error text'
  if (status === 403 && message === OTHER_TOKEN) {
    return new AgentRefusal(status, `${message} (HTTP ${status}): the token in the request is unknown or expired`)
  }
  const isAboutToken = status === 401 || (status === 403 && /permission denied|token/i.test(message))
  const hint = isAboutToken ? `, ${tokenHint(target, isUnknownToken(response, body))}` : ''
  return new AgentRefusal(status, `${message} (HTTP ${status})${hint}`)
}

/** Which token was refused, or why none was sent. */
export function tokenHint(target: AgentTarget, isUnknown: boolean): string {
  const { token, tokenFrom, withheld } = target
  if (token !== undefined) {
    const source = tokenFrom === undefined ? 'the given token' : `the token from ${tokenFrom}`
    return isUnknown ? `${source} is unknown or expired` : `${source} lacks the permission`
  }
  const variable = tokenVariableOf(target)
  if (withheld.includes(variable)) {
    return `no token was sent: ${variable} is for the address in ${variable.replace(/_TOKEN$/, '_ADDR')}, set it to ${target.url.origin}`
  }
  const others = withheld.length === 0 ? '' : ` (${withheld.join(' and ')} not sent: set for another address)`
  return `no token was sent, set ${variable}${others}`
}

/**
 * True if the token is unknown. Hosts report that in a header; the secrets core, as compatible systems, with the bare text, while the
 * text of a refusal by a policy is framed.
 */
function isUnknownToken({ headers }: IncomingMessage, body: string): boolean {
  if (headers[TOKEN_HEADER] === UNKNOWN_TOKEN) return true
  const errors = errorsIn(body)
  return errors?.length === 1 && /^permission denied$|invalid token/.test(errors[0] ?? '')
}

/** The body of a response with any status. Throws CommandError. */
export async function responseText(response: IncomingMessage, target: AgentTarget): Promise<string> {
  const { text, isTruncated } = await readBody(response, target, RESPONSE_BYTES_MAX)
  if (!isTruncated) return text
  const limit = `${RESPONSE_BYTES_MAX >> 20} MiB`
  throw new CommandError(`the response of ${target.url.origin} exceeds ${limit}, check that it is an outpost agent`)
}

/** The list of `{"errors":[...]}`; undefined for the plain text of client endpoints. */
function errorsIn(body: string): string[] | undefined {
  try {
    const parsed: unknown = JSON.parse(body)
    if (typeof parsed !== 'object' || parsed === null || !('errors' in parsed)) return undefined
    return Array.isArray(parsed.errors) ? parsed.errors.map((each) => String(each)) : undefined
  } catch {
    return undefined
  }
}

/** The message of either error format, in one line. */
function errorText(body: string): string {
  const text =
    errorsIn(body)
      ?.map((each) => each.trim())
      .join('\n') ?? body.trim()
  // A nested list of errors is quoted like a Go string.
  const unquoted = text.replaceAll(/"\d+ errors? occurred:(?:[^"\\]|\\.)*"/g, unescaped)
  // The secrets core frames some errors with a count and a list, as Vault does.
  const bare = unquoted.replaceAll(/\d+ errors? occurred:\s*\* /g, '').replaceAll(/\n\s*\* /g, '\n')
  const line = bare.trim().replaceAll(/\s*\n\s*/g, '; ')
  return line.length > MESSAGE_CHARS_MAX ? `${line.slice(0, MESSAGE_CHARS_MAX)}...` : line
}

function unescaped(quoted: string): string {
  try {
    return String(JSON.parse(quoted)).trim()
  } catch {
    return quoted
  }
}

interface ResponseBody {
  readonly text: string
  /** The body exceeds the limit. */
  readonly isTruncated: boolean
}

/** Without a target, an incomplete body is not an error. */
async function readBody(
  response: IncomingMessage,
  target: AgentTarget | undefined,
  bytesMax: number,
): Promise<ResponseBody> {
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk)
      bytes += chunk.length
      if (bytes > bytesMax) break
    }
  } catch (error) {
    if (target) throw connectionError(error, target)
  }
  return { text: Buffer.concat(chunks).toString('utf8'), isTruncated: bytes > bytesMax }
}

function connectionError(error: unknown, target: AgentTarget): CommandError {
  const code = errnoOf(error) ?? ''
  const where = target.url.origin
  const source = target.from === undefined ? 'OUTPOST_ADDR' : target.from
  const fault = (message: string) => new CommandError(message, 1, { cause: error })
  if (code === 'ECONNREFUSED') {
    return fault(`no agent at ${where}: start one with "outpost agent", or set ${source} to its address`)
  }
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return fault(`unknown host name ${target.url.hostname}: correct ${source}`)
  }
  if (code === 'ETIMEDOUT' || code === 'EHOSTUNREACH' || code === 'ENETUNREACH') {
    return fault(`cannot reach ${where}: check the network and ${source}`)
  }
  if (code === 'EPROTO' || code === 'ERR_SSL_WRONG_VERSION_NUMBER') {
    return fault(`${where} does not use TLS: set ${source} to http://${target.url.host}`)
  }
  if (/^ERR_SSL_.*ALERT.*EXPIRED/.test(code)) {
    return fault(`${where} refused the client certificate, which has expired (${code}): renew OUTPOST_CLIENT_CERT`)
  }
  if (/^ERR_SSL_.*ALERT/.test(code)) {
    return fault(`${where} requires a client certificate (${code}): set OUTPOST_CLIENT_CERT and OUTPOST_CLIENT_KEY`)
  }
  if (code === 'CERT_HAS_EXPIRED' || code === 'CERT_NOT_YET_VALID') {
    const reason = code === 'CERT_HAS_EXPIRED' ? 'has expired' : 'is not valid yet'
    return fault(
      `the certificate of ${where} ${reason} (${code}): renew it on the server (tls.cert_file, then SIGHUP), or correct the local clock (${new Date().toISOString()})`,
    )
  }
  if (/CERT|SELF_SIGNED|ALTNAME|VERIFY_LEAF|INVALID_CA|INVALID_PURPOSE/.test(code)) {
    return fault(
      `the certificate of ${where} is not trusted (${code}): set ${target.caFrom ?? 'OUTPOST_CACERT'} to the PEM file of its CA`,
    )
  }
  if (code === 'ECONNRESET' || code === 'EPIPE' || code.startsWith('HPE_')) {
    const hint =
      target.url.protocol === 'http:' && !answeredOrigins.has(where)
        ? `; if the server uses TLS, set ${source} to https://${target.url.host}`
        : ''
    return fault(`${where} closed the connection (${code})${hint}`)
  }
  return fault(`request to ${where} failed: ${messageOf(error)}`)
}

const PER_PAGE = 1000

/** All records of a list, requested page by page. Throws CommandError. */
export async function listRecords(
  target: AgentTarget,
  path: string,
  query: Query = {},
  { signal }: Pick<AgentRequest, 'signal'> = {},
): Promise<unknown[]> {
  const records: unknown[] = []
  let next: string | undefined
  do {
    const pageQuery = { ...query, per_page: PER_PAGE, next_token: next }
    const response = await openResponse(target, { path, query: pageQuery, ...(signal && { signal }) })
    await requireSuccess(response, target)
    for (const record of listIn(parseJson(await responseText(response, target)), target)) records.push(record)
    const token = response.headers['x-nomad-nexttoken']
    next = typeof token === 'string' && token !== '' ? token : undefined
  } while (next !== undefined)
  if (records.length === 0 && query['namespace'] === '*') await requireToken(target, path)
  return records
}

/**
 * A list of all namespaces omits records without permission, so without a token it is empty. Throws CommandError if a token is required
 * and none was sent.
 */
async function requireToken(target: AgentTarget, path: string): Promise<void> {
  if (target.token === undefined) await requestText(target, { path, query: { namespace: 'default', per_page: 1 } })
}

/** Undefined for invalid JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** `A == "x" and B == "y"` in the server's filter language; undefined without conditions. */
export function filterOf(conditions: readonly (string | undefined)[]): string | undefined {
  const terms = conditions.filter((condition) => condition !== undefined)
  return terms.length === 0 ? undefined : terms.map((term) => (terms.length > 1 ? `(${term})` : term)).join(' and ')
}

/** A condition on one field; undefined without a value. */
export function equals(field: string, value: string | undefined): string | undefined {
  return value === undefined ? undefined : `${field} == ${JSON.stringify(value)}`
}
