/** Formats the two lines of a request: the request before it is executed, and the response before it is sent. */
import type { AuthBlock, Caller, EngineVerb } from '../../engines/framework/engine.ts'
import type { KeyedHash } from '../../platform/keyed-hash.ts'
import { redactValues } from './audit-errors.ts'
import { elideKeys, hmacData, hmacOf, hmacValue } from './audit-hmac.ts'

type Data = Readonly<Record<string, unknown>>

export interface AuditedRequest {
  readonly timeMs: number
  readonly requestId: string
  readonly operation: EngineVerb | 'help' | 'write'
  readonly path: string
  /** Index in the path of the part that no endpoint declares, which may be a token. */
  readonly undeclaredAt?: number | undefined
  /** Undefined if the body could not be parsed. */
  readonly data?: Data | undefined
  readonly token: string | undefined
  readonly caller: Caller
  readonly remote: string | undefined
  readonly wrapTtlSeconds: number | undefined
  readonly mount: AuditedMount | undefined
  /** The headers that the operator has configured, by name. */
  readonly headers: Readonly<Record<string, { readonly value: string; readonly isHashed: boolean }>> | undefined
}

export interface AuditedMount {
  readonly path: string
  readonly type: string
  readonly accessor: string
  readonly isAuth: boolean
  /** Fields that are not replaced by HMACs. */
  readonly plainRequestFields: readonly string[]
  readonly plainResponseFields: readonly string[]
}

export interface AuditedAnswer {
  readonly data?: Data | undefined
  readonly auth?: AuthBlock | undefined
  readonly leaseId?: string | undefined
  readonly warnings?: readonly string[] | undefined
  /** The info of the wrapping token. */
  readonly wrapping?: Readonly<object> | undefined
  /** The error as in the answer. */
  readonly error?: string | undefined
}

/** How a device formats its lines. */
export interface LineFormat {
  readonly key: KeyedHash
  /** Strings are not replaced by HMACs. */
  readonly isRaw: boolean
  readonly isAccessorHashed: boolean
  readonly isListElided: boolean
}

/** The line of a request as JSON without the chain. */
export function requestLine(request: AuditedRequest, format: LineFormat): string {
  return `{"time":"${timeOf(request.timeMs)}","type":"request",${common(request, format)}}`
}

/** The line of a response as JSON without the chain. */
export function responseLine(
  request: AuditedRequest,
  answer: AuditedAnswer,
  nowMs: number,
  format: LineFormat,
): string {
  const result = {
    response: responseOf(request, answer, format),
    error: answer.error === undefined || answer.error === '' ? undefined : errorOf(request, answer.error, format),
  }
  return `{"time":"${timeOf(nowMs)}","type":"response",${common(request, format)},${members(result)}}`
}

const newestTime = { ms: 0, text: '' }

/** RFC 3339 in UTC. The last time is cached, because many lines have the same millisecond. */
function timeOf(ms: number): string {
  if (ms !== newestTime.ms || newestTime.text === '') {
    newestTime.text = new Date(ms).toISOString()
    newestTime.ms = ms
  }
  return newestTime.text
}

/** The members of both lines of a request, cached per device, so that their HMACs are computed once. */
const commonTexts = new WeakMap<AuditedRequest, Map<LineFormat, string>>()

function common(request: AuditedRequest, format: LineFormat): string {
  const texts = commonTexts.get(request) ?? new Map<LineFormat, string>()
  commonTexts.set(request, texts)
  let text = texts.get(format)
  if (text === undefined) {
    const fields = callerFieldsOf(request, format)
    text = members({ auth: authOf(request, fields), request: requestOf(request, fields, format) })
    texts.set(format, text)
  }
  return text
}

/** The members of an object as JSON, without its braces. */
function members(object: Data): string {
  return JSON.stringify(object).slice(1, -1)
}

/** The HMACs of a caller's token and accessor. */
interface CallerFields {
  readonly token: string | undefined
  readonly accessor: string | undefined
}

const knownCallers = new WeakMap<LineFormat, WeakMap<Caller, CallerFields>>()

/** Cached per caller: the object of an authenticated caller is the same while its token is cached. */
function callerFieldsOf({ caller, token }: AuditedRequest, format: LineFormat): CallerFields {
  const isKnown = caller.tokenHash !== '' && token !== undefined
  const known = isKnown ? (knownCallers.get(format) ?? new WeakMap<Caller, CallerFields>()) : undefined
  const cached = known?.get(caller)
  if (cached) return cached
  const fields = {
    token: token === undefined ? undefined : secret(format, token),
    accessor: accessor(format, caller.accessor),
  }
  if (known) knownCallers.set(format, known.set(caller, fields))
  return fields
}

