/**
 * Query parameters that the endpoints of a server share: prefix, filter, pages, blocking queries, region, namespace. Names, rules
 * and error texts are those of the compatible system.
 */
import { parseDurationMs } from '../../platform/duration.ts'
import { Refusal } from '../../platform/errors.ts'
import type { Identity, NamespaceCapability } from '../../platform/operation.ts'
import {
  type Field,
  isUuid,
  parseBoolean,
  parseInteger,
  queryBoolean,
  queryText,
  queryValue,
  type RawInput,
} from '../../platform/schema.ts'
import type { RosterQueries } from '../roster/roster-queries.ts'

/** Services that the handlers of a server need. */
export interface ServerDeps {
  readonly queries: RosterQueries
  /** Region of this server. */
  readonly region: string
}

const WAIT_DEFAULT_MS = 5 * 60_000
const WAIT_MAX_MS = 10 * 60_000

function field<T>(type: Field<T>['type'], description: string, parse: (text: string | undefined) => T): Field<T> {
  const read = (raw: RawInput, name: string) => parse(queryValue(raw, name))
  return { in: 'query', type, description, required: false, parse: read }
}

/** Without an effect, but validated. */
const stale = field('boolean', 'No effect: each server uses its own roster', (text) => {
  if (text !== undefined && parseBoolean(text) === undefined) {
    throw new Refusal('invalid_request', 'Expect `true` or `false` for `stale` query string parameter')
  }
})

const index = field('integer', 'Blocking query: wait for a change after this index', (text) => {
  const value = text === undefined ? 0 : parseInteger(text)
  if (typeof value === 'string' || value < 0) throw new Refusal('invalid_request', 'Invalid index')
  return value
})

const wait = field('string', 'Timeout of a blocking query, at most 10m', (text) => {
  const ms = text === undefined ? WAIT_DEFAULT_MS : parseDurationMs(text)
  if (ms === undefined || ms < 0) throw new Refusal('invalid_request', 'Invalid wait time')
  return Math.min(ms === 0 ? WAIT_DEFAULT_MS : ms, WAIT_MAX_MS)
})

const perPage = field('integer', 'Records of a page; 0: all', (text) => {
  const value = text === undefined ? 0 : parseInteger(text)
  if (typeof value === 'string' || value < 0) {
    throw new Refusal('invalid_request', 'Expect a number for `per_page` query string parameter')
  }
  return value
})

const region = queryText({ description: 'Region; only that of this server is supported', fallback: undefined })

/** Parameters of each read. */
export const readFields = { region, stale, index, wait }

/** Parameters of each list. */
export const listFields = {
  ...readFields,
  filter: queryText({ description: 'Filter expression', fallback: undefined }),
  per_page: perPage,
  next_token: queryText({
    description: 'Start of the page: X-Nomad-NextToken of the previous one',
    fallback: undefined,
  }),
  reverse: queryBoolean({ description: 'Descending order', fallback: false }),
}

/** Endpoints that answer with one record, at once or after a change (`?index=`). */
export const READ_ENDPOINT = {
  target: 'server',
  output: 'json',
  errorFormat: 'plain',
} as const

/** Endpoints that answer with a list of records, optionally in pages. */
export const LIST_ENDPOINT = { ...READ_ENDPOINT, output: 'stream', produces: 'application/json' } as const

export const prefixField = queryText({ description: 'Prefix of the IDs', fallback: '' })
export const namespaceField = queryText({
  description: 'Namespace; * for all that the caller may list',
  fallback: 'default',
})

export interface ReadInput {
  readonly region: string | undefined
  readonly index: number
  /** In milliseconds. */
  readonly wait: number
}

export interface ListInput extends ReadInput {
  readonly filter: string | undefined
  readonly per_page: number
  readonly next_token: string | undefined
  readonly reverse: boolean
}

/** Another region is not reachable. */
export function requireRegion(requested: string | undefined, own: string): void {
  if (requested !== undefined && requested !== own) throw new Refusal('host_error', 'No path to region')
}

/** Normalizes a prefix: an even number of hexadecimal digits, with or without hyphens. */
export function uuidPrefix(text: string, what: 'node' | 'alloc'): string {
  const digits = text.replaceAll('-', '').toLowerCase()
  const refuse = (reason: string) => new Refusal('invalid_request', `${what} lookup failed: index error: ${reason}`)
  const hyphens = text.length - digits.length
  if (hyphens > 4) throw refuse(`UUID should have maximum of 4 "-"; got ${hyphens}`)
  if (digits.length % 2 !== 0) throw refuse('Input (without hyphens) must be even length')
  if (!/^[0-9a-f]*$/.test(digits)) throw refuse('Invalid UUID: prefix must be hexadecimal digits')
  const parts = [digits.slice(0, 8), digits.slice(8, 12), digits.slice(12, 16), digits.slice(16, 20), digits.slice(20)]
  return parts.filter((part) => part !== '').join('-')
}

export function requireUuid(id: string, what: 'node' | 'alloc'): void {
  if (isUuid(id)) return
  const reason = id.length === 36 ? 'Invalid UUID' : 'UUID must be 36 characters'
  throw new Refusal('invalid_request', `${what} lookup failed: index error: ${reason}`)
}

/** Throws a Refusal for a namespace in which the caller lacks the capability. With `*` the list is filtered instead. */
export function requireNamespace(namespace: string, identity: Identity, capability: NamespaceCapability): void {
  if (namespace === '*' || identity.allowsNamespace(namespace, capability)) return
  throw new Refusal('permission_denied', 'Permission denied')
}

export function requireNode(identity: Identity): void {
  if (!identity.allowsNode('read')) throw new Refusal('permission_denied', 'Permission denied')
}
