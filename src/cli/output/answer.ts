/**
 * Reads the fields of an agent's answer without trusting it: what is missing or of another kind is nothing, zero or
 * empty, as the field's clients take it.
 */

export interface Answer {
  text(name: string): string
  number(name: string): number
  boolean(name: string): boolean
  /** The fields of the object under this name; of nothing when it is none. */
  under(name: string): Answer
  /** The names in the object under this name. */
  names(name: string): string[]
  list(name: string): Answer[]
  /** Whatever is there. */
  value(name: string): unknown
}

export function fieldsOf(value: unknown): Answer {
  const fields = isObject(value) ? value : {}
  const at = (name: string): unknown => (Object.hasOwn(fields, name) ? fields[name] : undefined)
  return {
    text: (name) => asText(at(name)),
    number: (name) => asNumber(at(name)),
    boolean: (name) => at(name) === true,
    under: (name) => fieldsOf(at(name)),
    names: (name) => {
      const under = at(name)
      return isObject(under) ? Object.keys(under) : []
    },
    list: (name) => {
      const items: unknown = at(name)
      return Array.isArray(items) ? items.map(fieldsOf) : []
    },
    value: at,
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : ''
}

function asNumber(value: unknown): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : 0
}
