/** The functions of templates for names. Texts are measured in bytes, as Go does. */
import { createHash, randomBytes, randomInt } from 'node:crypto'
import { formatGoTime } from './go-time.ts'
import { goQuote } from './go-quote.ts'
import { TemplateError } from './template-parse.ts'

export type Value = string | number | boolean | undefined
export type TemplateFunction = (args: readonly Value[], nowMs: number) => Value

const LETTERS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const RANDOM_MAX = 4096

export function textOfValue(value: Value): string {
  return value === undefined ? '<no value>' : String(value)
}

function text(args: readonly Value[], at: number): string {
  const value = args[at]
  if (typeof value !== 'string') throw new TemplateError(`wrong type for value; expected string; got ${goType(value)}`)
  return value
}

function whole(args: readonly Value[], at: number): number {
  const value = args[at]
  if (typeof value === 'number' && Number.isSafeInteger(value)) return value
  throw new TemplateError(`wrong type for value; expected int; got ${goType(value)}`)
}

function goType(value: Value): string {
  if (typeof value === 'number') return Number.isInteger(value) ? 'int' : 'float64'
  return typeof value === 'boolean' ? 'bool' : typeof value
}

/** The first bytes of a text, without half a character at its end. */
function cut(value: string, bytes: number): string {
  const all = Buffer.from(value)
  let end = Math.min(bytes, all.length)
  while (end > 0 && end < all.length && ((all[end] ?? 0) & 0xc0) === 0x80) end--
  return all.subarray(0, end).toString('utf8')
}

function truncate(most: number, value: string): string {
  if (most <= 0) throw new TemplateError(`max length must be > 0 but was ${most}`)
  return cut(value, most)
}

function truncateSha256(most: number, value: string): string {
  if (most <= 8) throw new TemplateError(`max length must be > 8 but was ${most}`)
  if (Buffer.byteLength(value) <= most) return value
  const kept = cut(value, most - 8)
  return kept + sha256(value.slice(kept.length)).slice(0, 8)
}

function sha256(value: string): string {
  return createHash('sha256').update(value).digest('hex')
}

function random(length: number): string {
  if (length <= 0) throw new TemplateError(`length must be > 0 but was ${length}`)
  if (length > RANDOM_MAX) throw new TemplateError(`length must be at most ${RANDOM_MAX} but was ${length}`)
  return Array.from({ length }, () => LETTERS[randomInt(LETTERS.length)]).join('')
}

function uuid(): string {
  const hex = randomBytes(16).toString('hex')
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-')
}

