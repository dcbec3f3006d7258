/**
 * JSON whose numbers stay as they were written: `12345678901234567890`, `1.0` and `-0` are what they were. A number that
 * this language would write differently is kept as its text, in an object that `JSON.stringify` writes as that text.
 * Everything else is as `JSON.parse` has it: of a member that comes twice the last one counts.
 */

interface Source {
  readonly source?: string
}

/** Of the platform since Node 22, and not yet in its types. */
interface ExactJson {
  parse(text: string, reviver: (key: string, value: unknown, context: Source) => unknown): unknown
  rawJSON(text: string): unknown
  isRawJSON(value: unknown): boolean
}

const exact: ExactJson = JSON

/**
 * Begins like a number that may be written differently: with a fraction or an exponent, with more digits than are always
 * exact, or zero with a sign. Texts inside of strings may look so too, which costs time and nothing else.
 */
const SUSPECT = /[:,[]\s*(?:-0|-?(?:\d+[.eE]|\d{16}))/

/** Whether reading this JSON, an object, as usual may change a number. */
export function hasSuspectNumbers(text: string): boolean {
  return SUSPECT.test(text)
}

/** The value of a JSON text that holds an object; numbers that reading would change are not of type number. */
export function parseExact(text: string): unknown {
  // A reviver costs ten times the time: most secrets hold texts and nothing else.
  if (!hasSuspectNumbers(text)) return JSON.parse(text)
  return exact.parse(text, (_key, each, { source }) =>
    typeof each === 'number' && source !== undefined && String(each) !== source ? exact.rawJSON(source) : each,
  )
}

/** Whether it is a number that is kept as its text. */
export function isExactNumber(value: object): boolean {
  return exact.isRawJSON(value)
}
