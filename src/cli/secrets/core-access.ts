/**
 * How commands talk to the secrets core: paths below `/v1/`, JSON whose numbers stay as they are, and errors that name
 * the next command when the core is sealed or was never initialised.
 */
import type { IncomingMessage } from 'node:http'
import { agentOptions } from '../agent-access.ts'
import { type Answer, fieldsOf } from '../answer.ts'
import { CommandError, type CommandIo } from '../command-shape.ts'
import {
  type AgentRequest,
  type AgentTarget,
  agentTarget,
  openResponse,
  type Query,
  RefusedByAgent,
  refusalOf,
  responseText,
} from '../http-client.ts'
import { text, UsageError } from '../options.ts'
import { isJsonObject, parseExact } from './exact-json.ts'

/** Of every command that asks the core. */
export const coreOptions = {
  namespace: text({
    placeholder: 'NAME',
    help: 'Namespace; there is only the root one so far',
    fallback: undefined,
    shownDefault: 'VAULT_NAMESPACE',
  }),
  ...agentOptions,
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
  readonly 'wrap-ttl'?: string | undefined
}

/** Throws CommandError. */
export function coreOf(values: AccessValues, io: CommandIo): CoreAccess {
  const namespace = values.namespace ?? (io.env['VAULT_NAMESPACE'] || undefined)
  const wrapTtl = values['wrap-ttl']
  return {
    target: agentTarget(io.env, values.address),
    headers: {
      'X-Vault-Request': 'true',
      ...(namespace === undefined ? {} : { 'X-Vault-Namespace': namespace }),
      ...(wrapTtl === undefined ? {} : { 'X-Vault-Wrap-TTL': wrapTtl }),
    },
  }
}

export interface CoreRequest {
  readonly method?: Exclude<AgentRequest['method'], undefined>
  /** Below `/v1/`, as people write it. */
  readonly path: string
  readonly query?: Query
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
}

/** What the core answered. */
export interface CoreAnswer {
  readonly status: number
  /** Undefined when the answer has no body. */
  readonly body: unknown
  /** The same, to be read without trust. */
  readonly fields: Answer
}

/**
 * Sends a request. Undefined: nothing is there (404 without a word). A 404 that has something to tell, as of a deleted
 * version, is an answer. Throws CommandError.
 */
export async function askCore(core: CoreAccess, request: CoreRequest): Promise<CoreAnswer | undefined> {
  const { path, ...rest } = request
  const response = await openResponse(core.target, {
    ...rest,
    path: urlPath(path),
    headers: { ...core.headers, ...request.headers },
  })
  const status = response.statusCode ?? 0
  const body = await responseText(response, core.target)
  if (status >= 200 && status < 300) return answerOf(status, body, core.target)
  if (status === 404) {
    const parsed = parsedOrNothing(body)
    const hasData = isJsonObject(parsed) && (isJsonObject(parsed['data']) || hasItems(parsed['warnings']))
    if (hasData) return { status, body: parsed, fields: fieldsOf(parsed) }
    if (isJsonObject(parsed) && Array.isArray(parsed['errors']) && parsed['errors'].length === 0) return undefined
  }
  throw await explained(core, response, body)
}

/** The same where there must be something. `what` completes "no value found". Throws CommandError. */
export async function requireCore(core: CoreAccess, request: CoreRequest): Promise<CoreAnswer> {
  const answer = await askCore(core, request)
  if (answer) return answer
  throw new CommandError(`no value found at ${request.path}`)
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

function answerOf(status: number, body: string, target: AgentTarget): CoreAnswer {
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

/** The refusal, and for a core that cannot answer anybody the command that changes that. */
async function explained(core: CoreAccess, response: IncomingMessage, body: string): Promise<RefusedByAgent> {
  const refusal = refusalOf(response, body)
  if (refusal.status !== 503 || !body.includes('Vault is sealed')) return refusal
  const initialised = await isInitialised(core)
  const message = initialised
    ? 'the secrets are sealed, open them with "outpost operator unseal"'
    : 'the secrets core is not initialised, do that with "outpost operator init"'
  return new RefusedByAgent(refusal.status, message)
}

async function isInitialised(core: CoreAccess): Promise<boolean> {
  const response = await openResponse(core.target, { path: '/v1/sys/seal-status' })
  const status = parsedOrNothing(await responseText(response, core.target))
  return !isJsonObject(status) || status['initialized'] !== false
}
