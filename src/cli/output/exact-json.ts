/**
 * JSON in which numbers stay as they were written: a secret may hold an identifier of 20 digits, which a number of this
 * language would change.
 */

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

/** An object with members, of which a number that is kept as text is none. */
export function isJsonObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !JSON.isRawJSON(value)
}
