/**
 * Requests of commands to the secrets core: paths below `/v1/`, JSON whose numbers keep their text, and errors that name the next
 * command if the server is sealed or not initialized.
 */
import type { IncomingMessage } from 'node:http'
import { SEALED } from '../../platform/errors.ts'
import { agentOptions, type AgentTarget, agentTarget } from '../client/agent-target.ts'
import {
  type AgentRequest,
  openResponse,
  type Query,
  refusalOf,
  AgentRefusal,
  responseText,
  parseJson,
} from '../client/http-client.ts'
import { CommandError, type CommandIo } from '../framework/define-command.ts'
import { text, texts, UsageError } from '../framework/options.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { hideArguments } from '../input/secret-input.ts'
import { requireWrapField } from '../output/field-names.ts'
import { type JsonFields, fieldsOf, isJsonObject, parseExact } from '../output/json.ts'

const file = (help: string, shownDefault: string) =>
  text({ placeholder: 'FILE', help, fallback: undefined, shownDefault })

/** Options of every command for secrets. */
export const coreOptions = {
  namespace: text({
    placeholder: 'NAME',
    help: 'Namespace; must be the root namespace',
    fallback: undefined,
    shownDefault: 'VAULT_NAMESPACE',
  }),
  mfa: texts('METHOD:CODE', 'MFA code to send instead of OUTPOST_MFA or VAULT_MFA'),
  'ca-cert': file('CA certificates to trust instead of those of the system', 'OUTPOST_CACERT'),
  'client-cert': file('Client certificate', 'OUTPOST_CLIENT_CERT'),
  'client-key': file('Private key of the client certificate', 'OUTPOST_CLIENT_KEY'),
  ...agentOptions,
  address: text({
    placeholder: 'URL',
    help: 'Address of the server',
    fallback: undefined,
    shownDefault: 'OUTPOST_ADDR, else VAULT_ADDR, else NOMAD_ADDR, else http://127.0.0.1:4646',
  }),
}

export const wrapOption = {
  'wrap-ttl': text({
    placeholder: 'DURATION',
    help: 'Wrap the response in a token with this TTL',
    fallback: undefined,
    check: (value) => (/^\d+(?:[smhd]|[0-9smhd]*[smhd])?$/.test(value) ? undefined : 'must be a duration such as 5m'),
  }),
}

/** Header of every PATCH. */
export const MERGE_PATCH = { 'Content-Type': 'application/merge-patch+json' }

export interface CoreAccess {
  readonly target: AgentTarget
  readonly headers: Readonly<Record<string, string>>
}

interface AccessOptions {
  readonly address: string | undefined
  readonly namespace: string | undefined
  readonly mfa?: readonly string[]
  readonly 'ca-cert': string | undefined
  readonly 'client-cert': string | undefined
  readonly 'client-key': string | undefined
  readonly 'wrap-ttl'?: string | undefined
  readonly field?: string | undefined
}

/** Throws CommandError, and UsageError for a -field that a wrapped response does not have. */
export function coreOf(values: AccessOptions, io: CommandIo): CoreAccess {
  const namespace = values.namespace ?? (io.env['VAULT_NAMESPACE'] || undefined)
  const wrapTtl = values['wrap-ttl']
  if (wrapTtl !== undefined) requireWrapField(values.field)
  const mfa = mfaOf(values.mfa ?? [], io)
  return {
    target: agentTarget(withFiles(io.env, values), 'secrets', values.address),
    headers: {
      'X-Vault-Request': 'true',
      ...(namespace === undefined ? {} : { 'X-Vault-Namespace': namespace }),
      ...(mfa === '' ? {} : { 'X-Vault-MFA': mfa }),
      ...(wrapTtl === undefined ? {} : { 'X-Vault-Wrap-TTL': wrapTtl }),
    },
  }
}

/** The codes for the header; the option overrides the variables. Throws UsageError. */
function mfaOf(given: readonly string[], io: CommandIo): string {
  if (given.length > 0) hideArguments()
  const codes = given.length > 0 ? given.join(',') : (io.env['OUTPOST_MFA'] ?? '') || (io.env['VAULT_MFA'] ?? '')
  // The text is not in the message, because it contains codes.
  if (/[^\x20-\x7e]/.test(codes))
    throw new UsageError('malformed MFA code: expected METHOD:CODE in -mfa or OUTPOST_MFA')
  return codes
}

/** The options override the variables. */
function withFiles(env: NodeJS.ProcessEnv, values: AccessOptions): NodeJS.ProcessEnv {
  const given = {
    OUTPOST_CACERT: values['ca-cert'],
    OUTPOST_CLIENT_CERT: values['client-cert'],
    OUTPOST_CLIENT_KEY: values['client-key'],
  }
  return { ...env, ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) }
}

