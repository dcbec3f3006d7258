/**
 * The fields of a path: declared as data, read leniently. Stock clients send `"3"` for 3 and `"true"` for true, and
 * numbers where texts are meant, so a field takes what can only mean one thing and refuses the rest by its name.
 */
import { parseDurationMs } from '../../platform/duration.ts'
import { parseBoolean } from '../../platform/schema.ts'
import { isExactNumber } from './exact-json.ts'
import type { NameFold } from './name-fold.ts'

/** A value that does not fit its field. Says what was wanted, never the value. */
export class FieldError extends Error {
  override readonly name = 'FieldError'
}

/** Not printable in the sense of Unicode: controls, format characters, every space but the plain one, unassigned. */
export const UNPRINTABLE = /[^\P{C}]|[^\P{Z} ]/u

export type FieldKind = 'string' | 'integer' | 'number' | 'boolean' | 'object' | 'array'

export interface Field<T> {
  readonly kind: FieldKind
  readonly description: string
  /** Captured from the path by the pattern. */
  readonly inPath?: boolean
  /** Name of the body's field that means the same as this part of the path. `readFields` fills it in from the path. */
  readonly sameAs?: string
  /** Name of the field that this one is an older name of. A rule about the parameter of either name holds for both. */
  readonly aliasOf?: string
  /** No log shows it, not even one that shows names. */
  readonly isSecret?: boolean
  /**
   * The engine compares the name, or each name of the list, in this form. A parameter of the path reaches the engine in it.
   * A value of the body reaches it as it was sent; rules about parameters compare it in this form.
   */
  readonly fold?: NameFold
  readonly fallback: T
  /** Of a value that was given, and is neither undefined. Throws FieldError. */
  read(value: unknown): T
}

export type Fields = Readonly<Record<string, Field<unknown>>>
export type InputOf<F extends Fields> = { readonly [K in keyof F]: F[K] extends Field<infer T> ? T : never }

/** The Go name of a JSON value's type, which is what the field's error texts say. */
function kindOf(value: unknown): string {
  if (value === null) return 'nil'
  if (Array.isArray(value)) return '[]interface {}'
  if (typeof value === 'number') return 'json.Number'
  if (typeof value === 'boolean') return 'bool'
  return typeof value === 'string' ? 'string' : 'map[string]interface {}'
}

function unfit(wanted: string, value: unknown): never {
  throw new FieldError(`expected type '${wanted}', got unconvertible type '${kindOf(value)}'`)
}

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'number') return String(value)
  if (typeof value === 'boolean') return value ? '1' : '0'
  return value === null ? '' : unfit('string', value)
}

/** Of a value that may come as a text. Throws FieldError. */
export function integerOf(value: unknown): number {
  if (typeof value === 'number' && Number.isSafeInteger(value)) return value
  if (typeof value === 'boolean') return value ? 1 : 0
  if (value === null || value === '') return 0
  if (typeof value === 'string' && /^[+-]?\d{1,15}$/.test(value)) return Number(value)
  if (typeof value === 'string' || typeof value === 'number') throw new FieldError('expected a whole number')
  return unfit('int', value)
}

/** Of a value that may come as a text. Throws FieldError. */
function numberOf(value: unknown): number {
  if (typeof value === 'number' && Number.isFinite(value)) return value
  if (typeof value === 'boolean') return value ? 1 : 0
  if (value === null || value === '') return 0
  if (typeof value === 'string' && /^[+-]?(?:\d{1,15}\.?\d{0,15}|\.\d{1,15})$/.test(value)) return Number(value)
  if (typeof value === 'string' || typeof value === 'number') throw new FieldError('expected a number')
  return unfit('float64', value)
}

function booleanOf(value: unknown): boolean {
  if (typeof value === 'boolean') return value
  if (typeof value === 'number') return value !== 0
  if (value === null || value === '') return false
  const parsed = typeof value === 'string' ? parseBoolean(value) : unfit('bool', value)
  if (parsed === undefined) throw new FieldError('expected true or false')
  return parsed
}

/** Seconds of a number or a text of them, or of a duration such as `1h30m`; days are taken too (`1d`). */
export function secondsOf(value: unknown): number {
  const seconds = signedSecondsOf(value)
  if (seconds < 0) throw new FieldError(`cannot provide negative value '${seconds}'`)
  return seconds
}

function signedSecondsOf(value: unknown): number {
  if (value === null || value === '') return 0
  if (typeof value === 'number') return wholeSeconds(value)
  if (typeof value !== 'string') return unfit('string', value)
  if (/^[+-]?\d{1,15}$/.test(value)) return wholeSeconds(Number(value))
  const days = /^(\d{1,9})d$/.exec(value)?.[1]
  const ms = days === undefined ? parseDurationMs(value) : Number(days) * 86_400_000
  if (ms === undefined) throw new FieldError('expected seconds or a duration such as "90s", "5m" or "1h30m"')
  return wholeSeconds(ms / 1000)
}

/** Parts of a second are cut off, as the compatible system does. */
function wholeSeconds(seconds: number): number {
  // A hundred years say "for ever" as well, and sums of two times stay exact.
  if (Math.abs(seconds) > 3_155_760_000) throw new FieldError('a duration is at most a hundred years')
  // It would become 0, which means "as the system has it" or "for ever" in most fields: the opposite of what was meant.
  if (seconds !== 0 && Math.abs(seconds) < 1) throw new FieldError('a duration is 0 or at least a second')
  return Math.trunc(seconds)
}

interface Options<T> {
  readonly fallback?: T
}

