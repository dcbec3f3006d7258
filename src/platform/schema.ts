/**
 * Input of an operation: declared as data, parsed once, the same for every transport.
 *
 * A schema is an ordered record of fields. Each field says where it comes from, what it is and how it is parsed, so
 * that the same declaration gives validation, OpenAPI and the order in which faults are reported. Number and boolean
 * texts follow Go's strconv, because that is what the field's clients send (`true`, `1`, `T`, `+2`); the error texts
 * carry the same tail as Go's for the same reason.
 */
import { Refusal } from './errors.ts'

/** Unparsed input, the same from HTTP and from another process. */
export interface RawInput {
  readonly params: Readonly<Record<string, string>>
  /** Decoded pairs in their order. */
  readonly query: readonly (readonly [string, string])[]
  /** Request headers that an operation's input names, in lower case. */
  readonly headers: Readonly<Record<string, string>>
  /** The body, or undefined without one. */
  readonly body: string | undefined
  /** The body is longer than this caller may send, and was not read. */
  readonly isBodyLeft?: true
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

/** True for a full UUID in either case. */
export function isUuid(text: string): boolean {
  return UUID.test(text)
}

/** True for a lower-case UUID, the form of node IDs in announcements and subjects. */
export function isNodeId(text: string): boolean {
  return isUuid(text) && text === text.toLowerCase()
}

export type FieldType = 'string' | 'integer' | 'boolean' | 'object'

export interface Field<T> {
  readonly in: 'path' | 'query' | 'header' | 'body'
  readonly type: FieldType
  readonly description: string
  readonly required: boolean
  readonly choices?: readonly string[]
  /** Default value, for documentation. */
  readonly fallback?: string | number | boolean
  parse(raw: RawInput, name: string): T
}

export type Fields = Readonly<Record<string, Field<unknown>>>
export type InputOf<F extends Fields> = { readonly [K in keyof F]: F[K] extends Field<infer T> ? T : never }

export interface Schema<In> {
  readonly fields: Fields
  parse(raw: RawInput): In
}

/** A schema whose fields are parsed in the order in which they are written. */
export function schema<F extends Fields>(fields: F): Schema<InputOf<F>> {
  const entries = Object.entries(fields)
  return {
    fields,
    parse(raw) {
      const out: Record<string, unknown> = {}
      for (const [name, field] of entries) out[name] = field.parse(raw, name)
      // The one place where the record's type is asserted: each property was parsed by the field of the same name.
      return out as InputOf<F>
    },
  }
}

/** The value of a query parameter; empty counts as absent. A repeated parameter is ambiguous and refused. */
export function queryValue(raw: RawInput, name: string): string | undefined {
  let found: string | undefined
  let count = 0
  for (const [key, value] of raw.query) {
    if (key !== name) continue
    found ??= value
    count++
  }
  if (count > 1) throw new Refusal('invalid_request', `query parameter "${name}" is set ${count} times, set it once`)
  return found === undefined || found === '' ? undefined : found
}

export function pathParam(description: string): Field<string> {
  return {
    in: 'path',
    type: 'string',
    description,
    required: true,
    parse: (raw, name) => raw.params[name] ?? '',
  }
}

interface TextOptions<D> {
  description: string
  fallback: D
  /** Error text if it is missing; absent: optional. */
  required?: string
  choices?: readonly string[]
  /** Error text if it is none of the choices. */
  otherwise?: string
}

export function queryText<D extends string | undefined>(options: TextOptions<D>): Field<string | D> {
  return {
    in: 'query',
    type: 'string',
    description: options.description,
    required: options.required !== undefined,
    ...(options.choices ? { choices: options.choices } : {}),
    ...(options.fallback === undefined || options.fallback === '' ? {} : { fallback: options.fallback }),
    parse(raw, name) {
      const value = queryValue(raw, name)
      if (value === undefined) {
        if (options.required !== undefined) throw new Refusal('invalid_request', options.required)
        return options.fallback
      }
      if (options.choices && !options.choices.includes(value)) {
        throw new Refusal(
          'invalid_request',
          options.otherwise ?? `${name} must be one of ${options.choices.join(', ')}`,
        )
      }
      return value
    },
  }
}

/** Limit of characters of a caller's value in an error text. */
const SHOWN_MAX = 64

function shortened(text: string): string {
  return text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX - 3).toWellFormed()}...` : text
}

const TRUE = new Set(['1', 't', 'T', 'true', 'TRUE', 'True'])
const FALSE = new Set(['0', 'f', 'F', 'false', 'FALSE', 'False'])

/** Go's ParseBool, or undefined. */
export function parseBoolean(text: string): boolean | undefined {
  if (TRUE.has(text)) return true
  return FALSE.has(text) ? false : undefined
}

export function queryBoolean(options: { description: string; fallback: boolean }): Field<boolean> {
  return {
    in: 'query',
    type: 'boolean',
    description: options.description,
    required: false,
    fallback: options.fallback,
    parse(raw, name) {
      const text = queryValue(raw, name)
      if (text === undefined) return options.fallback
      const value = parseBoolean(text)
      if (value !== undefined) return value
      const cause = `strconv.ParseBool: parsing ${JSON.stringify(shortened(text))}: invalid syntax`
      throw new Refusal('invalid_request', `failed to parse ${name} field to boolean: ${cause}`)
    },
  }
}

const INT64_MAX = 2n ** 63n - 1n
const INT64_MIN = -(2n ** 63n)

/**
 * A base-10 int64 as Go parses it. Values beyond 2^53 are clamped: no file, limit or count is that large.
 */
export function parseInteger(text: string): number | 'syntax' | 'range' {
  if (!/^[+-]?\d+$/.test(text)) return 'syntax'
  // 2^63 has 19 digits; zeros in front do not count.
  if (text.replace(/^[+-]?0*/, '').length > 19) return 'range'
  const value = BigInt(text.startsWith('+') ? text.slice(1) : text)
  if (value > INT64_MAX || value < INT64_MIN) return 'range'
  const number = Number(value)
  return Math.max(Math.min(number, Number.MAX_SAFE_INTEGER), -Number.MAX_SAFE_INTEGER)
}

interface IntegerOptions<D> {
  description: string
  fallback: D
  required?: boolean
}

function refuseInteger(name: string, text: string, why: string): never {
  const cause = `strconv.ParseInt: parsing ${JSON.stringify(text)}: ${why}`
  throw new Refusal('invalid_request', `error parsing ${name}: ${cause}`)
}

export function queryInteger<D extends number | undefined>(options: IntegerOptions<D>): Field<number | D> {
  return {
    in: 'query',
    type: 'integer',
    description: options.description,
    required: options.required === true,
    ...(options.fallback === undefined || options.required ? {} : { fallback: options.fallback }),
    parse(raw, name) {
      const text = queryValue(raw, name)
      if (text === undefined) return options.required ? refuseInteger(name, '', 'invalid syntax') : options.fallback
      if (text.length > SHOWN_MAX) {
        return refuseInteger(
          name,
          shortened(text),
          parseInteger(text) === 'syntax' ? 'invalid syntax' : 'value out of range',
        )
      }
      const value = parseInteger(text)
      if (value === 'syntax') return refuseInteger(name, text, 'invalid syntax')
      return value === 'range' ? refuseInteger(name, text, 'value out of range') : value
    },
  }
}

export function header(description: string): Field<string | undefined> {
  return {
    in: 'header',
    type: 'string',
    description,
    required: false,
    parse: (raw, name) => raw.headers[name],
  }
}