/** Timeout of requests that a server answers without waiting for anything: a frozen process must not look slow. */
export const STATUS_TIMEOUT_MS = 10_000

export interface CoreRequest {
  readonly method?: Exclude<AgentRequest['method'], undefined>
  /** Below `/v1/`. */
  readonly path: string
  readonly query?: Query
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  /** Timeout for the response head. */
  readonly headTimeoutMs?: number
  /** Aborts the request. */
  readonly signal?: AbortSignal
}

export interface CoreResponse {
  readonly status: number
  /** Undefined without a body. */
  readonly body: unknown
  /** The body with default values for missing fields. */
  readonly fields: JsonFields
  /** True for a GET: the request can be repeated. */
  readonly isRepeatable: boolean
}

/** Exit code of `vault` for a change that the server answers with 404. */
const NOT_CHANGED = 2

/**
 * Sends a request. For a GET, undefined means that the path does not exist (404 without a text), and a 404 with data or warnings, as of
 * a deleted version, is a response. For other methods, a 404 is an error that contains the warnings: nothing was changed. Throws
 * CommandError.
 */
export async function sendRequest(core: CoreAccess, request: CoreRequest): Promise<CoreResponse | undefined> {
  const { path, ...rest } = request
  const response = await openResponse(core.target, {
    ...rest,
    path: urlPath(path),
    headers: { ...core.headers, ...request.headers },
  })
  const status = response.statusCode ?? 0
  const isRepeatable = (request.method ?? 'GET') === 'GET'
  const body = await responseText(response, core.target)
  if (status >= 200 && status < 300) return { ...answerOf(status, body, core.target), isRepeatable }
  if (status === 404) {
    const parsed = parsedOrNothing(body)
    const hasData = isJsonObject(parsed) && (isJsonObject(parsed['data']) || hasItems(parsed['warnings']))
    const isEmpty = isJsonObject(parsed) && Array.isArray(parsed['errors']) && parsed['errors'].length === 0
    if (!isRepeatable && (hasData || isEmpty)) throw notChanged(path, fieldsOf(parsed))
    if (hasData) return { status, body: parsed, fields: fieldsOf(parsed), isRepeatable }
    if (isEmpty) return undefined
  }
  throw await refusalFor(core, response, body)
}

function notChanged(path: string, fields: JsonFields): CommandError {
  const listed = fields.value('warnings')
  const warnings = Array.isArray(listed) ? listed.map((warning) => (typeof warning === 'string' ? warning : '')) : []
  const why = warnings.filter(Boolean).join('; ') || 'no value found'
  return new CommandError(`nothing was changed at ${path}: ${why} (HTTP 404)`, NOT_CHANGED)
}

/** As `sendRequest`; throws CommandError if the path does not exist. */
export async function requireResponse(core: CoreAccess, request: CoreRequest): Promise<CoreResponse> {
  const answer = await sendRequest(core, request)
  if (answer && answer.status !== 404) return answer
  throw new CommandError(`no value found at ${request.path}`)
}

/** Timeout for requests that the server answers without waiting. */
export const QUICK_RESPONSE_MS = 15_000

/** As `requireResponse`, with a short timeout. */
export function requireQuickResponse(
  core: CoreAccess,
  request: CoreRequest,
  signal: AbortSignal,
): Promise<CoreResponse> {
  return requireResponse(core, {
    ...request,
    signal: AbortSignal.any([signal, AbortSignal.timeout(QUICK_RESPONSE_MS)]),
  })
}

