/**
 * What a device may see of an error. Endpoints quote what was wrong, so that the values of the request stand in the error's text: whole, cut
 * (with `…` or without), with the escapes of JSON or of Go, and in a quotation inside of another one. Each becomes its HMAC here.
 *
 * The text is searched as it is, and each quotation once more as it was before it was quoted, with the place of each character in the
 * error. What can be compared is bounded; what is quoted beyond that is an HMAC unseen.
 */
import type { KeyedHash } from '../../platform/keyed-hash.ts'
import { hashed, VALUES_MAX } from './audit-values.ts'

/** A text in double quotes, with escapes; the last one may be cut. */
const QUOTED = /"((?:[^"\\]|\\[^])*)(?:"|\\?$)/g
const ESCAPE = /\\(?:u([\da-fA-F]{4})|U([\da-fA-F]{8})|x([\da-fA-F]{2})|([^]))/g
const NAMED: Readonly<Record<string, string>> = { a: '\x07', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' }
/** What stands at the end of a text that was cut, with the half of a character that was cut through. */
const CUT = /\uFFFD?(?:…|\.\.\.)$/
/** Of an error that is looked through: one that is longer is cut. */
const ERROR_LENGTH_MAX = 4096
/** Of an error, values without quotes are found from this length on: what is shorter is a part of its words by chance. */
const UNQUOTED_LENGTH_MIN = 8
/** The beginning of a value that an error has without quotes is that value's from this length on. */
const BEGUN_LENGTH_MIN = 64
/** Texts of data that errors are compared with, in characters, and quotations that are. */
const COMPARED_LENGTH_MAX = 1 << 18
const COMPARED_QUOTES_MAX = 16
/** Quotations that are taken apart, in characters. With these limits an error costs some 70 ms at worst. */
const TAKEN_APART_MAX = 2048

/** A part of an error as it was before it was quoted. */
interface Stretch {
  readonly text: string
  /** Where each character of it is in the error, and where it ends. */
  readonly at: readonly number[]
}

/** By each character of an error: the value that it is a part of. */
type Found = (string | undefined)[]

/**
 * An error's text with the values of its request's data replaced by their HMACs, as the whole value's where a quotation is cut. What is
 * quoted counts as a value where it is a part of one, and always where there is more than can be compared.
 */
export function withoutValues(key: KeyedHash, error: string, data: Readonly<Record<string, unknown>> = {}): string {
  const texts = textsIn(data)
  const cut = error.length > ERROR_LENGTH_MAX ? `${error.slice(0, ERROR_LENGTH_MAX)}…` : error
  const found: Found = Array.from({ length: cut.length })
  const whole = { text: cut, at: Array.from({ length: cut.length + 1 }, (_, at) => at) }
  const stretches = [whole, ...quotedIn(whole, texts, found)]
  const beginnings = partsOf(stretches)
  for (const text of new Set(texts)) {
    if (!beginnings.has(text.slice(0, UNQUOTED_LENGTH_MIN))) continue
    for (const stretch of stretches) markBegun(stretch, text, found)
  }
  return shownWith(found, cut, key)
}

/** Marks the quotations that are of values. Returns the others, where they had escapes, and what was quoted in those. */
function quotedIn(whole: Stretch, texts: readonly string[] | undefined, found: Found): Stretch[] {
  const all: Stretch[] = []
  let [compared, length] = [0, 0]
  let level = [whole]
  while (level.length > 0) {
    const next: Stretch[] = []
    for (const { at, text } of level) {
      for (const { 1: inner = '', index } of text.matchAll(QUOTED)) {
        if (inner === '') continue
        const places = at.slice(index + 1, index + inner.length + 2)
        const stretch = unquoted({ text: inner, at: places })
        const hasEscapes = inner.includes('\\')
        if (hasEscapes) length += inner.length
        const isBeyond = ++compared > COMPARED_QUOTES_MAX || length > TAKEN_APART_MAX
        const value = isBeyond ? stretch.text : valueQuoted(stretch.text, texts)
        if (value !== undefined) found.fill(value, places[0], places.at(-1))
        else if (hasEscapes) next.push(stretch)
      }
    }
    all.push(...next)
    level = next
  }
  return all
}

/** The value that a quotation is of; undefined for one that is of none. */
function valueQuoted(quoted: string, texts: readonly string[] | undefined): string | undefined {
  const inner = quoted.replace(CUT, '') || quoted
  const begun = texts?.find((text) => text.startsWith(quoted)) ?? texts?.find((text) => text.startsWith(inner))
  return begun ?? (!texts || texts.some((text) => text.includes(inner)) ? inner : undefined)
}

/** All parts of the shortest length that is searched for: most texts begin with none of them. */
function partsOf(stretches: readonly Stretch[]): ReadonlySet<string> {
  const parts = new Set<string>()
  for (const { text } of stretches) {
    for (let end = UNQUOTED_LENGTH_MIN; end <= text.length; end++) parts.add(text.slice(end - UNQUOTED_LENGTH_MIN, end))
  }
  return parts
}

/** Marks where a text stands, or the beginning of a long one, for as far as it goes. */
function markBegun({ at: places, text: within }: Stretch, text: string, found: Found): void {
  const start = text.slice(0, BEGUN_LENGTH_MIN)
  let length = 0
  for (let at = within.indexOf(start); at >= 0; at = within.indexOf(start, at + length)) {
    length = start.length
    while (length < text.length && within.charCodeAt(at + length) === text.charCodeAt(length)) length++
    const [from = 0, to = 0] = [places[at], places[at + length]]
    if (found[from] === undefined || found[to - 1] === undefined) found.fill(text, from, to)
  }
}

/** With the escapes of JSON and of Go undone. */
function unquoted({ at, text }: Stretch): Stretch {
  const plain: string[] = []
  const places: number[] = []
  let done = 0
  const take = (until: number) => {
    plain.push(text.slice(done, until))
    for (; done < until; done++) places.push(at[done] ?? 0)
  }
  for (const { 0: escape, 1: short, 2: long, 3: byte, 4: other = '', index } of text.matchAll(ESCAPE)) {
    take(index)
    const digits = short ?? long ?? byte
    const character = digits === undefined ? (NAMED[other] ?? other) : characterOf(Number.parseInt(digits, 16))
    plain.push(character)
    for (let count = character.length; count > 0; count--) places.push(at[index] ?? 0)
    done = index + escape.length
  }
  take(text.length)
  return { text: plain.join(''), at: [...places, at[text.length] ?? 0] }
}

function characterOf(code: number): string {
  return String.fromCodePoint(code > 0x10ffff ? 0xfffd : code)
}

function shownWith(found: Readonly<Found>, text: string, key: KeyedHash): string {
  let shown = ''
  for (let at = 0; at < text.length; at++) {
    const value = found[at]
    if (value === undefined) shown += text[at] ?? ''
    else if (value !== found[at - 1]) shown += hashed(key, value)
  }
  return shown
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
