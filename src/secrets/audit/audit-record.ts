/** The two lines of a request: what was asked, before anything is done, and what came of it, before it is answered. */
import type { AuthBlock, Caller, EngineVerb } from '../../engines/framework/engine.ts'
import type { KeyedHash } from '../../platform/keyed-hash.ts'
import { withoutValues } from './audit-errors.ts'
import { elided, hashed, hashedData, hashedValue } from './audit-values.ts'

type Data = Readonly<Record<string, unknown>>

/** A request as far as it is known. */
export interface AuditedRequest {
  readonly timeMs: number
  readonly requestId: string
  readonly operation: EngineVerb | 'help' | 'write'
  readonly path: string
  /** Where the part of the path begins that no endpoint declares: it may be a token. */
  readonly undeclaredAt?: number | undefined
  /** Absent where the body could not be read. */
  readonly data?: Data | undefined
  readonly token: string | undefined
  readonly caller: Caller
  readonly remote: string | undefined
  readonly wrapTtlSeconds: number | undefined
  readonly mount: AuditedMount | undefined
  /** Those headers that the operator asks for, by name. */
  readonly headers: Readonly<Record<string, { readonly value: string; readonly isHashed: boolean }>> | undefined
}

export interface AuditedMount {
  readonly path: string
  readonly type: string
  readonly accessor: string
  readonly isAuth: boolean
  /** Fields of requests and answers that are shown as they are. */
  readonly shownInRequests: readonly string[]
  readonly shownInAnswers: readonly string[]
}

export interface AuditedAnswer {
  readonly data?: Data | undefined
  readonly auth?: AuthBlock | undefined
  readonly leaseId?: string | undefined
  readonly warnings?: readonly string[] | undefined
  /** The token that it was wrapped below, as the answer tells it. */
  readonly wrapping?: Readonly<object> | undefined
  /** Why it was refused or has failed; a text that the caller may see. */
  readonly error?: string | undefined
}

/** How a device shows what it is given. */
export interface Shown {
  readonly key: KeyedHash
  /** True: nothing is replaced by its HMAC. */
  readonly isRaw: boolean
  readonly isAccessorHashed: boolean
  readonly isListElided: boolean
}

/** The line written before anything is done, as JSON without the chain. */
export function requestLine(request: AuditedRequest, shown: Shown): string {
  return `{"time":"${timeOf(request.timeMs)}","type":"request",${common(request, shown)}}`
}

/** The line written before the answer leaves, as JSON without the chain. */
export function responseLine(request: AuditedRequest, answer: AuditedAnswer, nowMs: number, shown: Shown): string {
  const own = {
    response: responseOf(request, answer, shown),
    error: answer.error === undefined || answer.error === '' ? undefined : errorOf(request, answer.error, shown),
  }
  return `{"time":"${timeOf(nowMs)}","type":"response",${common(request, shown)},${members(own)}}`
}

const newestTime = { ms: 0, text: '' }

/** RFC 3339, UTC. The last one is remembered: many lines are of one millisecond. */
function timeOf(ms: number): string {
  if (ms !== newestTime.ms || newestTime.text === '') {
    newestTime.text = new Date(ms).toISOString()
    newestTime.ms = ms
  }
  return newestTime.text
}

/** What both lines of a request have, by the device: the texts in it are hashed once. */
const commonTexts = new WeakMap<AuditedRequest, Map<Shown, string>>()

function common(request: AuditedRequest, shown: Shown): string {
  const texts = commonTexts.get(request) ?? new Map<Shown, string>()
  commonTexts.set(request, texts)
  let text = texts.get(shown)
  if (text === undefined) {
    const who = whoOf(request, shown)
    text = members({ auth: authOf(request, who), request: requestOf(request, who, shown) })
    texts.set(shown, text)
  }
  return text
}

/** The members of an object as JSON, without its braces. */
function members(object: Data): string {
  return JSON.stringify(object).slice(1, -1)
}

/** The caller as a device shows it. */
interface Who {
  readonly token: string | undefined
  readonly accessor: string | undefined
}

const knownCallers = new WeakMap<Shown, WeakMap<Caller, Who>>()

/** A caller that is known by its token is one object for as long as its token is kept in memory: it is hashed once. */
function whoOf({ caller, token }: AuditedRequest, shown: Shown): Who {
  const isKnown = caller.tokenHash !== '' && token !== undefined
  const known = isKnown ? (knownCallers.get(shown) ?? new WeakMap<Caller, Who>()) : undefined
  let who = known?.get(caller)
  if (who) return who
  who = {
    token: token === undefined ? undefined : secret(shown, token),
    accessor: accessor(shown, caller.accessor),
  }
  if (known) knownCallers.set(shown, known.set(caller, who))
  return who
}