/** Of what a function takes and gives, in characters: values that are joined again and again would fill the memory. */
const VALUE_MAX = 65_536
const VERB = /%(?:%|([-+# 0]*)(\d*)(?:\.(\d+))?([a-zA-Z]))/g
const WIDTH_MAX = 256

/** `printf` of Go, for `%s %v %d %q %x %X %t %c` with a width, a precision and the flags `-` and `0`. */
function printf(format: string, args: readonly Value[]): string {
  let used = 0
  const written = format.replace(
    VERB,
    (shown: string, flags: string, width: string, precision: string, verb: string) => {
      if (shown === '%%') return '%'
      if (used >= args.length) return `%!${verb}(MISSING)`
      const value = printed(verb, args[used++], precision)
      const most = Math.min(Number(width), WIDTH_MAX)
      if (flags.includes('-')) return value.padEnd(most)
      return value.padStart(most, flags.includes('0') ? '0' : ' ')
    },
  )
  const extra = args.slice(used).map((value) => `${goType(value)}=${textOfValue(value)}`)
  return extra.length > 0 ? `${written}%!(EXTRA ${extra.join(', ')})` : written
}

function printed(verb: string, value: Value, precision = ''): string {
  const wrong = `%!${verb}(${goType(value)}=${textOfValue(value)})`
  const shown = textOfValue(value)
  switch (verb) {
    case 'v':
      return shown
    case 's':
      return typeof value === 'string' ? (precision === '' ? value : cut(value, Number(precision))) : wrong
    case 'q':
      return typeof value === 'string' ? goQuote(value) : wrong
    case 'd':
      return typeof value === 'number' ? shown : wrong
    case 't':
      return typeof value === 'boolean' ? shown : wrong
    case 'x':
    case 'X': {
      const hex = typeof value === 'number' ? value.toString(16) : Buffer.from(shown).toString('hex')
      return verb === 'X' ? hex.toUpperCase() : hex
    }
    case 'c':
      return typeof value === 'number'
        ? String.fromCodePoint(Math.trunc(Math.max(0, Math.min(value, 0x10ffff))))
        : wrong
    default:
      return wrong
  }
}

export function isTrue(value: Value): boolean {
  return value !== undefined && value !== '' && value !== 0 && value !== false
}

function compared(args: readonly Value[], is: (a: string | number, b: string | number) => boolean): boolean {
  const [a, b] = args
  if (typeof a !== typeof b || (typeof a !== 'string' && typeof a !== 'number')) {
    throw new TemplateError('incompatible types for comparison')
  }
  return is(a, b as string | number)
}

function equals(args: readonly Value[]): boolean {
  const [first, ...others] = args
  if (others.some((each) => typeof each !== typeof first)) throw new TemplateError('incompatible types for comparison')
  return others.includes(first)
}

/** How many values each takes, and what it makes of them; `Infinity` for as many as one likes. */
const TABLE: Readonly<Record<string, readonly [least: number, most: number, run: TemplateFunction]>> = {
  random: [1, 1, (args) => random(whole(args, 0))],
  truncate: [2, 2, (args) => truncate(whole(args, 0), text(args, 1))],
  truncate_sha256: [2, 2, (args) => truncateSha256(whole(args, 0), text(args, 1))],
  unix_time: [0, 0, (_args, nowMs) => String(Math.floor(nowMs / 1000))],
  unix_time_millis: [0, 0, (_args, nowMs) => String(Math.floor(nowMs))],
  timestamp: [1, 1, (args, nowMs) => formatGoTime(text(args, 0), new Date(nowMs))],
  uuid: [0, 0, uuid],
  replace: [3, 3, (args) => replaced(text(args, 0), text(args, 1), text(args, 2))],
  uppercase: [1, 1, (args) => text(args, 0).toUpperCase()],
  lowercase: [1, 1, (args) => text(args, 0).toLowerCase()],
  sha256: [1, 1, (args) => sha256(text(args, 0))],
  base64: [1, 1, (args) => Buffer.from(text(args, 0)).toString('base64')],
  decode_base64: [1, 1, (args) => Buffer.from(text(args, 0), 'base64').toString('utf8')],
  hex: [1, 1, (args) => Buffer.from(text(args, 0)).toString('hex')],
  decode_hex: [1, 1, (args) => Buffer.from(text(args, 0), 'hex').toString('utf8')],
  printf: [1, Infinity, (args) => printf(text(args, 0), args.slice(1))],
  print: [0, Infinity, (args) => args.map(textOfValue).join('')],
  len: [1, 1, (args) => Buffer.byteLength(text(args, 0))],
  eq: [2, Infinity, equals],
  ne: [2, 2, (args) => !equals(args)],
  lt: [2, 2, (args) => compared(args, (a, b) => a < b)],
  le: [2, 2, (args) => compared(args, (a, b) => a <= b)],
  gt: [2, 2, (args) => compared(args, (a, b) => a > b)],
  ge: [2, 2, (args) => compared(args, (a, b) => a >= b)],
  and: [1, Infinity, (args) => args.find((each) => !isTrue(each)) ?? args.at(-1)],
  or: [1, Infinity, (args) => args.find(isTrue) ?? args.at(-1)],
  not: [1, 1, ([value]) => !isTrue(value)],
  slice: [1, 3, (args) => sliced(args)],
  urlquery: [1, 1, (args) => encodeURIComponent(text(args, 0)).replaceAll('%20', '+')],
}

/** What it makes is counted first: a long replacement for each character would be gigabytes. */
function replaced(from: string, to: string, value: string): string {
  const times = from === '' ? value.length + 1 : value.split(from).length - 1
  if (value.length + times * (to.length - from.length) > VALUE_MAX) throw tooLong()
  return value.replaceAll(from, () => to)
}

function sliced(args: readonly Value[]): string {
  const bytes = Buffer.from(text(args, 0))
  const begin = args.length > 1 ? whole(args, 1) : 0
  const end = args.length > 2 ? whole(args, 2) : bytes.length
  if (begin < 0 || end < begin || end > bytes.length) throw new TemplateError(`index out of range: ${end}`)
  return bytes.subarray(begin, end).toString('utf8')
}

export function isTemplateFunction(name: string): boolean {
  return Object.hasOwn(TABLE, name)
}

export function callFunction(name: string, args: readonly Value[], nowMs: number): Value {
  const [least, most, run] = TABLE[name] ?? [0, 0, () => undefined]
  if (args.length < least || args.length > most) {
    const wanted = least === most ? `want ${least}` : `want at least ${least}`
    throw new TemplateError(`wrong number of args for ${name}: ${wanted} got ${args.length}`)
  }
  let length = 0
  for (const arg of args) length += typeof arg === 'string' ? arg.length : 0
  if (length > VALUE_MAX) throw tooLong()
  const value = run(args, nowMs)
  if (typeof value === 'string' && value.length > VALUE_MAX) throw tooLong()
  return value
}

function tooLong(): TemplateError {
  return new TemplateError(`a value has more than ${VALUE_MAX} characters`)
}