/** Removes leading, trailing and double slashes. Throws UsageError for "." and "..". */
export function cleanPath(path: string): string {
  const segments = path
    .trim()
    .replace(/^\/v1\//, '')
    .split('/')
    .filter(Boolean)
  if (segments.length === 0) throw new UsageError('empty path')
  if (segments.some((segment) => segment === '.' || segment === '..')) {
    throw new UsageError(`invalid path ${JSON.stringify(path)}: "." and ".." are not allowed`)
  }
  return segments.join('/')
}

function urlPath(path: string): string {
  return `/v1/${cleanPath(path).split('/').map(encodeURIComponent).join('/')}`
}

function answerOf(status: number, body: string, target: AgentTarget): Omit<CoreResponse, 'isRepeatable'> {
  if (body === '') return { status, body: undefined, fields: fieldsOf(undefined) }
  const parsed = parsedOrNothing(body)
  if (isJsonObject(parsed)) return { status, body: parsed, fields: fieldsOf(parsed) }
  throw new CommandError(`${target.url.origin} did not return JSON, check that it is an outpost server`)
}

function parsedOrNothing(body: string): unknown {
  try {
    return parseExact(body)
  } catch {
    return undefined
  }
}

function hasItems(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0
}

/** For streamed responses: throws the refusal unless the status is 2xx. Reads the body only for an error. */
export async function requireCoreSuccess(core: CoreAccess, response: IncomingMessage): Promise<void> {
  const status = response.statusCode ?? 0
  if (status < 200 || status >= 300) throw await refusalFor(core, response, await responseText(response, core.target))
}

/** The error for a response, with the next step for a server that is sealed, not initialized, or without secrets. */
async function refusalFor(core: CoreAccess, response: IncomingMessage, body: string): Promise<AgentRefusal> {
  const refusal = refusalOf(response, body, core.target)
  const withText = (message: string) => new AgentRefusal(refusal.status, message)
  if (refusal.status === 404 && refusal.message.includes('no handler for route "/v1/')) {
    return withText(
      `${core.target.url.origin} has no secrets core: set ${core.target.from ?? 'OUTPOST_ADDR'} to a server with one`,
    )
  }
  if (refusal.status === 404 && refusal.message.includes('route entry not found')) {
    return withText(`${refusal.message}, check "outpost secrets list"`)
  }
  const factor =
    /^(?:.*?: )?(.*?)\.? ?[aA] policy (?:requires|asks for) a second factor.* MFA methods (.+) as X-Vault-MFA/.exec(
      refusal.message,
    )
  if (refusal.status === 403 && factor) {
    const [, why = '', methods = ''] = factor
    const required = `a policy requires an unused code of ${methods}, use -mfa METHOD:CODE or OUTPOST_MFA`
    return withText(`permission denied: ${why === '' ? required : `${why}; ${required}`} (HTTP 403)`)
  }
  if (refusal.status !== 503 || !body.includes(SEALED)) return refusal
  const seal = await sealStatus(core)
  if (seal.value('initialized') !== false) return withText(`the server is sealed, next: ${unsealStep(seal)}`)
  const reason = (await readinessOf(core.target))?.checks.find(({ name }) => name === 'seal')?.reason ?? ''
  // The server may know another server with the secrets core.
  return withText(reason.includes('secrets = false') ? escapeLine(reason) : NOT_INITIALIZED)
}

const NOT_INITIALIZED =
  'the server is not initialized, next: outpost operator init, or restore a snapshot: outpost operator snapshot restore -new FILE'

async function sealStatus(core: CoreAccess): Promise<JsonFields> {
  const response = await openResponse(core.target, { path: '/v1/sys/seal-status' })
  return fieldsOf(parsedOrNothing(await responseText(response, core.target)))
}

export interface ReadyResponse {
  readonly ready: boolean
  /** `active`, `standby` or `fenced`. */
  readonly role: string
  readonly checks: readonly { readonly name: string; readonly state: string; readonly reason: string }[]
  readonly warnings: readonly string[]
}

/** The response of `/v1/agent/ready`; undefined for a server of another program. Throws CommandError. */
export async function readinessOf(
  target: AgentTarget,
  headTimeoutMs = STATUS_TIMEOUT_MS,
): Promise<ReadyResponse | undefined> {
  const response = await openResponse(target, { path: '/v1/agent/ready', headTimeoutMs })
  const fields = fieldsOf(parseJson(await responseText(response, target)))
  const [checks, warnings] = [fields.value('checks'), fields.value('warnings')]
  if (!Array.isArray(checks)) return undefined
  return {
    ready: fields.boolean('ready'),
    role: fields.text('role') || 'active',
    checks: checks.map((each: unknown) => {
      const check = fieldsOf(each)
      return { name: check.text('name'), state: check.text('state'), reason: check.text('reason') }
    }),
    warnings: Array.isArray(warnings) ? warnings.map(String) : [],
  }
}

/** `seal`: the response of `sys/seal-status`. False for a static seal. */
export function needsKeyShares(seal: JsonFields): boolean {
  return !seal.boolean('recovery_seal') || seal.boolean('migration')
}

/** How to unseal the server; completes "sealed, next: ". */
export function unsealStep(seal: JsonFields): string {
  if (seal.boolean('migration')) return 'outpost operator unseal -migrate'
  if (needsKeyShares(seal)) return 'outpost operator unseal'
  return (
    'the server unseals itself with its static key: make the key available (the server log has the cause), or restart the ' +
    'server if an operator sealed it'
  )
}
