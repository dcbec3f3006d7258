/** Functions of username templates: Vault's, and the built-in ones of Go's text/template. Lengths are in bytes, as in Go. */
import { createHash, randomBytes, randomInt } from 'node:crypto'

/** What is wrong with a template. */
export class TemplateError extends Error {
  override readonly name = 'TemplateError'
}

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

function integer(args: readonly Value[], at: number): number {
  const value = args[at]
  if (typeof value === 'number' && Number.isSafeInteger(value)) return value
  throw new TemplateError(`wrong type for value; expected int; got ${goType(value)}`)
}

function goType(value: Value): string {
  if (typeof value === 'number') return Number.isInteger(value) ? 'int' : 'float64'
  return typeof value === 'boolean' ? 'bool' : typeof value
}

/** The first bytes of a text, without a partial character at the end. */
function truncateBytes(value: string, bytes: number): string {
  const all = Buffer.from(value)
  let end = Math.min(bytes, all.length)
  while (end > 0 && end < all.length && ((all[end] ?? 0) & 0xc0) === 0x80) end--
  return all.subarray(0, end).toString('utf8')
}

function truncate(maxBytes: number, value: string): string {
  if (maxBytes <= 0) throw new TemplateError(`max length must be > 0 but was ${maxBytes}`)
  return truncateBytes(value, maxBytes)
}

