/**
 * How commands talk to the secrets core: paths below `/v1/`, JSON whose numbers stay as they are, and errors that name
 * the next command when the core is sealed or was never initialised.
 */
import type { IncomingMessage } from 'node:http'
import { agentOptions } from '../client/agent-access.ts'
import { type AgentTarget, agentTarget } from '../client/agent-target.ts'
import { type Answer, fieldsOf } from '../output/answer.ts'
import { CommandError, type CommandIo } from '../framework/command-shape.ts'
import { SEALED } from '../../platform/errors.ts'
import {
  type AgentRequest,
  openResponse,
  type Query,
  RefusedByAgent,
  refusalOf,
  responseText,
} from '../client/http-client.ts'
import { text, texts, UsageError } from '../framework/options.ts'
import { readinessOf } from '../client/readiness.ts'
import { shownName } from '../framework/shown.ts'
import { isJsonObject, parseExact } from '../output/exact-json.ts'
import { requireWrapField } from '../output/field-names.ts'
import { openingStep } from './opening-step.ts'
import { hideArguments } from '../input/typed-secret.ts'

const file = (help: string, shownDefault: string) =>
  text({ placeholder: 'FILE', help, fallback: undefined, shownDefault })

/** Of every command that asks the core. */
export const coreOptions = {
  namespace: text({
    placeholder: 'NAME',
    help: 'Namespace; there is only the root one so far',
    fallback: undefined,
    shownDefault: 'VAULT_NAMESPACE',
  }),
  mfa: texts('METHOD:CODE', 'A code of an MFA method that a policy asks for (OUTPOST_MFA, VAULT_MFA)'),
  'ca-cert': file("The authorities to trust with https, instead of the system's", 'OUTPOST_CACERT'),
  'client-cert': file('The certificate to show where one is asked for', 'OUTPOST_CLIENT_CERT'),
  'client-key': file('Its key', 'OUTPOST_CLIENT_KEY'),
  ...agentOptions,
  address: text({
    placeholder: 'URL',
    help: 'The server to talk to',
    fallback: undefined,
    shownDefault: 'OUTPOST_ADDR, else VAULT_ADDR, else NOMAD_ADDR, else http://127.0.0.1:4646',
  }),
}

export const wrapOption = {
  'wrap-ttl': text({
    placeholder: 'DURATION',
    help: 'Wrap the answer in a token that can be used once, within this time',
    fallback: undefined,
    check: (value) => (/^\d+(?:[smhd]|[0-9smhd]*[smhd])?$/.test(value) ? undefined : 'must be a duration such as 5m'),
  }),
}

/** What a PATCH says of its body. */
export const MERGE_PATCH = { 'Content-Type': 'application/merge-patch+json' }

export interface CoreAccess {
  readonly target: AgentTarget
  readonly headers: Readonly<Record<string, string>>
}

interface AccessValues {
  readonly address: string | undefined
  readonly namespace: string | undefined
  readonly mfa?: readonly string[]
  readonly 'ca-cert': string | undefined
  readonly 'client-cert': string | undefined
  readonly 'client-key': string | undefined
  readonly 'wrap-ttl'?: string | undefined
  readonly field?: string | undefined
}

/** Throws CommandError, and UsageError for a -field that a wrapped response cannot have. */
export function coreOf(values: AccessValues, io: CommandIo): CoreAccess {
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

/** Codes, which are good once, go in one header; the option outranks the variable. Throws UsageError. */
function mfaOf(given: readonly string[], io: CommandIo): string {
  if (given.length > 0) hideArguments()
  const codes = given.length > 0 ? given.join(',') : (io.env['OUTPOST_MFA'] ?? '') || (io.env['VAULT_MFA'] ?? '')
  // Not the text itself: it holds codes.
  if (/[^\x20-\x7e]/.test(codes)) throw new UsageError('a code is given as -mfa METHOD:CODE, and something is not')
  return codes
}

/** The options outrank the variables. */
function withFiles(env: NodeJS.ProcessEnv, values: AccessValues): NodeJS.ProcessEnv {
  const given = {
    OUTPOST_CACERT: values['ca-cert'],
    OUTPOST_CLIENT_CERT: values['client-cert'],
    OUTPOST_CLIENT_KEY: values['client-key'],
  }
  return { ...env, ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) }
}

export interface CoreRequest {
  readonly method?: Exclude<AgentRequest['method'], undefined>
  /** Below `/v1/`, as people write it. */
  readonly path: string
  readonly query?: Query
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
  /** Ends it, whatever it waits for. */
  readonly signal?: AbortSignal
}

/** What the core answered. */
export interface CoreAnswer {
  readonly status: number
  /** Undefined when the answer has no body. */
  readonly body: unknown
  /** The same, to be read without trust. */
  readonly fields: Answer
  /** True for a GET: the same request may be sent again. What it has made all the same, the response says. */
  readonly isRepeatable: boolean
}

/** The exit code of the field's commands for a change that the server refuses with 404. */
const NOT_CHANGED = 2

