/**
 * How commands talk to an agent or server: HTTP like any client, addresses and tokens from the field's variables.
 * Everything that goes wrong becomes a `CommandError` with one line that says what to do. A token is never shown.
 */
import { readFileSync } from 'node:fs'
import type { ClientRequest, IncomingMessage, RequestOptions } from 'node:http'
import type { Readable } from 'node:stream'
import { errnoOf, messageOf } from '../kit/errors.ts'
import { CommandError } from './command-shape.ts'
import { storedToken } from './token-file.ts'

// `import` from node:http would evaluate all it exports, the whole of undici included: 10 ms for nothing. And TLS is
// loaded only where it is spoken.
const opener = (protocol: string) =>
  (protocol === 'https:' ? process.getBuiltinModule('node:https') : process.getBuiltinModule('node:http')).request

export interface AgentTarget {
  readonly url: URL
  /** Which variable the address is from; undefined for the default. */
  readonly from: string | undefined
  readonly token: string | undefined
  readonly tls: TlsTrust
}

/** What an address with https needs beyond the system's own, as PEM. */
interface TlsTrust {
  /** The authorities to trust instead of the system's. */
  readonly ca?: string
  /** The certificate to show, and its key. */
  readonly cert?: string
  readonly key?: string
}

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

/** What servers say of a host that they know and that is not there. */
const NO_PATH = 'No path to node'

const DEFAULT_ADDRESS = 'http://127.0.0.1:4646'
const ADDRESS_NAMES = ['OUTPOST_ADDR', 'NOMAD_ADDR', 'VAULT_ADDR'] as const
const TOKEN_NAMES = ['OUTPOST_TOKEN', 'NOMAD_TOKEN', 'VAULT_TOKEN'] as const
const CA_NAMES = ['OUTPOST_CACERT', 'NOMAD_CACERT', 'VAULT_CACERT'] as const
const CERT_NAMES = ['OUTPOST_CLIENT_CERT', 'NOMAD_CLIENT_CERT', 'VAULT_CLIENT_CERT'] as const
const KEY_NAMES = ['OUTPOST_CLIENT_KEY', 'NOMAD_CLIENT_KEY', 'VAULT_CLIENT_KEY'] as const
/** An error's text beyond this is not from us. */
const ERROR_BYTES_MAX = 64 * 1024
const MESSAGE_CHARS_MAX = 500
/** An answer beyond this is no answer of an agent. */
const ANSWER_BYTES_MAX = 64 * 1024 * 1024
/** Whoever has not begun to answer by then never will: agents give a request up after 90 s. */
const HEAD_MS = 100_000

/**
 * Address, token and trust from the environment; `address`, when it is given, is that of the option -address.
 * Throws CommandError for an address that is none.
 */
export function agentTarget(env: NodeJS.ProcessEnv, address?: string): AgentTarget {
  const from = address === undefined ? firstSet(env, ADDRESS_NAMES) : '-address'
  const text = address ?? (from && env[from]) ?? DEFAULT_ADDRESS
  const url = parseAddress(text)
  if (!url) throw new CommandError(`${from} is not an address, set it to something like ${DEFAULT_ADDRESS}`)
  const tokenName = tokenVariable(env)
  const token = tokenName === undefined ? storedToken(env) : env[tokenName]
  return { url, from, token, tls: url.protocol === 'https:' ? tlsTrust(env) : {} }
}

/** The variable that the token is from, when one is set. */
export function tokenVariable(env: NodeJS.ProcessEnv): string | undefined {
  return firstSet(env, TOKEN_NAMES)
}

function tlsTrust(env: NodeJS.ProcessEnv): TlsTrust {
  const ca = pemNamedBy(env, CA_NAMES)
  const cert = pemNamedBy(env, CERT_NAMES)
  const key = pemNamedBy(env, KEY_NAMES)
  if ((cert === undefined) !== (key === undefined)) {
    throw new CommandError(`${CERT_NAMES[0]} and ${KEY_NAMES[0]} go together, set both or none`)
  }
  const trust = {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined || key === undefined ? {} : { cert, key }),
  }
  try {
    process.getBuiltinModule('node:tls').createSecureContext(trust)
  } catch (error) {
    const names = [CA_NAMES[0], CERT_NAMES[0], KEY_NAMES[0]].join(', ')
    throw new CommandError(`one of ${names} names no usable PEM file: ${messageOf(error)}`, 1, { cause: error })
  }
  return trust
}

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
  await requireSuccess(response)
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
export async function requireSuccess(response: IncomingMessage): Promise<void> {
  const status = response.statusCode ?? 0
  if (status >= 200 && status < 300) return
  throw refusalOf(response, await bodyText(response, undefined, ERROR_BYTES_MAX))
}

