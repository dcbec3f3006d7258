/**
 * Requests to the server of the page. The token is sent in a header of each request and is in no URL. Responses have the types of the
 * OpenAPI document (`types.ts`); those of the secrets core are declared by the views that use them.
 */
import type { Results } from './types.ts'

/** An error response, or a failed connection (status 0). The message is the text of the server. */
export class ApiError extends Error {
  readonly status: number
  /** Of an error of the secrets core, as parsed. */
  readonly data: unknown

  constructor(status: number, message: string, data?: unknown) {
    super(message)
    this.name = 'ApiError'
    this.status = status
    this.data = data
  }

  get isConnection(): boolean {
    return this.status === 0
  }

  get isForbidden(): boolean {
    return this.status === 403
  }
}

/** The server refuses this to the token. A further request has the same result. */
export function isRefusal(error: unknown): boolean {
  return error instanceof ApiError && error.isForbidden
}

export type Query = Readonly<Record<string, string | number | boolean | undefined>>

export interface RequestOptions {
  readonly method?: string
  readonly query?: Query | undefined
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal | undefined
  /** What a policy must grant, if it is not that of the method: a POST creates or updates. */
  readonly capability?: 'create' | undefined
}

/** Returns the token of the session, if any. Set by the session, which depends on this file. */
let tokenOf: () => string | undefined = () => undefined

export function setTokenSource(source: () => string | undefined): void {
  tokenOf = source
}

/** Called after a 403 for the token of the session, which may have expired. */
let onRefusal: () => void = () => undefined

export function setRefusalListener(listener: () => void): void {
  onRefusal = listener
}

function urlOf(path: string, query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '')
  const text = new URLSearchParams(given.map(([name, value]): [string, string] => [name, String(value)])).toString()
  return text === '' ? path : `${path}?${text}`
}

