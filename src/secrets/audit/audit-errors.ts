/**
 * Replaces values in error texts by their HMACs. Errors of endpoints quote values of the request: whole or truncated (with or without
 * `…`), with escapes of JSON or Go, and in nested quotations.
 *
 * The text is searched as it is, and each quotation is unquoted and searched again, with a map from its characters to those of the
 * error. The number of comparisons is bounded; quotations beyond the limit become HMACs without a comparison.
 */
import type { KeyedHash } from '../../platform/keyed-hash.ts'
import { hmacOf, VALUES_MAX } from './audit-hmac.ts'

/** A double-quoted string with escapes. The last one may be truncated. */
const QUOTED = /"((?:[^"\\]|\\[^])*)(?:"|\\?$)/g
const ESCAPE = /\\(?:u([\da-fA-F]{4})|U([\da-fA-F]{8})|x([\da-fA-F]{2})|([^]))/g
const NAMED: Readonly<Record<string, string>> = { a: '\x07', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' }
/** The mark at the end of a truncated text, with the replacement of a character that was cut in half */
const TRUNCATION = /\uFFFD?(?:…|\.\.\.)$/
/** A longer error is truncated. */
const ERROR_LENGTH_MAX = 4096
/** Unquoted values of at least this length are found. A shorter one may be part of the error's own words. */
const UNQUOTED_LENGTH_MIN = 8
/** An unquoted prefix of a value is found from this length on. */
const PREFIX_LENGTH_MIN = 64
/** Limits of the comparison: characters of the data, and quotations of the error */
const COMPARED_LENGTH_MAX = 1 << 18
const COMPARED_QUOTES_MAX = 16
/** Characters of quotations that are unquoted. With these limits an error takes at most about 70 ms. */
const UNQUOTED_LENGTH_MAX = 2048

/** A part of an error after unquoting. */
interface ErrorSpan {
  readonly text: string
  /** The index in the error of each character and of the end. */
  readonly at: readonly number[]
}

/** For each character of an error, the value that contains it. */
type ValueByIndex = (string | undefined)[]

/**
 * Replaces the values of the request's data in an error by their HMACs; a truncated quotation becomes the HMAC of the whole value. A
 * quotation counts as a value if it is part of one, and always beyond the limits of the comparison.
 */
export function redactValues(key: KeyedHash, error: string, data: Readonly<Record<string, unknown>> = {}): string {
  const texts = textsIn(data)
  const cut = error.length > ERROR_LENGTH_MAX ? `${error.slice(0, ERROR_LENGTH_MAX)}…` : error
  const found: ValueByIndex = Array.from({ length: cut.length })
  const whole = { text: cut, at: Array.from({ length: cut.length + 1 }, (_, at) => at) }
  const spans = [whole, ...unquoteAll(whole, texts, found)]
  const substrings = substringsOf(spans)
  for (const text of new Set(texts)) {
    if (!substrings.has(text.slice(0, UNQUOTED_LENGTH_MIN))) continue
    for (const span of spans) markPrefix(span, text, found)
  }
  return replaceValues(found, cut, key)
}

/** Marks the quotations of values. Returns the other quotations with escapes, unquoted, and those nested in them. */
function unquoteAll(whole: ErrorSpan, texts: readonly string[] | undefined, found: ValueByIndex): ErrorSpan[] {
  const all: ErrorSpan[] = []
  let [compared, length] = [0, 0]
  let level = [whole]
  while (level.length > 0) {
    const next: ErrorSpan[] = []
    for (const { at, text } of level) {
      for (const { 1: inner = '', index } of text.matchAll(QUOTED)) {
        if (inner === '') continue
        const indexes = at.slice(index + 1, index + inner.length + 2)
        const span = unquote({ text: inner, at: indexes })
        const hasEscapes = inner.includes('\\')
        if (hasEscapes) length += inner.length
        const isBeyond = ++compared > COMPARED_QUOTES_MAX || length > UNQUOTED_LENGTH_MAX
        const value = isBeyond ? span.text : quotedValue(span.text, texts)
        if (value !== undefined) found.fill(value, indexes[0], indexes.at(-1))
        else if (hasEscapes) next.push(span)
      }
    }
    all.push(...next)
    level = next
  }
  return all
}

/** The value that a quotation contains; undefined if it contains none. */
function quotedValue(quoted: string, texts: readonly string[] | undefined): string | undefined {
  const inner = quoted.replace(TRUNCATION, '') || quoted
  const value = texts?.find((text) => text.startsWith(quoted)) ?? texts?.find((text) => text.startsWith(inner))
  return value ?? (!texts || texts.some((text) => text.includes(inner)) ? inner : undefined)
}

/** All substrings of the minimum length. Most values start with none of them, which makes the search fast. */
function substringsOf(spans: readonly ErrorSpan[]): ReadonlySet<string> {
  const parts = new Set<string>()
  for (const { text } of spans) {
    for (let end = UNQUOTED_LENGTH_MIN; end <= text.length; end++) parts.add(text.slice(end - UNQUOTED_LENGTH_MIN, end))
  }
  return parts
}

/** Marks the occurrences of a value, or of the longest prefix of a long one. */
function markPrefix({ at: indexes, text: within }: ErrorSpan, text: string, found: ValueByIndex): void {
  const start = text.slice(0, PREFIX_LENGTH_MIN)
  let length = 0
  for (let at = within.indexOf(start); at >= 0; at = within.indexOf(start, at + length)) {
    length = start.length
    while (length < text.length && within.charCodeAt(at + length) === text.charCodeAt(length)) length++
    const [from = 0, to = 0] = [indexes[at], indexes[at + length]]
    if (found[from] === undefined || found[to - 1] === undefined) found.fill(text, from, to)
  }
}

/** Decodes the escapes of JSON and Go. */
function unquote({ at, text }: ErrorSpan): ErrorSpan {
  const plain: string[] = []
  const indexes: number[] = []
  let done = 0
  const take = (until: number) => {
    plain.push(text.slice(done, until))
    for (; done < until; done++) indexes.push(at[done] ?? 0)
  }
  for (const { 0: escape, 1: short, 2: long, 3: byte, 4: other = '', index } of text.matchAll(ESCAPE)) {
    take(index)
    const digits = short ?? long ?? byte
    const character = digits === undefined ? (NAMED[other] ?? other) : characterOf(Number.parseInt(digits, 16))
    plain.push(character)
    for (let count = character.length; count > 0; count--) indexes.push(at[index] ?? 0)
    done = index + escape.length
  }
  take(text.length)
  return { text: plain.join(''), at: [...indexes, at[text.length] ?? 0] }
}

function characterOf(code: number): string {
  return String.fromCodePoint(code > 0x10ffff ? 0xfffd : code)
}

function replaceValues(found: Readonly<ValueByIndex>, text: string, key: KeyedHash): string {
  let redacted = ''
  for (let at = 0; at < text.length; at++) {
    const value = found[at]
    if (value === undefined) redacted += text[at] ?? ''
    else if (value !== found[at - 1]) redacted += hmacOf(key, value)
  }
  return redacted
}

/** The non-empty strings in data; undefined if they exceed the limits. */
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
