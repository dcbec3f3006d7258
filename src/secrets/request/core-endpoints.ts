/**
 * The endpoints of the core: one for each verb, for every path that no other endpoint has. A server without a core needs no
 * more of them, and asks one that has it.
 */
import type { Endpoint, Route } from '../../platform/operation.ts'
import { header, pathParam, type RawInput } from '../../platform/schema.ts'
import type { Verb } from './request.ts'

/** A snapshot's restore goes its own way; of everything else this is the most that anybody may send. */
const BODY_BYTES_MAX = 32 << 20

const FIELDS = {
  path: pathParam('Path of the secret or of the endpoint'),
  x_vault_namespace: header('Only the root namespace is there'),
  x_vault_wrap_ttl: header('How long the wrapped answer may be taken, in seconds or as a duration'),
  x_vault_wrap_format: header('`jwt` for a wrapping token of that form'),
  x_vault_mfa: header('Codes of MFA methods: `METHOD:CODE`, several separated by commas'),
  accept: header('`text/event-stream` for what is told as it happens as server-sent events'),
  last_event_id: header('The last event that was received, to go on behind it'),
  content_type: header('Must be `application/merge-patch+json` for a PATCH'),
}

const VERBS: readonly (readonly [Verb, readonly Route[]])[] = [
  ['read', ['GET /v1/:path']],
  ['write', ['POST /v1/:path', 'PUT /v1/:path']],
  ['patch', ['PATCH /v1/:path']],
  ['delete', ['DELETE /v1/:path']],
  ['list', ['LIST /v1/:path']],
  ['scan', ['SCAN /v1/:path']],
]

/** Few paths take one of a DELETE: the nonce of an attempt that is to be cancelled. */
const HAS_BODY: ReadonlySet<Verb> = new Set<Verb>(['write', 'patch', 'delete'])

function endpointOf(verb: Verb, http: readonly Route[]): Endpoint<RawInput> {
  return {
    name: `secrets.${verb}`,
    summary: 'A secret, or an endpoint of the secrets core',
    http,
    target: 'server',
    // The core reads it itself: what is wrong depends on the path.
    input: { fields: FIELDS, parse: (raw) => raw },
    output: 'answer',
    errorFormat: 'errors',
    ownToken: true,
    crossOrigin: 'configured',
    bodyBytesMax: HAS_BODY.has(verb) ? BODY_BYTES_MAX : 0,
    bodyTooLarge: 'http: request body too large',
    authorize: () => undefined,
  }
}

/** Each with the verb that it stands for. */
export const CORE_VERBS = VERBS.map(([verb, http]) => ({ verb, endpoint: endpointOf(verb, http) }))

/** Those of reading. */
export const READ_VERBS = CORE_VERBS.filter(({ verb }) => ['read', 'list', 'scan'].includes(verb))

export const CORE_ENDPOINTS = CORE_VERBS.map(({ endpoint }) => endpoint)

/**
 * What an agent asks servers of the core over NATS: to log in by AppRole, with a secret ID that may be wrapped, and to renew and
 * revoke its own token. It has no route: only another process of the cluster can ask.
 */
export const AGENT_LOGIN: Endpoint<RawInput> = {
  name: 'secrets.agent_login',
  summary: 'A login by AppRole, or what a token asks about itself, for an agent',
  http: [],
  target: 'server',
  input: { fields: { path: FIELDS.path }, parse: (raw) => raw },
  output: 'answer',
  errorFormat: 'errors',
  ownToken: true,
  authorize: () => undefined,
}

const OF_A_TOKEN = /^(?:auth\/token\/(?:renew|revoke)-self|sys\/wrapping\/(?:lookup|unwrap))$/

/** True for a path that an agent may write to, on a mount of this type where it is a login. */
export function isForAgents(path: string, mountType: string | undefined): boolean {
  return OF_A_TOKEN.test(path) || (/^auth(?:\/[\w-][\w.-]*)+\/login$/.test(path) && mountType === 'approle')
}
