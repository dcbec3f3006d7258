/**
 * The fields of a path: declared as data and parsed leniently. Stock clients send `"3"` for 3, `"true"` for true, and
 * numbers for strings, so a field accepts every value with one possible meaning and rejects the others by its name.
 */
import { parseDurationMs } from '../../platform/duration.ts'
import { parseBoolean } from '../../platform/schema.ts'
import { isExactNumber } from './exact-json.ts'
import type { NameFold } from './name-fold.ts'

/** A value that does not match its field. The message has the expected type, never the value. */
export class FieldError extends Error {
  override readonly name = 'FieldError'
}

/** Characters that Unicode considers not printable: controls, format characters, unassigned, all spaces but U+0020. */
export const UNPRINTABLE = /[^\P{C}]|[^\P{Z} ]/u

export type EngineFieldKind = 'string' | 'integer' | 'number' | 'boolean' | 'object' | 'array'

export interface EngineField<T> {
  readonly kind: EngineFieldKind
  readonly description: string
  /** A parameter of the pattern. */
  readonly inPath?: boolean
  /** The body field with the same meaning. `readFields` sets it from the path. */
  readonly sameAs?: string
  /** The field of which this one is a deprecated name. A policy rule about either name applies to both. */
  readonly aliasOf?: string
  /** Never logged, not even by logs that show names. */
  readonly isSecret?: boolean
  /**
   * How the engine folds the name, or each name of the list, for comparison. The engine gets a parameter of the path folded and a
   * value of the body as it was sent; policy rules about parameters compare it folded.
   */
  readonly fold?: NameFold
  readonly fallback: T
  /** Parses a value that is present. Throws a FieldError. */
  read(value: unknown): T
}

export type EngineFields = Readonly<Record<string, EngineField<unknown>>>
export type EngineInput<F extends EngineFields> = {
  readonly [K in keyof F]: F[K] extends EngineField<infer T> ? T : never
}

/** Go's name for the type of a JSON value, as in Vault's error texts. */
function kindOf(value: unknown): string {
  if (value === null) return 'nil'
  if (Array.isArray(value)) return '[]interface {}'
  if (typeof value === 'number') return 'json.Number'
  if (typeof value === 'boolean') return 'bool'
  return typeof value === 'string' ? 'string' : 'map[string]interface {}'
}

function rejectType(expected: string, value: unknown): never {
  throw new FieldError(`expected type '${expected}', got unconvertible type '${kindOf(value)}'`)
}

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'number') return String(value)
  if (typeof value === 'boolean') return value ? '1' : '0'
  return value === null ? '' : rejectType('string', value)
}

/** Accepts numbers as strings. Throws a FieldError. */
export function integerOf(value: unknown): number {
  if (typeof value === 'number' && Number.isSafeInteger(value)) return value
  if (typeof value === 'boolean') return value ? 1 : 0
  if (value === null || value === '') return 0
  if (typeof value === 'string' && /^[+-]?\d{1,15}$/.test(value)) return Number(value)
  if (typeof value === 'string' || typeof value === 'number') throw new FieldError('expected a whole number')
  return rejectType('int', value)
}

/** Accepts numbers as strings. Throws a FieldError. */
function numberOf(value: unknown): number {
  if (typeof value === 'number' && Number.isFinite(value)) return value
  if (typeof value === 'boolean') return value ? 1 : 0
  if (value === null || value === '') return 0
  if (typeof value === 'string' && /^[+-]?(?:\d{1,15}\.?\d{0,15}|\.\d{1,15})$/.test(value)) return Number(value)
  if (typeof value === 'string' || typeof value === 'number') throw new FieldError('expected a number')
  return rejectType('float64', value)
}

function booleanOf(value: unknown): boolean {
  if (typeof value === 'boolean') return value
  if (typeof value === 'number') return value !== 0
  if (value === null || value === '') return false
  const parsed = typeof value === 'string' ? parseBoolean(value) : rejectType('bool', value)
  if (parsed === undefined) throw new FieldError('expected true or false')
  return parsed
}

