/**
 * How commands talk to an agent or server: HTTP like any client. Where to and with which token, `agent-target.ts` says.
 * Everything that goes wrong becomes a `CommandError` with one line that says what to do. A token is never shown.
 */
import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http'
import type { Readable } from 'node:stream'
import { errnoOf, messageOf, TOKEN_HEADER, UNKNOWN_TOKEN } from '../../platform/errors.ts'
import { type AgentTarget, type TlsTrust, tokenVariableOf } from './agent-target.ts'
import { CommandError } from '../framework/command-shape.ts'

// `import` from node:http would evaluate all it exports, the whole of undici included: 10 ms for nothing. And TLS is
// loaded only where it is spoken.
const opener = (protocol: string) =>
  (protocol === 'https:' ? process.getBuiltinModule('node:https') : process.getBuiltinModule('node:http')).request

/** A list is given as often as it has values. */
export type Query = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>

export interface AgentRequest {
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE' | 'PATCH'
  /** With its leading slash; joined to the path of the address when that has one. */
  readonly path: string
  readonly query?: Query
  /** Sent as JSON. */
  readonly body?: unknown
  /** Sent as it comes instead of `body`. */
  readonly upload?: Upload
  /** Besides what every request has. */
  readonly headers?: Readonly<Record<string, string>>
  /** How long the first byte of the answer may take; 0: as long as it likes. */
  readonly headMs?: number
  readonly signal?: AbortSignal
}

export interface Upload {
  readonly source: Readable
  /** Undefined when nobody knows. */
  readonly bytes: number | undefined
}

/** The agent answered with a status that is no success. */
export class RefusedByAgent extends CommandError {
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }

  /** False when the same request may be answered later: a host that a server cannot reach may just be starting again. */
  get isFinal(): boolean {
    if (this.status === 404 && this.message.includes(NO_PATH)) return false
    return this.status >= 400 && this.status < 500 && this.status !== 408 && this.status !== 429
  }
}

/** What the secrets core says of a token in the body of a request, as `auth/token/lookup` has one: not of the caller's. */
const OTHER_TOKEN = 'bad token'

/** What servers say of a host that they know and that is not there. */
const NO_PATH = 'No path to node'

/** An error's text beyond this is not from us. */
const ERROR_BYTES_MAX = 64 * 1024
const MESSAGE_CHARS_MAX = 500
/** Origins that have answered a request of this process: what fails with one of them later is not the protocol. */
const answered = new Set<string>()
/** No response of an agent that is read whole is larger. */
const ANSWER_BYTES_MAX = 64 * 1024 * 1024
/** Whoever has not begun to answer by then never will: agents give a request up after 90 s. */
const HEAD_MS = 100_000

/**
 * Sends one request and resolves to its response once the head has arrived, whatever its status. The caller reads the
 * body or destroys it. Throws CommandError when there is no response.
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
      // From here on whoever reads may take as long as it likes.
      outgoing.setTimeout(0)
      answered.add(target.url.origin)
      resolve(response)
    })
    outgoing.on('error', (error) => reject(explain(error, target)))
    const headMs = request.headMs ?? HEAD_MS
    if (headMs > 0)
      outgoing.setTimeout(headMs, () => outgoing.destroy(new Error(`no answer within ${headMs / 1000} s`)))
    if (request.upload) send(request.upload.source, outgoing, reject)
    else outgoing.end(body)
  })
}

/** A source that fails ends the request with its own error. */
function send(source: Readable, outgoing: ClientRequest, fail: (error: Error) => void): void {
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

/** What goes wrong while a body is read, in our words. */
export function brokenBody(error: unknown, target: AgentTarget): CommandError {
  return explain(error, target)
}

/** Sends one request and resolves to its body parsed as JSON; undefined when there is none. Throws CommandError. */
export async function requestJson(target: AgentTarget, request: AgentRequest): Promise<unknown> {
  const text = await requestText(target, request)
  if (text === '') return undefined
  try {
    return JSON.parse(text)
  } catch {
    throw new CommandError(`${target.url.origin} answered with something that is not JSON, is it an outpost agent?`)
  }
}

/** Throws CommandError with the answer's own text unless the status is 2xx; reads the body only then. */
export async function requireSuccess(response: IncomingMessage, target: AgentTarget): Promise<void> {
  const status = response.statusCode ?? 0
  if (status >= 200 && status < 300) return
  const { text } = await readBody(response, undefined, ERROR_BYTES_MAX)
  throw refusalOf(response, text, target)
}

/** What an answer that is no success says, and what to do about it where that is known. */
export function refusalOf(response: IncomingMessage, body: string, target: AgentTarget): RefusedByAgent {
  const { statusCode: status = 0, statusMessage } = response
  const message = errorText(body) || statusMessage || 'no reason given'
  if (status === 403 && message === OTHER_TOKEN) {
    return new RefusedByAgent(status, `${message} (HTTP ${status}): the token in the request is unknown or has expired`)
  }
  const isAboutToken = status === 401 || (status === 403 && /permission denied|token/i.test(message))
  const hint = isAboutToken ? `, ${tokenHint(target, isUnknownToken(response, body))}` : ''
  return new RefusedByAgent(status, `${message} (HTTP ${status})${hint}`)
}

/** What its holder may know about a token that was refused. */
export function tokenHint(target: AgentTarget, isUnknown: boolean): string {
  const { token, tokenFrom, withheld } = target
  if (token !== undefined) {
    const source = tokenFrom === undefined ? 'the token that was given' : `the token from ${tokenFrom}`
    return isUnknown ? `${source} is unknown or has expired` : `${source} is not allowed to do this`
  }
  const variable = tokenVariableOf(target)
  if (withheld.includes(variable)) {
    return `no token was sent: ${variable} is for the address in ${variable.replace(/_TOKEN$/, '_ADDR')}, set that to ${target.url.origin}`
  }
  const others = withheld.length === 0 ? '' : ` (${withheld.join(' and ')} not sent: for another address)`
  return `no token was sent, set ${variable}${others}`
}

/**
 * Whether a server refused because it does not know the token. Hosts say so in a header; the secrets core, as the
 * compatible systems, has the bare text for that, and wraps what a policy refuses.
 */
function isUnknownToken({ headers }: IncomingMessage, body: string): boolean {
  if (headers[TOKEN_HEADER] === UNKNOWN_TOKEN) return true
  const errors = errorsIn(body)
  return errors?.length === 1 && /^permission denied$|invalid token/.test(errors[0] ?? '')
}

/** The whole body of an answer, whatever its status. Throws CommandError. */
export async function responseText(response: IncomingMessage, target: AgentTarget): Promise<string> {
  const { text, isTruncated } = await readBody(response, target, ANSWER_BYTES_MAX)
  if (!isTruncated) return text
  const limit = `${ANSWER_BYTES_MAX >> 20} MiB`
  throw new CommandError(`the response of ${target.url.origin} exceeds ${limit}, is it an outpost agent?`)
}

/** The list of `{"errors":[...]}`; undefined for the plain text that the client endpoints have. */
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
  // A list of errors within another error is quoted as Go quotes texts.
  const unquoted = text.replaceAll(/"\d+ errors? occurred:(?:[^"\\]|\\.)*"/g, unescaped)
  // The secrets core frames some of its errors as the compatible system does: a count, and a list.
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