function field<T>(kind: FieldKind, description: string, fallback: T, read: (value: unknown) => T): Field<T> {
  return { kind, description, fallback, read }
}

/**
 * A part of the path, named by the pattern. It takes precedence over a body field of the same name. `sameAs` names the body
 * field that means the same: the request is refused where the two differ, because policies were evaluated for the path.
 */
export function inPath(
  description: string,
  {
    fold,
    isSecret = false,
    sameAs,
  }: { readonly fold?: NameFold; readonly isSecret?: boolean; readonly sameAs?: string } = {},
): Field<string> {
  const more = { ...(sameAs !== undefined && { sameAs }), ...(fold && { fold }) }
  return { kind: 'string', description, inPath: true, isSecret, fallback: '', read: textOf, ...more }
}

/** The same field, of names that the engine compares in a canonical form. */
export function foldedField<T>(declared: Field<T>, fold: NameFold): Field<T> {
  return { ...declared, fold }
}

/** The same field, declared as an older name of another one. */
export function aliasField<T>(declared: Field<T>, aliasOf: string): Field<T> {
  return { ...declared, aliasOf }
}

export function text(description: string): Field<string | undefined>
export function text(description: string, options: { fallback: string }): Field<string>
export function text(description: string, options: Options<string> = {}): Field<string | undefined> {
  return field<string | undefined>('string', description, options.fallback, textOf)
}

export function integer(description: string): Field<number | undefined>
export function integer(description: string, options: { fallback: number }): Field<number>
export function integer(description: string, options: Options<number> = {}): Field<number | undefined> {
  return field<number | undefined>('integer', description, options.fallback, integerOf)
}

/** Any number, with a fraction too. */
export function number(description: string, options: { fallback: number }): Field<number> {
  return field<number>('number', description, options.fallback, numberOf)
}

export function boolean(description: string): Field<boolean | undefined>
export function boolean(description: string, options: { fallback: boolean }): Field<boolean>
export function boolean(description: string, options: Options<boolean> = {}): Field<boolean | undefined> {
  return field<boolean | undefined>('boolean', description, options.fallback, booleanOf)
}

/** In seconds. */
export function duration(description: string): Field<number | undefined>
export function duration(description: string, options: { fallback: number }): Field<number>
export function duration(description: string, options: Options<number> = {}): Field<number | undefined> {
  return field<number | undefined>('string', description, options.fallback, secondsOf)
}

/** In seconds; below 0 means something, too. */
export function signedDuration(description: string): Field<number | undefined> {
  return field<number | undefined>('string', description, undefined, signedSecondsOf)
}

function textsOf(value: unknown): string[] {
  if (value === null) return []
  return Array.isArray(value) ? value.map(textOf) : [textOf(value)]
}

/** A list of texts; one text counts as a list of one, commas and all. */
export function textList(description: string): Field<readonly string[] | undefined> {
  return field<readonly string[] | undefined>('array', description, undefined, textsOf)
}

/** A list of texts; one text is split at its commas. */
export function commaList(description: string): Field<readonly string[] | undefined> {
  return field<readonly string[] | undefined>('array', description, undefined, (value) => {
    const parts = typeof value === 'string' ? value.split(',') : textsOf(value)
    return parts.map((part) => part.trim()).filter((part) => part !== '')
  })
}

/** A list of whole numbers: `[1, 2]`, `["1", "2"]`, `"1,2"` and `1` alike. */
export function integerList(description: string): Field<readonly number[] | undefined> {
  return field<readonly number[] | undefined>('array', description, undefined, (value) => {
    if (value === null) return []
    if (typeof value === 'string') return value === '' ? [] : value.split(',').map((part) => integerOf(part.trim()))
    return Array.isArray(value) ? value.map(integerOf) : [integerOf(value)]
  })
}

export type JsonObject = Readonly<Record<string, unknown>>

/** An object with members, of which a number that is kept as its text is none. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isExactNumber(value)
}

/** Some languages write an empty object like this. */
function isEmptyList(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0
}

/** Any JSON object; `null` reads as null, so that it can be told from what was not given. */
export function object(description: string): Field<JsonObject | null | undefined> {
  return field<JsonObject | null | undefined>('object', description, undefined, (value) =>
    value === null || isObject(value) ? value : isEmptyList(value) ? {} : unfit('map[string]interface {}', value),
  )
}

/** Texts by name: an object, a list of `name=value`, or one of them. */
export function textMap(description: string): Field<ReadonlyMap<string, string> | undefined> {
  return field<ReadonlyMap<string, string> | undefined>('object', description, undefined, (value) => {
    if (value === null) return new Map()
    if (isObject(value)) return new Map(Object.entries(value).map(([name, each]) => [name, textOf(each)]))
    if (value === '') return new Map()
    if (!Array.isArray(value) && typeof value !== 'string') return unfit('map[string]string', value)
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

/** Whatever it is, as it came. */
export function anything(description: string): Field<unknown> {
  return field<unknown>('object', description, undefined, (value) => value)
}

const NONE_REPEATED: readonly { readonly inBody: string; readonly value: unknown }[] = []

/**
 * Fields as they were given, each read into its type. Throws what `fault` makes of the first that does not fit, and of a
 * body field that names another thing than the path does.
 */
export function readFields(
  fields: Fields,
  from: { readonly data: JsonObject; readonly params: Readonly<Record<string, string>> },
  fault: (name: string, why: string) => Error,
): object {
  const out: Record<string, unknown> = {}
  let repeated = NONE_REPEATED
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
      throw fault(inBody, 'it differs from the path of the request: send it in one of the two')
    }
    out[inBody] = value
  }
  return out
}
