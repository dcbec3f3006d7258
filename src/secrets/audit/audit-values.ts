/**
 * What of a request or an answer a device may see. Every text in the data is replaced by its HMAC under the device's own
 * key, so that an operator who knows a value can look for it (`sys/audit-hash`) and a reader of the file learns none.
 * Names of fields, numbers, booleans and null stay as they are, as in the compatible system.
 *
 * Data of more than `VALUES_MAX` values is hashed by the field, as JSON text, and what has more fields than that as a whole: whoever
 * may send a megabyte could otherwise have a second spent on the HMACs of half a million values, for one line.
 */
import type { KeyedHash } from '../../kit/keyed-hash.ts'

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

/** A text in double quotes, as JSON has it. */
const QUOTED = /"((?:[^"\\]|\\.)+)"/g
/** Of an error that is looked through: one that is longer is cut. */
const ERROR_LENGTH_MAX = 4096
/** Of an error, values without quotes are found from this length on: what is shorter is a part of its words by chance. */
const UNQUOTED_LENGTH_MIN = 8
/** How much of a value an error may quote. */
const QUOTED_LENGTH_MAX = 64
/** Texts of data that errors are compared with, in characters, and quotations that are: some 30 ms for both at worst. */
const COMPARED_LENGTH_MAX = 1 << 18
const COMPARED_QUOTES_MAX = 16

/**
 * An error's text with the values of its request's data replaced by their HMACs, as the whole value's where a quotation is cut. What is
 * quoted counts as a value where it is a part of one, and always where there is more than can be compared.
 */
export function withoutValues(key: KeyedHash, error: string, data: Readonly<Record<string, unknown>> = {}): string {
  const texts = textsIn(data)
  const cut = error.length > ERROR_LENGTH_MAX ? `${error.slice(0, ERROR_LENGTH_MAX)}…` : error
  /** By each character: the value that it is a part of. */
  const values = Array.from<string | undefined>({ length: cut.length })
  let compared = 0
  for (const { 0: { length } = '', 1: inner = '', index } of cut.matchAll(QUOTED)) {
    const value = ++compared > COMPARED_QUOTES_MAX ? inner : valueQuoted(unquoted(inner), texts)
    if (value !== undefined) values.fill(value, index + 1, index + length - 1)
  }
  for (const text of new Set(texts)) {
    if (text.length < UNQUOTED_LENGTH_MIN) continue
    const start = text.slice(0, QUOTED_LENGTH_MAX)
    for (let at = cut.indexOf(start); at >= 0; at = cut.indexOf(start, at + start.length)) {
      const { length } = cut.startsWith(text, at) ? text : start
      if (values[at] === undefined || values[at + length - 1] === undefined) values.fill(text, at, at + length)
    }
  }
  return shownWith(values, cut, key)
}

/** The value that a quotation is of; undefined for one that is of none. */
function valueQuoted(inner: string, texts: readonly string[] | undefined): string | undefined {
  const begun = texts?.find((text) => text.startsWith(inner))
  return begun ?? (!texts || texts.some((text) => text.includes(inner)) ? inner : undefined)
}

function shownWith(values: readonly (string | undefined)[], text: string, key: KeyedHash): string {
  let shown = ''
  for (let at = 0; at < text.length; at++) {
    const value = values[at]
    if (value === undefined) shown += text[at] ?? ''
    else if (value !== values[at - 1]) shown += hashed(key, value)
  }
  return shown
}

function unquoted(inner: string): string {
  try {
    return String(JSON.parse(`"${inner}"`))
  } catch {
    return inner
  }
}

/** The texts in data that are not empty; undefined where they are too many or too long. */
function textsIn(data: Readonly<Record<string, unknown>>): readonly string[] | undefined {
  const texts: string[] = []
  const left: unknown[] = [data]
  let [values, length] = [0, 0]
  while (left.length > 0) {
    const value = left.pop()
    if (typeof value === 'string' && value !== '') {
      texts.push(value)
      length += value.length
    } else if (typeof value === 'object' && value !== null) {
      for (const each of Object.values(value)) left.push(each)
    }
    if (++values > VALUES_MAX || left.length > VALUES_MAX || length > COMPARED_LENGTH_MAX) return undefined
  }
  return texts
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