/** Accepts seconds as a number or a string, and durations such as `1h30m` or `1d`. */
export function secondsOf(value: unknown): number {
  const seconds = signedSecondsOf(value)
  if (seconds < 0) throw new FieldError(`cannot provide negative value '${seconds}'`)
  return seconds
}

function signedSecondsOf(value: unknown): number {
  if (value === null || value === '') return 0
  if (typeof value === 'number') return wholeSeconds(value)
  if (typeof value !== 'string') return rejectType('string', value)
  if (/^[+-]?\d{1,15}$/.test(value)) return wholeSeconds(Number(value))
  const days = /^(\d{1,9})d$/.exec(value)?.[1]
  const ms = days === undefined ? parseDurationMs(value) : Number(days) * 86_400_000
  if (ms === undefined) throw new FieldError('expected seconds or a duration such as "90s", "5m" or "1h30m"')
  return wholeSeconds(ms / 1000)
}

/** Truncates fractions of a second, as Vault does. */
function wholeSeconds(seconds: number): number {
  // With this limit the sum of two times stays exact.
  if (Math.abs(seconds) > 3_155_760_000) throw new FieldError('a duration must be at most a hundred years')
  // Truncated to 0 it would mean "default" or "unlimited" in most fields.
  if (seconds !== 0 && Math.abs(seconds) < 1) throw new FieldError('a duration must be 0 or at least a second')
  return Math.trunc(seconds)
}

interface FieldOptions<T> {
  readonly fallback?: T
}

function field<T>(
  kind: EngineFieldKind,
  description: string,
  fallback: T,
  read: (value: unknown) => T,
): EngineField<T> {
  return { kind, description, fallback, read }
}

/**
 * A parameter of the pattern. It takes precedence over a body field of the same name. `sameAs` is the body field with the same
 * meaning: the request is rejected if the two differ, because policies were evaluated for the path.
 */
export function inPath(
  description: string,
  {
    fold,
    isSecret = false,
    sameAs,
  }: { readonly fold?: NameFold; readonly isSecret?: boolean; readonly sameAs?: string } = {},
): EngineField<string> {
  const more = { ...(sameAs !== undefined && { sameAs }), ...(fold && { fold }) }
  return { kind: 'string', description, inPath: true, isSecret, fallback: '', read: textOf, ...more }
}

/** The same field, for names that the engine compares folded. */
export function foldedField<T>(declared: EngineField<T>, fold: NameFold): EngineField<T> {
  return { ...declared, fold }
}

/** The same field, declared as a deprecated name of another one. */
export function aliasField<T>(declared: EngineField<T>, aliasOf: string): EngineField<T> {
  return { ...declared, aliasOf }
}

export function text(description: string): EngineField<string | undefined>
export function text(description: string, options: { fallback: string }): EngineField<string>
export function text(description: string, options: FieldOptions<string> = {}): EngineField<string | undefined> {
  return field<string | undefined>('string', description, options.fallback, textOf)
}

export function integer(description: string): EngineField<number | undefined>
export function integer(description: string, options: { fallback: number }): EngineField<number>
export function integer(description: string, options: FieldOptions<number> = {}): EngineField<number | undefined> {
  return field<number | undefined>('integer', description, options.fallback, integerOf)
}

/** Any number, also with a fraction. */
export function number(description: string, options: { fallback: number }): EngineField<number> {
  return field<number>('number', description, options.fallback, numberOf)
}

export function boolean(description: string): EngineField<boolean | undefined>
export function boolean(description: string, options: { fallback: boolean }): EngineField<boolean>
export function boolean(description: string, options: FieldOptions<boolean> = {}): EngineField<boolean | undefined> {
  return field<boolean | undefined>('boolean', description, options.fallback, booleanOf)
}

/** In seconds. */
export function duration(description: string): EngineField<number | undefined>
export function duration(description: string, options: { fallback: number }): EngineField<number>
export function duration(description: string, options: FieldOptions<number> = {}): EngineField<number | undefined> {
  return field<number | undefined>('string', description, options.fallback, secondsOf)
}

/** In seconds. Negative values are accepted. */
export function signedDuration(description: string): EngineField<number | undefined> {
  return field<number | undefined>('string', description, undefined, signedSecondsOf)
}