/** What an answer that is no success says, and what to do about it where that is known. */
export function refusalOf({ statusCode: status = 0, statusMessage }: IncomingMessage, body: string): RefusedByAgent {
  const message = errorText(body) || statusMessage || 'no reason given'
  const hint = status === 401 || status === 403 ? ', set OUTPOST_TOKEN to a token that may do this' : ''
  return new RefusedByAgent(status, `${message} (HTTP ${status})${hint}`)
}

/** The whole body of an answer, whatever its status. Throws CommandError. */
export async function responseText(response: IncomingMessage, target: AgentTarget): Promise<string> {
  const text = await bodyText(response, target, ANSWER_BYTES_MAX)
  if (text.length < ANSWER_BYTES_MAX) return text
  throw new CommandError(`${target.url.origin} answered without an end, is it an outpost agent?`)
}

/** The message of either error format: plain text, or `{"errors":[...]}`. */
function errorText(body: string): string {
  let text = body.trim()
  try {
    const parsed: unknown = JSON.parse(body)
    if (typeof parsed === 'object' && parsed !== null && 'errors' in parsed && Array.isArray(parsed.errors)) {
      text = parsed.errors.map((each) => String(each).trim()).join('\n')
    }
  } catch {
    // Plain text, as the client endpoints have it.
  }
  // The secrets core frames some of its errors as the compatible system does: a count, and a list.
  const bare = text.replaceAll(/\d+ errors? occurred:\s*\* /g, '').replaceAll(/\n\s*\* /g, '\n')
  const line = bare.trim().replaceAll(/\s*\n\s*/g, '; ')
  return line.length > MESSAGE_CHARS_MAX ? `${line.slice(0, MESSAGE_CHARS_MAX)}...` : line
}

async function bodyText(response: IncomingMessage, target: AgentTarget | undefined, bytesMax: number): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      chunks.push(chunk)
      bytes += chunk.length
      if (bytes >= bytesMax) break
    }
  } catch (error) {
    if (target) throw explain(error, target)
  }
  return Buffer.concat(chunks).toString('utf8')
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
  if (/^ERR_SSL_.*ALERT/.test(code)) {
    return say(`${where} does not accept this caller (${code}), set OUTPOST_CLIENT_CERT and OUTPOST_CLIENT_KEY`)
  }
  if (/CERT|SELF_SIGNED|ALTNAME/.test(code)) {
    return say(`the certificate of ${where} is not trusted (${code}), set OUTPOST_CACERT to its authority's PEM file`)
  }
  if (code === 'ECONNRESET' || code === 'EPIPE' || code.startsWith('HPE_')) {
    const hint =
      target.url.protocol === 'http:' ? `; if it speaks TLS, set ${source} to https://${target.url.host}` : ''
    return say(`${where} broke the connection (${code})${hint}`)
  }
  return say(`the request to ${where} failed: ${messageOf(error)}`)
}

function parseAddress(text: string): URL | undefined {
  const url = URL.parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`)
  return url && (url.protocol === 'http:' || url.protocol === 'https:') && url.hostname !== '' ? url : undefined
}

function firstSet<N extends string>(env: NodeJS.ProcessEnv, names: readonly N[]): N | undefined {
  return names.find((name) => env[name] !== undefined && env[name] !== '')
}

/** The file that the first of these variables names. Throws CommandError when it cannot be read. */
function pemNamedBy(env: NodeJS.ProcessEnv, names: readonly string[]): string | undefined {
  const name = firstSet(env, names)
  const file = name && env[name]
  if (file === undefined) return undefined
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new CommandError(`${name} names ${file}, which cannot be read: ${messageOf(error)}`, 1, { cause: error })
  }
}
