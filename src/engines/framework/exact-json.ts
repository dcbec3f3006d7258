/**
 * JSON parsing that preserves numbers as written: `12345678901234567890`, `1.0` and `-0`. A number that JavaScript would
 * serialize differently becomes an object that `JSON.stringify` writes as the original text. Everything else is as with
 * `JSON.parse`: of a duplicate member the last one counts.
 */

import { randomUUID } from 'node:crypto'

/** In Node since version 22, but not in its types. */
interface ExactJson {
  rawJSON(text: string): unknown
  isRawJSON(value: unknown): boolean
}

const exact: ExactJson = JSON

/** More preserved numbers than `numbersMax`. */
export class TooManyNumbers extends Error {}

/** Prefix of a number's text during parsing. It is random, so that no string of a caller can have it. */
const MARK = randomUUID()
/** A number with fewer characters has no more digits than a double stores exactly. */
const LONG = 16
/** Most shorter numbers. Excludes a zero at the end of a fraction, and small fractions, which JavaScript writes with an exponent. */
const SHORT = /^(?:0|-?[1-9]\d*|-?(?:0\.\d{0,5}|[1-9]\d*\.\d*)[1-9])$/
const [QUOTE, BACKSLASH, PLUS, MINUS, DOT, ZERO, NINE, UPPER_E, LOWER_E] = [34, 92, 43, 45, 46, 48, 57, 69, 101]

/**
 * The start of a number that JavaScript may write differently: with a fraction or an exponent, with more digits than a double
 * stores exactly, or a signed zero. A match inside of a string only costs time.
 */
const SUSPECT = /[:,[]\s*(?:-0|-?(?:\d+[.eE]|\d{16}))/

/** Whether `JSON.parse` of this text, an object, may change a number. */
export function hasSuspectNumbers(text: string): boolean {
  return SUSPECT.test(text)
}

/**
 * Parses a JSON text that is an object. Throws `TooManyNumbers` for more than `numbersMax` preserved numbers. (A reviver with
 * access to the source text takes ten times as long, for each value.)
 */
export function parseExact(text: string, numbersMax = Number.POSITIVE_INFINITY): unknown {
  if (!hasSuspectNumbers(text)) return JSON.parse(text)
  const marked = withMarks(text, numbersMax)
  return marked === undefined ? JSON.parse(text) : withoutMarks(JSON.parse(marked))
}

/** The same JSON with marked strings for numbers to preserve; undefined if there are none. */
function withMarks(text: string, numbersMax: number): string | undefined {
  let [marked, from, count] = ['', 0, 0]
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) at = endOfString(text, at)
    if (code !== MINUS && !isDigit(code)) continue
    const end = endOfNumber(text, at)
    const source = text.slice(at, end)
    if (!isSame(source)) {
      if (++count > numbersMax) throw new TooManyNumbers()
      marked += `${text.slice(from, at)}"${MARK}${source}"`
      from = end
    }
    at = end - 1
  }
  return count === 0 ? undefined : marked + text.slice(from)
}

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE
}

function endOfNumber(text: string, from: number): number {
  for (let at = from + 1; ; at++) {
    const code = text.charCodeAt(at)
    const isMore =
      isDigit(code) || code === DOT || code === MINUS || code === PLUS || code === UPPER_E || code === LOWER_E
    if (!isMore) return at
  }
}

/** Whether JavaScript serializes the number as it is written. */
function isSame(source: string): boolean {
  return (source.length < LONG && SHORT.test(source)) || String(Number(source)) === source
}

/** Index of the closing quote of the JSON string that begins at `from`, or of the end of the text. */
export function endOfString(text: string, from: number): number {
  for (let at = text.indexOf('"', from + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let slashes = 0
    while (text.charCodeAt(at - 1 - slashes) === BACKSLASH) slashes++
    if (slashes % 2 === 0) return at
  }
  return text.length
}

/** Modifies the value in place. */
function withoutMarks(value: unknown): unknown {
  if (typeof value === 'string') return value.startsWith(MARK) ? exact.rawJSON(value.slice(MARK.length)) : value
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) {
    const list: unknown[] = value
    for (let at = 0; at < list.length; at++) list[at] = withoutMarks(list[at])
    return list
  }
  for (const [key, before] of Object.entries(value)) {
    const after: unknown = withoutMarks(before)
    if (after !== before) Reflect.set(value, key, after)
  }
  return value
}

/** Whether a value is a number that is kept as its text. */
export function isExactNumber(value: object): boolean {
  return exact.isRawJSON(value)
}