/** `isTruncated`: the body has more than `bytesMax` bytes, of which the first are in `text`. */
interface Body {
  readonly text: string
  readonly isTruncated: boolean
}

/** Without a target, a body that breaks off counts as read. */
async function readBody(response: IncomingMessage, target: AgentTarget | undefined, bytesMax: number): Promise<Body> {
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk)
      bytes += chunk.length
      if (bytes > bytesMax) break
    }
  } catch (error) {
    if (target) throw explain(error, target)
  }
  return { text: Buffer.concat(chunks).toString('utf8'), isTruncated: bytes > bytesMax }
}

function explain(error: unknown, target: AgentTarget): CommandError {
  const code = errnoOf(error) ?? ''
  const where = target.url.origin
  const source = target.from === undefined ? 'OUTPOST_ADDR' : target.from
  const say = (message: string) => new CommandError(message, 1, { cause: error })
  if (code === 'ECONNREFUSED') {
    return say(`no agent answers at ${where}, start one with "outpost agent" or set ${source} to where one runs`)
  }
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') {
    return say(`the host name ${target.url.hostname} is not known, correct ${source}`)
  }
  if (code === 'ETIMEDOUT' || code === 'EHOSTUNREACH' || code === 'ENETUNREACH') {
    return say(`${where} cannot be reached, check the network or ${source}`)
  }
  if (code === 'EPROTO' || code === 'ERR_SSL_WRONG_VERSION_NUMBER') {
    return say(`${where} does not speak TLS, set ${source} to http://${target.url.host}`)
  }
  if (/^ERR_SSL_.*ALERT.*EXPIRED/.test(code)) {
    return say(
      `${where} does not accept this caller's certificate, which has expired (${code}): renew OUTPOST_CLIENT_CERT`,
    )
  }
  if (/^ERR_SSL_.*ALERT/.test(code)) {
    return say(`${where} does not accept this caller (${code}), set OUTPOST_CLIENT_CERT and OUTPOST_CLIENT_KEY`)
  }
  if (code === 'CERT_HAS_EXPIRED' || code === 'CERT_NOT_YET_VALID') {
    const fault = code === 'CERT_HAS_EXPIRED' ? 'has expired' : 'is not valid yet'
    return say(
      `the certificate of ${where} ${fault} (${code}): renew it on the server (tls.cert_file, then SIGHUP), or correct the clock here (${new Date().toISOString()})`,
    )
  }
  if (/CERT|SELF_SIGNED|ALTNAME/.test(code)) {
    return say(
      `the certificate of ${where} is not trusted (${code}), set ${target.caFrom ?? 'OUTPOST_CACERT'} to its authority's PEM file`,
    )
  }
  if (code === 'ECONNRESET' || code === 'EPIPE' || code.startsWith('HPE_')) {
    const hint =
      target.url.protocol === 'http:' && !answered.has(where)
        ? `; if it speaks TLS, set ${source} to https://${target.url.host}`
        : ''
    return say(`${where} broke the connection (${code})${hint}`)
  }
  return say(`the request to ${where} failed: ${messageOf(error)}`)
}
