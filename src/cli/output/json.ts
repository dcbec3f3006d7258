/** Reads JSON of servers: numbers keep their text, and missing or malformed fields have default values. */

/** A JSON object. Missing fields, and fields of another type, are empty, zero or false. */
export interface JsonFields {
  text(name: string): string
  number(name: string): number
  boolean(name: string): boolean
  /** The fields of the object with this name. */
  under(name: string): JsonFields
  /** The keys of the object with this name. */
  names(name: string): string[]
  list(name: string): JsonFields[]
  value(name: string): unknown
}

export function fieldsOf(value: unknown): JsonFields {
  const fields = isJsonObject(value) ? value : {}
  const at = (name: string): unknown => (Object.hasOwn(fields, name) ? fields[name] : undefined)
  return {
    text: (name) => asText(at(name)),
    number: (name) => asNumber(at(name)),
    boolean: (name) => at(name) === true,
    under: (name) => fieldsOf(at(name)),
    names: (name) => {
      const under = at(name)
      return isJsonObject(under) ? Object.keys(under) : []
    },
    list: (name) => {
      const items: unknown = at(name)
      return Array.isArray(items) ? items.map(fieldsOf) : []
    },
    value: at,
  }
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function asNumber(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : 0
}

interface ReviverContext {
  /** The text of a primitive value. */
  readonly source?: string
}

declare global {
  interface JSON {
    parse(text: string, reviver: (key: string, value: unknown, context: ReviverContext) => unknown): unknown
    rawJSON(text: string): object
    isRawJSON(value: unknown): boolean
  }
}

/** Throws SyntaxError; its message may quote the text. */
export function parseExact(text: string): unknown {
  return JSON.parse(text, (_key, value, { source }) => {
    if (typeof value !== 'number' || source === undefined || String(value) === source) return value
    return JSON.rawJSON(source)
  })
}

/** False for a number that is kept as text, which is an object as well. */
export function isJsonObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !JSON.isRawJSON(value)
}
