/**
 * The names for `-field`, which are those of the table. For tokens, wrapping tokens and leases they differ from the names in the
 * response. All other names are keys of `data`.
 */
import type { JsonFields } from './json.ts'
import { UsageError } from '../framework/options.ts'
import { isJsonObject } from './json.ts'

const TOKEN_METADATA = 'token_meta_'

/** Names of the table to names in `auth`. */
const AUTH_FIELDS = mapOf({
  token: 'client_token',
  token_accessor: 'accessor',
  token_duration: 'lease_duration',
  token_renewable: 'renewable',
  token_policies: 'token_policies',
  identity_policies: 'identity_policies',
  policies: 'policies',
})
/** Names of the table to names in `wrap_info`. */
const WRAP_FIELDS = mapOf({
  wrapping_token: 'token',
  wrapping_accessor: 'accessor',
  wrapping_token_ttl: 'ttl',
  wrapping_token_creation_time: 'creation_time',
  wrapping_token_creation_path: 'creation_path',
  wrapped_accessor: 'wrapped_accessor',
})
/** Names of the table to names in the response. */
const LEASE_FIELDS = mapOf({
  lease_id: 'lease_id',
  lease_duration: 'lease_duration',
  lease_renewable: 'renewable',
  refresh_interval: 'lease_duration',
})

function mapOf(names: Readonly<Record<string, string>>): ReadonlyMap<string, string> {
  return new Map(Object.entries(names))
}

/** The value of a field; undefined if the response has no such field. */
export function secretField(fields: JsonFields, name: string): unknown {
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

/** Throws UsageError before a token is created, for a field that the response cannot have. */
export function requireTokenField(name: string | undefined): void {
  if (name === undefined || AUTH_FIELDS.has(name) || LEASE_FIELDS.has(name) || name.startsWith(TOKEN_METADATA)) return
  throw unknownField(name, 'a response with a token', [...AUTH_FIELDS.keys(), `${TOKEN_METADATA}NAME`])
}

/** Throws UsageError for a field that a wrapped response cannot have, because the wrapping token would be lost. */
export function requireWrapField(name: string | undefined): void {
  if (name === undefined || WRAP_FIELDS.has(name)) return
  throw unknownField(name, 'a response with -wrap-ttl', [...WRAP_FIELDS.keys()])
}

function unknownField(name: string, response: string, known: readonly string[]): UsageError {
  return new UsageError(
    `option -field: ${response} has no field ${JSON.stringify(name)}, its fields are ${known.join(', ')}`,
  )
}
