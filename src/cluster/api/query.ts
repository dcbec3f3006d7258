/**
 * What the endpoints of a server have in common in their queries: prefix, filter, pages, waiting for a change, region,
 * namespace. Names, rules and error texts are those of the compatible system.
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

const WAIT_DEFAULT_MS = 5 * 60_000
const WAIT_MAX_MS = 10 * 60_000

function field<T>(type: Field<T>['type'], description: string, parse: (text: string | undefined) => T): Field<T> {
  const read = (raw: RawInput, name: string) => parse(queryValue(raw, name))
  return { in: 'query', type, description, required: false, parse: read }
}

/** What nobody here needs to look at, but what must be well formed. */
const stale = field('boolean', 'Accepted; every server answers for itself', (text) => {
  if (text !== undefined && parseBoolean(text) === undefined) {
    throw new Refusal('invalid_request', 'Expect `true` or `false` for `stale` query string parameter')
  }
})

const index = field('integer', 'Answer when the list has changed behind this index', (text) => {
  const value = text === undefined ? 0 : parseInteger(text)
  if (typeof value === 'string' || value < 0) throw new Refusal('invalid_request', 'Invalid index')
  return value
})

const wait = field('string', 'How long to wait with index, at most 10m', (text) => {
  const ms = text === undefined ? WAIT_DEFAULT_MS : parseDurationMs(text)
  if (ms === undefined || ms < 0) throw new Refusal('invalid_request', 'Invalid wait time')
  return Math.min(ms === 0 ? WAIT_DEFAULT_MS : ms, WAIT_MAX_MS)
})

const perPage = field('integer', 'Records of one page; 0 for all', (text) => {
  const value = text === undefined ? 0 : parseInteger(text)
  if (typeof value === 'string' || value < 0) {
    throw new Refusal('invalid_request', 'Expect a number for `per_page` query string parameter')
  }
  return value
})

const region = queryText({ description: 'Region; only the own one is known', fallback: undefined })

/** Of every read. */
export const readFields = { region, stale, index, wait }

/** Of every list. */
export const listFields = {
  ...readFields,
  filter: queryText({ description: 'Expression that records must match', fallback: undefined }),
  per_page: perPage,
  next_token: queryText({
    description: 'Where the page begins: X-Nomad-NextToken of the one before',
    fallback: undefined,
  }),
  reverse: queryBoolean({ description: 'The other way round', fallback: false }),
}

/** Of every endpoint that answers with one record of this server, now or when it has changed (`?index=`). */
export const READ_ENDPOINT = {
  target: 'server',
  output: 'json',
  errorFormat: 'plain',
} as const

/** The same with a list of records, page by page. */
export const LIST_ENDPOINT = { ...READ_ENDPOINT, output: 'stream', produces: 'application/json' } as const

export const prefixField = queryText({ description: 'What IDs begin with', fallback: '' })
export const namespaceField = queryText({ description: 'Namespace; * for all that may be seen', fallback: 'default' })

export interface ReadInput {
  readonly region: string | undefined
  readonly index: number
  /** Milliseconds. */
  readonly wait: number
}

export interface ListInput extends ReadInput {
  readonly filter: string | undefined
  readonly per_page: number
  readonly next_token: string | undefined
  readonly reverse: boolean
}

/** Another region cannot be reached from here. */
export function requireRegion(asked: string | undefined, own: string): void {
  if (asked !== undefined && asked !== own) throw new Refusal('host_error', 'No path to region')
}

/** What IDs begin with, in the form of IDs. An even number of hexadecimal digits, with or without hyphens. */
export function uuidPrefix(text: string, what: 'node' | 'alloc'): string {
  const digits = text.replaceAll('-', '').toLowerCase()
  const refuse = (why: string) => new Refusal('invalid_request', `${what} lookup failed: index error: ${why}`)
  const hyphens = text.length - digits.length
  if (hyphens > 4) throw refuse(`UUID should have maximum of 4 "-"; got ${hyphens}`)
  if (digits.length % 2 !== 0) throw refuse('Input (without hyphens) must be even length')
  if (!/^[0-9a-f]*$/.test(digits)) throw refuse('Invalid UUID: prefix must be hexadecimal digits')
  const parts = [digits.slice(0, 8), digits.slice(8, 12), digits.slice(12, 16), digits.slice(16, 20), digits.slice(20)]
  return parts.filter((part) => part !== '').join('-')
}

export function requireUuid(id: string, what: 'node' | 'alloc'): void {
  if (isUuid(id)) return
  const why = id.length === 36 ? 'Invalid UUID' : 'UUID must be 36 characters'
  throw new Refusal('invalid_request', `${what} lookup failed: index error: ${why}`)
}

/**
 * Refuses a namespace that the caller may not look into. With `*` everything is allowed here, and what may not be seen is
 * left out of the list.
 */
export function requireNamespace(namespace: string, identity: Identity, capability: NamespaceCapability): void {
  if (namespace === '*' || identity.allowsNamespace(namespace, capability)) return
  throw new Refusal('permission_denied', 'Permission denied')
}

export function requireNode(identity: Identity): void {
  if (!identity.allowsNode('read')) throw new Refusal('permission_denied', 'Permission denied')
}