/**
 * Sends a request. To a GET, undefined means that nothing is at the path (404 without a text); a 404 that has data or warnings, as
 * of a deleted version, is an answer. To every other method a 404 is an error that contains the warnings: nothing was changed.
 * Throws CommandError.
 */
export async function askCore(core: CoreAccess, request: CoreRequest): Promise<CoreAnswer | undefined> {
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
  throw await explained(core, response, body)
}

function notChanged(path: string, fields: Answer): CommandError {
  const given = fields.value('warnings')
  const warnings = Array.isArray(given) ? given.map((warning) => (typeof warning === 'string' ? warning : '')) : []
  const why = warnings.filter(Boolean).join('; ') || 'no value found'
  return new CommandError(`nothing was changed at ${path}: ${why} (HTTP 404)`, NOT_CHANGED)
}

/** The same where there must be something. `what` completes "no value found". Throws CommandError. */
export async function requireCore(core: CoreAccess, request: CoreRequest): Promise<CoreAnswer> {
  const answer = await askCore(core, request)
  if (answer && answer.status !== 404) return answer
  throw new CommandError(`no value found at ${request.path}`)
}

/** What waits for nothing is answered by then, or is not answered at all. */
export const ANSWER_MS = 15_000

/** The same for what has a short answer at once. Throws CommandError. */
export function briefly(core: CoreAccess, request: CoreRequest, signal: AbortSignal): Promise<CoreAnswer> {
  return requireCore(core, { ...request, signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]) })
}

/** With slashes neither doubled nor at an end. Throws UsageError for a path that would lead elsewhere. */
export function cleanPath(path: string): string {
  const segments = path
    .trim()
    .replace(/^\/v1\//, '')
    .split('/')
    .filter(Boolean)
  if (segments.length === 0) throw new UsageError('the path is empty')
  if (segments.some((segment) => segment === '.' || segment === '..')) {
    throw new UsageError(`${JSON.stringify(path)} has a "." or ".." in it, which no path of secrets may have`)
  }
  return segments.join('/')
}

function urlPath(path: string): string {
  return `/v1/${cleanPath(path).split('/').map(encodeURIComponent).join('/')}`
}

function answerOf(status: number, body: string, target: AgentTarget): Omit<CoreAnswer, 'isRepeatable'> {
  if (body === '') return { status, body: undefined, fields: fieldsOf(undefined) }
  const parsed = parsedOrNothing(body)
  if (isJsonObject(parsed)) return { status, body: parsed, fields: fieldsOf(parsed) }
  throw new CommandError(`${target.url.origin} answered with something that is not JSON, is it an outpost server?`)
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

/** Throws the refusal unless the answer is a success, and reads its body only then. For answers that are streams. */
export async function requireCoreSuccess(core: CoreAccess, response: IncomingMessage): Promise<void> {
  const status = response.statusCode ?? 0
  if (status < 200 || status >= 300) throw await explained(core, response, await responseText(response, core.target))
}

/** The refusal; for a server that cannot answer anybody, with what changes that. */
async function explained(core: CoreAccess, response: IncomingMessage, body: string): Promise<RefusedByAgent> {
  const refusal = refusalOf(response, body, core.target)
  const say = (message: string) => new RefusedByAgent(refusal.status, message)
  if (refusal.status === 404 && refusal.message.includes('no handler for route "/v1/')) {
    return say(
      `${core.target.url.origin} keeps no secrets, set ${core.target.from ?? 'OUTPOST_ADDR'} to a server that does`,
    )
  }
  if (refusal.status === 404 && refusal.message.includes('route entry not found')) {
    return say(`${refusal.message}, "outpost secrets list" shows what is enabled`)
  }
  const factor = /^(?:.*?: )?(.*?)\.? ?[aA] policy asks for a second factor.* MFA methods (.+) as X-Vault-MFA/.exec(
    refusal.message,
  )
  if (refusal.status === 403 && factor) {
    const [, why = '', methods = ''] = factor
    const asked = `a policy asks for an unused code of ${methods}, give it as -mfa METHOD:CODE or in OUTPOST_MFA`
    return say(`permission denied: ${why === '' ? asked : `${why}; ${asked}`} (HTTP 403)`)
  }
  if (refusal.status !== 503 || !body.includes(SEALED)) return refusal
  const seal = await sealStatus(core)
  if (seal.value('initialized') !== false) return say(`the secrets are sealed, next: ${openingStep(seal)}`)
  const reason = (await readinessOf(core.target))?.checks.find(({ name }) => name === 'seal')?.reason ?? ''
  // The server knows of another one that has the core.
  return say(reason.includes('secrets = false') ? shownName(reason) : NOT_INITIALISED)
}

const NOT_INITIALISED =
  'the secrets core is not initialised, do that with "outpost operator init", or restore a snapshot into it: "outpost operator snapshot restore -new FILE"'

async function sealStatus(core: CoreAccess): Promise<Answer> {
  const response = await openResponse(core.target, { path: '/v1/sys/seal-status' })
  return fieldsOf(parsedOrNothing(await responseText(response, core.target)))
}