/** A segment that a browser would remove, with the one before it. The encoded forms are the same to it. */
const DOT_SEGMENT = /(?:^|[/\\])(?:\.|%2e){1,2}(?=[/\\?#]|$)/i

/**
 * Rejects a path with the segments `.` or `..`: they come from a name, and the request would be one for another path. Encoding cannot keep
 * them.
 */
export function requirePlainPath(url: string): void {
  if (DOT_SEGMENT.test(url.split(/[?#]/, 1)[0] ?? ''))
    throw new ApiError(400, 'A name in a path must not be "." or "..".')
}

/** Sends a request; `path` is absolute and encoded. Rejects with an ApiError for each status of 400 and above, and with an AbortError. */
export async function send(path: string, options: RequestOptions = {}): Promise<Response> {
  const { body, headers, method = 'GET', query, signal } = options
  requirePlainPath(path)
  const token = tokenOf()
  const sent: Record<string, string> = { ...headers }
  const isOfSession = token !== undefined && sent['Authorization'] === undefined
  if (isOfSession) sent['Authorization'] = `Bearer ${token}`
  if (body !== undefined) sent['Content-Type'] ??= 'application/json'
  const url = urlOf(path, query)
  const init = {
    method,
    headers: sent,
    ...(body !== undefined && { body: JSON.stringify(body) }),
    ...(signal && { signal }),
  }
  const response = await fetch(url, { ...init, credentials: 'omit', cache: 'no-store' }).catch((error: unknown) => {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new ApiError(0, 'The server does not respond. Check that it runs and that its address is correct.')
  })
  if (response.status === 403 && isOfSession) onRefusal()
  if (response.status >= 400)
    throw await errorOf(response, response.status === 403 && isOfSession ? needOf(path, options) : '')
  return response
}

/** One text for a sealed core. Servers answer as Vault does, with JSON or as plain text. */
export const SEALED = 'The secrets core is sealed.'

export function serverMessage(text: string): string {
  return text.trim() === 'Vault is sealed' ? SEALED : text
}

/** What the secrets core answers if the token may not do this. It names neither the path nor the capability. */
const DENIED = 'permission denied'

const CAPABILITIES: Readonly<Record<string, string>> = { GET: 'read', DELETE: 'delete', PATCH: 'patch' }

/** What a policy must grant for a request to the secrets core. */
function needOf(path: string, { capability, method = 'GET', query = {} }: RequestOptions): string {
  const listed = query['scan'] === true ? 'scan' : query['list'] === true ? 'list' : undefined
  const needed = capability ?? listed ?? CAPABILITIES[method] ?? 'update'
  return `this needs the capability "${needed}" on ${decodeURIComponent(path.replace('/v1/', ''))}`
}

/** Of a text that is shown. A host may send any text. */
const ERROR_CHARS_MAX = 2000

/** The secrets core formats causes as Vault does: `2 errors occurred:`, then a line for each. */
export function withoutErrorList(text: string): string {
  return text
    .replaceAll(/\d+ errors? occurred:\s*\* /g, '')
    .replaceAll(/\n\t\* /g, '; ')
    .trim()
}

/** `need` is added to a refusal that does not name it. */
async function errorOf(response: Response, need: string): Promise<ApiError> {
  const text = await response.text().catch(() => '')
  try {
    const data: unknown = JSON.parse(text)
    const errors = isObject(data) && Array.isArray(data['errors']) ? data['errors'].map(String) : []
    if (errors.length > 0) {
      const message = serverMessage(errors.map(withoutErrorList).join('; '))
      const whole = message === DENIED && need !== '' ? `${message}: ${need}` : message
      return new ApiError(response.status, whole.slice(0, ERROR_CHARS_MAX), data)
    }
    if (isObject(data)) return new ApiError(response.status, `status ${response.status}`, data)
  } catch {
    // Not JSON: the endpoints of hosts answer with plain text.
  }
  return new ApiError(
    response.status,
    text === '' ? `status ${response.status}` : serverMessage(text).slice(0, ERROR_CHARS_MAX),
  )
}

/** Sends a request and parses a JSON response; undefined without a body. */
export async function sendJson<T>(path: string, options?: RequestOptions): Promise<T> {
  const response = await send(path, options)
  const text = await response.text()
  return (text === '' ? undefined : JSON.parse(text)) as T
}

export interface ReadOptions {
  /** Values of the parameters of the path. */
  readonly params?: Readonly<Record<string, string>>
  readonly query?: Query
  readonly signal?: AbortSignal
}

/** Reads an endpoint by its path in the OpenAPI document: `read('/v1/node/{id}', { params: { id } })`. */
export function read<P extends keyof Results>(path: P, options: ReadOptions = {}): Promise<Results[P]> {
  const { params = {}, query, signal } = options
  const filled = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(params[name] ?? ''))
  return sendJson(filled, { ...(query && { query }), ...(signal && { signal }) })
}

/** A response of the secrets core. */
export interface SecretsResponse<Data> {
  readonly request_id: string
  readonly lease_id: string
  readonly lease_duration: number
  readonly renewable: boolean
  readonly data: Data
  readonly warnings: readonly string[] | null
  readonly auth: AuthResult | null
  readonly wrap_info: { readonly token: string; readonly ttl: number } | null
}

export interface AuthResult {
  readonly client_token: string
  readonly accessor: string
  readonly policies: readonly string[]
  readonly lease_duration: number
  readonly renewable: boolean
  readonly mfa_requirement: MfaRequirement | null
}

export interface MfaRequirement {
  readonly mfa_request_id: string
  readonly mfa_constraints: Readonly<Record<string, { readonly any: readonly MfaMethod[] }>>
}

export interface MfaMethod {
  readonly type: string
  readonly id: string
  readonly uses_passcode: boolean
  readonly name?: string
}

/** A path of the secrets core, such as `secret/data/app`, with each segment encoded. */
export function secretsPath(path: string): string {
  return `/v1/${path.split('/').map(encodeURIComponent).join('/')}`
}

/** Calls the secrets core. `path` is not encoded. A response without a body is undefined. */
export function secrets<Data>(path: string, options?: RequestOptions): Promise<SecretsResponse<Data>> {
  return sendJson(secretsPath(path), options)
}

/** The names below a path of the secrets core; none if there are none. */
export async function listSecrets(path: string, options: RequestOptions = {}): Promise<readonly string[]> {
  try {
    const { data } = await secrets<{ keys: readonly string[] }>(path, {
      ...options,
      query: { ...options.query, list: true },
    })
    return data.keys
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return []
    throw error
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}
