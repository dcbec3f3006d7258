/**
 * The endpoints of the core: one per verb, for every path below `/v1` that no other endpoint has. A server without a core loads
 * only these declarations and forwards the requests to a server that has a core.
 */
import type { Endpoint, Route } from '../../platform/operation.ts'
import { header, pathParam, type RawInput } from '../../platform/schema.ts'
import type { Verb } from './parse-request.ts'

/** The restore of a snapshot has an endpoint without this limit. */
const BODY_BYTES_MAX = 32 << 20

const FIELDS = {
  path: pathParam('Path of the secret or of the endpoint'),
  x_vault_namespace: header('Must be the root namespace, which is the only one'),
  x_vault_wrap_ttl: header('TTL of the wrapped response, in seconds or as a duration'),
  x_vault_wrap_format: header('`jwt` for a wrapping token in JWT format'),
  x_vault_mfa: header('Codes of MFA methods: `METHOD:CODE`, several separated by commas'),
  x_vault_index: header(
    'Cluster state that the response must include: the value of this header in an earlier response',
  ),
  cache_control: header('`max-age=SECONDS`: a standby may respond from entries of this age; at most one second'),
  accept: header('`text/event-stream` to receive a stream as server-sent events'),
  last_event_id: header('ID of the last event received, to resume the stream after it'),
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

/** A few paths accept a body with DELETE: the nonce of the attempt to cancel. */
const HAS_BODY: ReadonlySet<Verb> = new Set<Verb>(['write', 'patch', 'delete'])

function endpointOf(verb: Verb, http: readonly Route[]): Endpoint<RawInput> {
  return {
    name: `secrets.${verb}`,
    summary: 'Call an endpoint of the secrets core or access a secret',
    http,
    target: 'server',
    // The core parses the input itself, because the fields depend on the path.
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

export const CORE_VERBS = VERBS.map(([verb, http]) => ({ verb, endpoint: endpointOf(verb, http) }))

export const READ_VERBS = CORE_VERBS.filter(({ verb }) => ['read', 'list', 'scan'].includes(verb))

/** Name of the endpoint of reads. */
export const CORE_READ = 'secrets.read'

export const CORE_ENDPOINTS = CORE_VERBS.map(({ endpoint }) => endpoint)

/**
 * The call of an agent to the core over NATS: to log in by AppRole, where the secret ID may be wrapped, and to renew or revoke its
 * own token. It has no HTTP route, so only another process of the cluster can call it.
 */
export const AGENT_LOGIN: Endpoint<RawInput> = {
  name: 'secrets.agent_login',
  summary: 'Log in with AppRole and renew or revoke the token, for agents',
  http: [],
  target: 'server',
  input: { fields: { path: FIELDS.path }, parse: (raw) => raw },
  output: 'answer',
  errorFormat: 'errors',
  ownToken: true,
  authorize: () => undefined,
}

const TOKEN_SELF_PATHS = /^(?:auth\/token\/(?:renew|revoke)-self|sys\/wrapping\/(?:lookup|unwrap))$/

/** True for the paths that an agent may write to. `mountType`: the type of the path's mount. */
export function isAgentPath(path: string, mountType: string | undefined): boolean {
  return TOKEN_SELF_PATHS.test(path) || (/^auth(?:\/[\w-][\w.-]*)+\/login$/.test(path) && mountType === 'approle')
}
