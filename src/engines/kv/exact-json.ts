/**
 * JSON that keeps its numbers as they were written: `12345678901234567890` and `1.0` are what they were. Of a member that
 * comes twice the last one counts, and nothing is kept of how the text was laid out.
 */

interface Source {
  readonly source?: string
}

/** Of the platform since Node 22, and not yet in its types. */
interface ExactJson {
  parse(text: string, reviver: (key: string, value: unknown, context: Source) => unknown): unknown
  rawJSON(text: string): unknown
}

const exact: ExactJson = JSON

/** The same value in one line. `text` is JSON. */
export function compactJson(text: string): string {
  const value = exact.parse(text, (_key, each, { source }) =>
    typeof each === 'number' && source !== undefined && String(each) !== source ? exact.rawJSON(source) : each,
  )
  return JSON.stringify(value)
}