function authOf({ caller, token }: AuditedRequest, who: Who): Data | undefined {
  if (token === undefined) return undefined
  return {
    client_token: who.token,
    accessor: who.accessor,
    display_name: caller.displayName === '' ? undefined : caller.displayName,
    policies: caller.policies,
    entity_id: caller.entityId === '' ? undefined : caller.entityId,
    token_type: caller.accessor === '' ? undefined : caller.tokenType,
  }
}

function requestOf(request: AuditedRequest, who: Who, shown: Shown): Data {
  const { data, headers, mount, remote, wrapTtlSeconds } = request
  return {
    id: request.requestId,
    operation: request.operation,
    ...mountOf(mount),
    client_token: who.token,
    client_token_accessor: who.accessor,
    namespace: { id: 'root' },
    path: pathOf(request, shown),
    data: dataOf(data, mount?.shownInRequests ?? [], shown),
    remote_address: remote,
    wrap_ttl: wrapTtlSeconds,
    headers: headers && headersOf(headers, shown),
  }
}

function pathOf({ path, undeclaredAt = path.length }: AuditedRequest, shown: Shown): string {
  return undeclaredAt === path.length ? path : path.slice(0, undeclaredAt) + secret(shown, path.slice(undeclaredAt))
}

function mountOf(mount: AuditedMount | undefined): Data {
  if (!mount) return {}
  const { accessor: mountAccessor, isAuth, path, type } = mount
  return { mount_point: path, mount_type: type, mount_accessor: mountAccessor, mount_class: isAuth ? 'auth' : 'secret' }
}

function headersOf(headers: NonNullable<AuditedRequest['headers']>, shown: Shown): Data {
  return Object.fromEntries(
    Object.entries(headers).map(([name, { isHashed, value }]) => [name, [isHashed ? secret(shown, value) : value]]),
  )
}

function responseOf({ mount, operation }: AuditedRequest, answer: AuditedAnswer, shown: Shown): Data | undefined {
  const { auth, leaseId, warnings, wrapping } = answer
  const isList = operation === 'list' || operation === 'scan'
  const data = answer.data && (isList && shown.isListElided ? elided(answer.data) : answer.data)
  const response = {
    auth: auth && grantedOf(auth, shown),
    ...mountOf(mount),
    secret: leaseId ? { lease_id: leaseId } : undefined,
    data: dataOf(data, mount?.shownInAnswers ?? [], shown),
    warnings: warnings?.length ? warnings : undefined,
    wrap_info: wrapping && wrapInfoOf(wrapping, shown),
  }
  return response
}

/** Errors quote what was asked. */
function errorOf(request: AuditedRequest, error: string, shown: Shown): string {
  if (shown.isRaw) return error
  const path = pathOf(request, shown)
  const text = path === request.path ? error : error.replaceAll(request.path, path)
  return withoutValues(shown.key, text, request.data)
}

/** Times and the path stay as they are: neither opens anything. */
function wrapInfoOf(info: Readonly<object>, shown: Shown): Data {
  const named = Object.entries(info).map(([name, value]) => {
    if (typeof value !== 'string' || name.startsWith('creation_')) return [name, value] as const
    return [name, name === 'token' ? secret(shown, value) : accessor(shown, value)] as const
  })
  return Object.fromEntries(named)
}

function grantedOf(auth: AuthBlock, shown: Shown): Data {
  return {
    client_token: secret(shown, auth.client_token),
    accessor: accessor(shown, auth.accessor),
    policies: auth.policies,
    token_policies: auth.token_policies,
    metadata: auth.metadata ?? undefined,
    num_uses: auth.num_uses === 0 ? undefined : auth.num_uses,
    entity_id: auth.entity_id === '' ? undefined : auth.entity_id,
    token_type: auth.token_type,
    token_ttl: auth.lease_duration,
  }
}

function dataOf(data: Data | undefined, names: readonly string[], { isRaw, key }: Shown): unknown {
  if (data === undefined || Object.keys(data).length === 0) return undefined
  return isRaw ? data : hashedData(key, data, names)
}

function secret({ isRaw, key }: Shown, text: string): string {
  return isRaw ? text : hashed(key, text)
}

function accessor({ isAccessorHashed, isRaw, key }: Shown, text: string): string | undefined {
  if (text === '') return undefined
  return isRaw || !isAccessorHashed ? text : String(hashedValue(key, text))
}
