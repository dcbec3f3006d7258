/**
 * The names that `-field` takes, which are those that a table shows: of a token, of a wrapping token and of a lease they differ
 * from the names in the response. Every other name is a key of `data`.
 */
import type { Answer } from './answer.ts'
import { UsageError } from '../framework/options.ts'
import { isJsonObject } from './exact-json.ts'

const TOKEN_METADATA = 'token_meta_'

/** From the name that a table shows to the one in the block `auth`. */
const AUTH_FIELDS = mapOf({
  token: 'client_token',
  token_accessor: 'accessor',
  token_duration: 'lease_duration',
  token_renewable: 'renewable',
  token_policies: 'token_policies',
  identity_policies: 'identity_policies',
  policies: 'policies',
})
/** The same of `wrap_info`. */
const WRAP_FIELDS = mapOf({
  wrapping_token: 'token',
  wrapping_accessor: 'accessor',
  wrapping_token_ttl: 'ttl',
  wrapping_token_creation_time: 'creation_time',
  wrapping_token_creation_path: 'creation_path',
  wrapped_accessor: 'wrapped_accessor',
})
/** The same of the response itself. */
const LEASE_FIELDS = mapOf({
  lease_id: 'lease_id',
  lease_duration: 'lease_duration',
  lease_renewable: 'renewable',
  refresh_interval: 'lease_duration',
})

function mapOf(names: Readonly<Record<string, string>>): ReadonlyMap<string, string> {
  return new Map(Object.entries(names))
}

/** The value of a field; undefined where the response has none of that name. */
export function secretField(fields: Answer, name: string): unknown {
  const auth = fields.under('auth')
  const authName = AUTH_FIELDS.get(name)
  if (authName !== undefined && auth.value(authName) !== undefined) return auth.value(authName)
  if (name.startsWith(TOKEN_METADATA) && fields.value('auth')) {
    return auth.under('metadata').value(name.slice(TOKEN_METADATA.length))
  }
  const wrapName = WRAP_FIELDS.get(name)
  if (wrapName !== undefined && isJsonObject(fields.value('wrap_info')))
    return fields.under('wrap_info').value(wrapName)
  const leaseName = LEASE_FIELDS.get(name)
  return fields.under('data').value(name) ?? (leaseName === undefined ? undefined : fields.value(leaseName))
}

/** Throws UsageError for a field that no response with a new token has, so that no token is created for nothing. */
export function requireTokenField(name: string | undefined): void {
  if (name === undefined || AUTH_FIELDS.has(name) || LEASE_FIELDS.has(name) || name.startsWith(TOKEN_METADATA)) return
  throw unknownField(name, 'a response with a token', [...AUTH_FIELDS.keys(), `${TOKEN_METADATA}NAME`])
}

/** Throws UsageError for a field that no wrapped response has: the wrapping token would be lost. */
export function requireWrapField(name: string | undefined): void {
  if (name === undefined || WRAP_FIELDS.has(name)) return
  throw unknownField(name, 'a response with -wrap-ttl', [...WRAP_FIELDS.keys()])
}

function unknownField(name: string, response: string, known: readonly string[]): UsageError {
  return new UsageError(`option -field: ${response} has no field ${JSON.stringify(name)}, it has ${known.join(', ')}`)
}
