/**
 * JSON whose numbers stay as they were written: `12345678901234567890`, `1.0` and `-0` are what they were. A number that
 * this language would write differently is kept as its text, in an object that `JSON.stringify` writes as that text.
 * Everything else is as `JSON.parse` has it: of a member that comes twice the last one counts.
 */

import { randomUUID } from 'node:crypto'

/** Of the platform since Node 22, and not yet in its types. */
interface ExactJson {
  rawJSON(text: string): unknown
  isRawJSON(value: unknown): boolean
}

const exact: ExactJson = JSON

/** More numbers than one reads that are kept as their texts. */
export class TooManyNumbers extends Error {}

/** What a number's text begins with while the rest is read: no text of a caller's can begin so. */
const MARK = randomUUID()
/** With fewer characters no number has more digits than are always exact. */
const LONG = 16
/** Most of these. Other languages write a zero at the end of a fraction, and this one an exponent for more zeros than five. */
const SHORT = /^(?:0|-?[1-9]\d*|-?(?:0\.\d{0,5}|[1-9]\d*\.\d*)[1-9])$/
const [QUOTE, BACKSLASH, PLUS, MINUS, DOT, ZERO, NINE, UPPER_E, LOWER_E] = [34, 92, 43, 45, 46, 48, 57, 69, 101]

/**
 * Begins like a number that may be written differently: with a fraction or an exponent, with more digits than are always
 * exact, or zero with a sign. Texts inside of strings may look so too, which costs time and nothing else.
 */
const SUSPECT = /[:,[]\s*(?:-0|-?(?:\d+[.eE]|\d{16}))/

/** Whether reading this JSON, an object, as usual may change a number. */
export function hasSuspectNumbers(text: string): boolean {
  return SUSPECT.test(text)
}

/**
 * The value of a JSON text that holds an object; numbers that reading would change are not of type number. Throws
 * `TooManyNumbers` where these are more than `numbersMax`. (A reviver would be told the numbers' texts; it costs ten times
 * as much, for each value.)
 */
export function parseExact(text: string, numbersMax = Number.POSITIVE_INFINITY): unknown {
  if (!hasSuspectNumbers(text)) return JSON.parse(text)
  const marked = withMarks(text, numbersMax)
  return marked === undefined ? JSON.parse(text) : withoutMarks(JSON.parse(marked))
}

/** The same JSON with texts for numbers that reading would change; undefined where there are none. */
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

/** Whether this language writes the number as it stands there. */
function isSame(source: string): boolean {
  return (source.length < LONG && SHORT.test(source)) || String(Number(source)) === source
}

/** Index of the quote that ends the string of a JSON text that begins at `from`, or of the text's end. */
export function endOfString(text: string, from: number): number {
  for (let at = text.indexOf('"', from + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let slashes = 0
    while (text.charCodeAt(at - 1 - slashes) === BACKSLASH) slashes++
    if (slashes % 2 === 0) return at
  }
  return text.length
}

/** Changes what it is given. */
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

/** Whether it is a number that is kept as its text. */
export function isExactNumber(value: object): boolean {
  return exact.isRawJSON(value)
}