function authOf({ caller, token }: AuditedRequest, fields: CallerFields): Data | undefined {
  if (token === undefined) return undefined
  return {
    client_token: fields.token,
    accessor: fields.accessor,
    display_name: caller.displayName === '' ? undefined : caller.displayName,
    policies: caller.policies,
    entity_id: caller.entityId === '' ? undefined : caller.entityId,
    token_type: caller.accessor === '' ? undefined : caller.tokenType,
  }
}

function requestOf(request: AuditedRequest, fields: CallerFields, format: LineFormat): Data {
  const { data, headers, mount, remote, wrapTtlSeconds } = request
  return {
    id: request.requestId,
    operation: request.operation,
    ...mountOf(mount),
    client_token: fields.token,
    client_token_accessor: fields.accessor,
    namespace: { id: 'root' },
    path: pathOf(request, format),
    data: dataOf(data, mount?.plainRequestFields ?? [], format),
    remote_address: remote,
    wrap_ttl: wrapTtlSeconds,
    headers: headers && headersOf(headers, format),
  }
}

function pathOf({ path, undeclaredAt = path.length }: AuditedRequest, format: LineFormat): string {
  return undeclaredAt === path.length ? path : path.slice(0, undeclaredAt) + secret(format, path.slice(undeclaredAt))
}

function mountOf(mount: AuditedMount | undefined): Data {
  if (!mount) return {}
  const { accessor: mountAccessor, isAuth, path, type } = mount
  return { mount_point: path, mount_type: type, mount_accessor: mountAccessor, mount_class: isAuth ? 'auth' : 'secret' }
}

function headersOf(headers: NonNullable<AuditedRequest['headers']>, format: LineFormat): Data {
  return Object.fromEntries(
    Object.entries(headers).map(([name, { isHashed, value }]) => [name, [isHashed ? secret(format, value) : value]]),
  )
}

function responseOf({ mount, operation }: AuditedRequest, answer: AuditedAnswer, format: LineFormat): Data | undefined {
  const { auth, leaseId, warnings, wrapping } = answer
  const isList = operation === 'list' || operation === 'scan'
  const data = answer.data && (isList && format.isListElided ? elideKeys(answer.data) : answer.data)
  const response = {
    auth: auth && issuedAuthOf(auth, format),
    ...mountOf(mount),
    secret: leaseId ? { lease_id: leaseId } : undefined,
    data: dataOf(data, mount?.plainResponseFields ?? [], format),
    warnings: warnings?.length ? warnings : undefined,
    wrap_info: wrapping && wrapInfoOf(wrapping, format),
  }
  return response
}

/** Errors may quote values of the request. */
function errorOf(request: AuditedRequest, error: string, format: LineFormat): string {
  if (format.isRaw) return error
  const path = pathOf(request, format)
  const text = path === request.path ? error : error.replaceAll(request.path, path)
  return redactValues(format.key, text, request.data)
}

/** Creation time and path are not secret. */
function wrapInfoOf(info: Readonly<object>, format: LineFormat): Data {
  const entries = Object.entries(info).map(([name, value]) => {
    if (typeof value !== 'string' || name.startsWith('creation_')) return [name, value] as const
    return [name, name === 'token' ? secret(format, value) : accessor(format, value)] as const
  })
  return Object.fromEntries(entries)
}

function issuedAuthOf(auth: AuthBlock, format: LineFormat): Data {
  return {
    client_token: secret(format, auth.client_token),
    accessor: accessor(format, auth.accessor),
    policies: auth.policies,
    token_policies: auth.token_policies,
    metadata: auth.metadata ?? undefined,
    num_uses: auth.num_uses === 0 ? undefined : auth.num_uses,
    entity_id: auth.entity_id === '' ? undefined : auth.entity_id,
    token_type: auth.token_type,
    token_ttl: auth.lease_duration,
  }
}

function dataOf(data: Data | undefined, names: readonly string[], { isRaw, key }: LineFormat): unknown {
  if (data === undefined || Object.keys(data).length === 0) return undefined
  return isRaw ? data : hmacData(key, data, names)
}

function secret({ isRaw, key }: LineFormat, text: string): string {
  return isRaw ? text : hmacOf(key, text)
}

function accessor({ isAccessorHashed, isRaw, key }: LineFormat, text: string): string | undefined {
  if (text === '') return undefined
  return isRaw || !isAccessorHashed ? text : String(hmacValue(key, text))
}
