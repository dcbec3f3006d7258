/**
 * Replaces the strings in the data of requests and responses by their HMACs under the device's key. An operator who knows a value can
 * search for its HMAC (`sys/audit-hash`), but a reader of the file learns no value. As in Vault, names of fields, numbers, booleans
 * and null are not replaced.
 *
 * If data has more than `VALUES_MAX` values, each field is hashed as JSON text; if it has more fields than that, the whole data is.
 * Otherwise a request of one megabyte could take a second for the HMACs of half a million values.
 */
import type { KeyedHash } from '../../platform/keyed-hash.ts'

/** Deeper levels of nesting are omitted. */
const DEPTH_MAX = 64
const TOO_DEEP = 'hmac-sha256:too-deep'

/** Returns `hmac-sha256:` and 64 hexadecimal digits. */
export function hmacOf(key: KeyedHash, text: string): string {
  return `hmac-sha256:${key.digest(text, 'hex')}`
}

/** Values that are hashed individually per request or response, which takes about 20 ms */
export const VALUES_MAX = 10_000

/** Replaces each string in a value by its HMAC. */
export function hmacValue(key: KeyedHash, value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return hmacOf(key, value)
  if (typeof value !== 'object' || value === null) return value
  if (depth >= DEPTH_MAX) return TOO_DEEP
  if (Array.isArray(value)) return value.map((each) => hmacValue(key, each, depth + 1))
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, hmacValue(key, each, depth + 1)]))
}

/** As `hmacValue`, except for the top-level fields in `plainFields`. */
export function hmacData(
  key: KeyedHash,
  data: Readonly<Record<string, unknown>>,
  plainFields: readonly string[],
): Record<string, unknown> {
  const fields = Object.entries(data)
  if (fields.length > VALUES_MAX) return { 'hmac-sha256': hmacOf(key, JSON.stringify(data)) }
  const isLong = countValues(data, 0) > VALUES_MAX
  const replace = (value: unknown) => (isLong ? hmacField(key, value) : hmacValue(key, value))
  return Object.fromEntries(fields.map(([name, value]) => [name, plainFields.includes(name) ? value : replace(value)]))
}

/** The HMAC of a string, or of the JSON of a list or an object. */
function hmacField(key: KeyedHash, value: unknown): unknown {
  if (typeof value === 'string') return hmacOf(key, value)
  return typeof value === 'object' && value !== null ? hmacOf(key, JSON.stringify(value)) : value
}

/** Counts values of all kinds, and stops above the limit. */
function countValues(value: unknown, before: number): number {
  if (typeof value !== 'object' || value === null) return before + 1
  let count = before + 1
  for (const name in value) {
    count = countValues(Reflect.get(value, name), count)
    if (count > VALUES_MAX) return count
  }
  return count
}

/** Replaces the names of a list by their number. */
export function elideKeys(data: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { key_info: info, keys, ...rest } = data
  return {
    ...rest,
    ...(Array.isArray(keys) && { keys: keys.length }),
    ...(typeof info === 'object' && info !== null && { key_info: Object.keys(info).length }),
  }
}