function textsOf(value: unknown): string[] {
  if (value === null) return []
  return Array.isArray(value) ? value.map(textOf) : [textOf(value)]
}

/** A list of strings. A single string is one element, commas included. */
export function textList(description: string): EngineField<readonly string[] | undefined> {
  return field<readonly string[] | undefined>('array', description, undefined, textsOf)
}

/** A list of strings. A single string is split at commas. */
export function commaList(description: string): EngineField<readonly string[] | undefined> {
  return field<readonly string[] | undefined>('array', description, undefined, (value) => {
    const parts = typeof value === 'string' ? value.split(',') : textsOf(value)
    return parts.map((part) => part.trim()).filter((part) => part !== '')
  })
}

/** A list of integers: `[1, 2]`, `["1", "2"]`, `"1,2"` or `1`. */
export function integerList(description: string): EngineField<readonly number[] | undefined> {
  return field<readonly number[] | undefined>('array', description, undefined, (value) => {
    if (value === null) return []
    if (typeof value === 'string') return value === '' ? [] : value.split(',').map((part) => integerOf(part.trim()))
    return Array.isArray(value) ? value.map(integerOf) : [integerOf(value)]
  })
}

export type JsonObject = Readonly<Record<string, unknown>>

/** False for a number that is kept as its text, which is an object too (`exact-json.ts`). */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactNumber(value)
}

/** PHP, for example, encodes an empty object as `[]`. */
function isEmptyList(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0
}

/** Any JSON object, or null, which differs from an absent field. */
export function object(description: string): EngineField<JsonObject | null | undefined> {
  return field<JsonObject | null | undefined>('object', description, undefined, (value) =>
    value === null || isObject(value) ? value : isEmptyList(value) ? {} : rejectType('map[string]interface {}', value),
  )
}

/** A map of strings: an object, a list of `name=value`, or a single `name=value`. */
export function textMap(description: string): EngineField<ReadonlyMap<string, string> | undefined> {
  return field<ReadonlyMap<string, string> | undefined>('object', description, undefined, (value) => {
    if (value === null) return new Map()
    if (isObject(value)) return new Map(Object.entries(value).map(([name, each]) => [name, textOf(each)]))
    if (value === '') return new Map()
    if (!Array.isArray(value) && typeof value !== 'string') return rejectType('map[string]string', value)
    return new Map(
      [value].flat().map((each) => {
        const pair = textOf(each)
        const mark = pair.indexOf('=')
        if (mark <= 0) throw new FieldError('expected name=value')
        return [pair.slice(0, mark), pair.slice(mark + 1)] as const
      }),
    )
  })
}

/** Any value, unchanged. */
export function anything(description: string): EngineField<unknown> {
  return field<unknown>('object', description, undefined, (value) => value)
}

const NO_REPEATED_PARAMETERS: readonly { readonly inBody: string; readonly value: unknown }[] = []

/**
 * Parses the fields of a request. Throws what `fault` returns for the first field with an invalid value, and for a body field
 * that contradicts the path.
 */
export function readFields(
  fields: EngineFields,
  from: { readonly data: JsonObject; readonly params: Readonly<Record<string, string>> },
  fault: (name: string, why: string) => Error,
): object {
  const out: Record<string, unknown> = {}
  let repeated = NO_REPEATED_PARAMETERS
  for (const name in fields) {
    const declared = fields[name]
    if (!declared) continue
    const value = declared.inPath ? from.params[name] : Object.hasOwn(from.data, name) ? from.data[name] : undefined
    if (declared.sameAs !== undefined && value !== undefined) {
      repeated = [...repeated, { inBody: declared.sameAs, value }]
    }
    try {
      out[name] = value === undefined ? declared.fallback : declared.read(value)
    } catch (error) {
      if (error instanceof FieldError) throw fault(name, error.message)
      throw error
    }
  }
  for (const { inBody, value } of repeated) {
    const given = out[inBody]
    if (given !== '' && given !== undefined && given !== value) {
      throw fault(inBody, 'it differs from the value in the request path: send it only once')
    }
    out[inBody] = value
  }
  return out
}