function truncateSha256(maxBytes: number, value: string): string {
  if (maxBytes <= 8) throw new TemplateError(`max length must be > 8 but was ${maxBytes}`)
  if (Buffer.byteLength(value) <= maxBytes) return value
  const kept = truncateBytes(value, maxBytes - 8)
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

/** Limit of arguments and results in characters, because repeated concatenation grows exponentially. */
const VALUE_MAX = 65_536
const VERB = /%(?:%|([-+# 0]*)(\d*)(?:\.(\d+))?([a-zA-Z]))/g
const WIDTH_MAX = 256

/** Go's `printf` with `%s %v %d %q %x %X %t %c`, width, precision and the flags `-` and `0`. */
function printf(format: string, args: readonly Value[]): string {
  let used = 0
  const written = format.replace(
    VERB,
    (shown: string, flags: string, width: string, precision: string, verb: string) => {
      if (shown === '%%') return '%'
      if (used >= args.length) return `%!${verb}(MISSING)`
      const value = printed(verb, args[used++], precision)
      const minLength = Math.min(Number(width), WIDTH_MAX)
      if (flags.includes('-')) return value.padEnd(minLength)
      return value.padStart(minLength, flags.includes('0') ? '0' : ' ')
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
      return typeof value === 'string' ? (precision === '' ? value : truncateBytes(value, Number(precision))) : wrong
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

/** Number of arguments, and implementation. */
const FUNCTIONS: Readonly<Record<string, readonly [min: number, max: number, run: TemplateFunction]>> = {
  random: [1, 1, (args) => random(integer(args, 0))],
  truncate: [2, 2, (args) => truncate(integer(args, 0), text(args, 1))],
  truncate_sha256: [2, 2, (args) => truncateSha256(integer(args, 0), text(args, 1))],
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

/** Computes the length first: a long replacement for each character would take gigabytes. */
function replaced(from: string, to: string, value: string): string {
  const times = from === '' ? value.length + 1 : value.split(from).length - 1
  if (value.length + times * (to.length - from.length) > VALUE_MAX) throw tooLong()
  return value.replaceAll(from, () => to)
}

function sliced(args: readonly Value[]): string {
  const bytes = Buffer.from(text(args, 0))
  const begin = args.length > 1 ? integer(args, 1) : 0
  const end = args.length > 2 ? integer(args, 2) : bytes.length
  if (begin < 0 || end < begin || end > bytes.length) throw new TemplateError(`index out of range: ${end}`)
  return bytes.subarray(begin, end).toString('utf8')
}

export function isTemplateFunction(name: string): boolean {
  return Object.hasOwn(FUNCTIONS, name)
}

export function callFunction(name: string, args: readonly Value[], nowMs: number): Value {
  const [min, max, run] = FUNCTIONS[name] ?? [0, 0, () => undefined]
  if (args.length < min || args.length > max) {
    const expected = min === max ? `want ${min}` : `want at least ${min}`
    throw new TemplateError(`wrong number of args for ${name}: ${expected} got ${args.length}`)
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

const MONTHS = 'January February March April May June July August September October November December'.split(' ')
const DAYS = 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday'.split(' ')
const LAYOUT_PARTS =
  /2006|06|January|Jan|01|Monday|Mon|MST|15|03|04|05|02|_2|PM|pm|Z07:00|Z0700|-07:00|-0700|-07|[.,]0+|[.,]9+|1|2|3|4|5/g

const two = (value: number) => String(value).padStart(2, '0')

const TIME_WRITERS: Readonly<Record<string, (date: Date) => string>> = {
  '2006': (date) => String(date.getUTCFullYear()).padStart(4, '0'),
  '06': (date) => two(date.getUTCFullYear() % 100),
  January: (date) => MONTHS[date.getUTCMonth()] ?? '',
  Jan: (date) => (MONTHS[date.getUTCMonth()] ?? '').slice(0, 3),
  '01': (date) => two(date.getUTCMonth() + 1),
  '1': (date) => String(date.getUTCMonth() + 1),
  Monday: (date) => DAYS[date.getUTCDay()] ?? '',
  Mon: (date) => (DAYS[date.getUTCDay()] ?? '').slice(0, 3),
  MST: () => 'UTC',
  '15': (date) => two(date.getUTCHours()),
  '03': (date) => two(date.getUTCHours() % 12 || 12),
  '3': (date) => String(date.getUTCHours() % 12 || 12),
  '04': (date) => two(date.getUTCMinutes()),
  '4': (date) => String(date.getUTCMinutes()),
  '05': (date) => two(date.getUTCSeconds()),
  '5': (date) => String(date.getUTCSeconds()),
  '02': (date) => two(date.getUTCDate()),
  '2': (date) => String(date.getUTCDate()),
  _2: (date) => String(date.getUTCDate()).padStart(2, ' '),
  PM: (date) => (date.getUTCHours() < 12 ? 'AM' : 'PM'),
  pm: (date) => (date.getUTCHours() < 12 ? 'am' : 'pm'),
  'Z07:00': () => 'Z',
  Z0700: () => 'Z',
  '-07:00': () => '+00:00',
  '-0700': () => '+0000',
  '-07': () => '+00',
}

/** Formats a time, in UTC, by Go's layout: the reference time `Mon Jan 2 15:04:05 MST 2006` as it should be written. */
function formatGoTime(layout: string, date: Date): string {
  return layout.replace(LAYOUT_PARTS, (part) => {
    const write = TIME_WRITERS[part]
    if (write) return write(date)
    // A fraction of a second: `0` keeps trailing zeros, `9` removes them.
    const digits = String(date.getUTCMilliseconds())
      .padStart(3, '0')
      .padEnd(9, '0')
      .slice(0, part.length - 1)
    const shown = part[1] === '9' ? digits.replace(/0+$/, '') : digits
    return shown === '' ? '' : `${part[0]}${shown}`
  })
}

/** A text in quotes as Go's `%q` writes it, which clients know from some error texts. */
const NAMED_ESCAPES: Readonly<Record<string, string>> = {
  '"': '\\"',
  '\\': '\\\\',
  '\n': '\\n',
  '\t': '\\t',
  '\r': '\\r',
  '\u0007': '\\a',
  '\b': '\\b',
  '\f': '\\f',
  '\v': '\\v',
}

/** A quoted string as by Go's `%q`, also for error texts that stock clients know. */
export function goQuote(value: string): string {
  const quoted = value.replace(/["\\\p{C}]|[^\P{Z} ]/gu, (each) => {
    const named = NAMED_ESCAPES[each]
    if (named !== undefined) return named
    const code = each.codePointAt(0) ?? 0
    if (code < 0x80) return `\\x${code.toString(16).padStart(2, '0')}`
    return code > 0xffff ? `\\U${code.toString(16).padStart(8, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`
  })
  return `"${quoted}"`
}
