/**
 * What of a request or an answer a device may see. Every text in the data is replaced by its HMAC under the device's own
 * key, so that an operator who knows a value can look for it (`sys/audit-hash`) and a reader of the file learns none.
 * Names of fields, numbers, booleans and null stay as they are, as in the compatible system.
 *
 * Data of more than `VALUES_MAX` values is hashed by the field, as JSON text, and what has more fields than that as a whole: whoever
 * may send a megabyte could otherwise have a second spent on the HMACs of half a million values, for one line.
 */
import type { KeyedHash } from '../../platform/keyed-hash.ts'

/** Levels of nesting that are shown; what lies deeper is left out. The request itself may be as deep as its parser allows. */
const DEPTH_MAX = 64
const TOO_DEEP = 'hmac-sha256:too-deep'

/** The HMAC of a text as devices write it: `hmac-sha256:` and 64 hexadecimal digits. */
export function hashed(key: KeyedHash, text: string): string {
  return `hmac-sha256:${key.digest(text, 'hex')}`
}

/** Values that are hashed one by one, for one request or answer: some 20 ms. */
export const VALUES_MAX = 10_000

/** The same value with each text replaced by its HMAC. */
export function hashedValue(key: KeyedHash, value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return hashed(key, value)
  if (typeof value !== 'object' || value === null) return value
  if (depth >= DEPTH_MAX) return TOO_DEEP
  if (Array.isArray(value)) return value.map((each) => hashedValue(key, each, depth + 1))
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, hashedValue(key, each, depth + 1)]))
}

/** As `hashedValue` for the data of a request or an answer; the fields named `shown`, at its top, stay as they are. */
export function hashedData(
  key: KeyedHash,
  data: Readonly<Record<string, unknown>>,
  shown: readonly string[],
): Record<string, unknown> {
  const fields = Object.entries(data)
  if (fields.length > VALUES_MAX) return { 'hmac-sha256': hashed(key, JSON.stringify(data)) }
  const isLong = valuesIn(data, 0) > VALUES_MAX
  const shownAs = (value: unknown) => (isLong ? hashedField(key, value) : hashedValue(key, value))
  return Object.fromEntries(fields.map(([name, value]) => [name, shown.includes(name) ? value : shownAs(value)]))
}

/** The HMAC of a text, or of anything else as JSON. */
function hashedField(key: KeyedHash, value: unknown): unknown {
  if (typeof value === 'string') return hashed(key, value)
  return typeof value === 'object' && value !== null ? hashed(key, JSON.stringify(value)) : value
}

/** Values of all kinds, counted no further than just beyond the most. */
function valuesIn(value: unknown, before: number): number {
  if (typeof value !== 'object' || value === null) return before + 1
  let count = before + 1
  for (const name in value) {
    count = valuesIn(Reflect.get(value, name), count)
    if (count > VALUES_MAX) return count
  }
  return count
}

/** A list's answer with the number of its names in their place. */
export function elided(data: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const { key_info: info, keys, ...rest } = data
  return {
    ...rest,
    ...(Array.isArray(keys) && { keys: keys.length }),
    ...(typeof info === 'object' && info !== null && { key_info: Object.keys(info).length }),
  }
}
