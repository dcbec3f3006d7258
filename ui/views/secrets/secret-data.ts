/** The data of a secret: parsed with numbers as they are written, as JSON text, and as the rows of an editor. */
import { findJsonFault } from './json-position.ts'

export type SecretData = Readonly<Record<string, unknown>>

const canKeepNumbers = 'rawJSON' in JSON
const SPACES = 2

/** A number that JavaScript may write differently: a fraction, an exponent, more digits than it keeps, or -0. */
const SUSPECT_NUMBER = /(?:^|[:,[])\s*(?:-0|-?(?:\d+[.eE]|\d{16}))/

/** Parses JSON. Numbers such as 1.0 and 12345678901234567890 are written again as they are. */
export function parseJsonText(text: string): unknown {
  if (!canKeepNumbers) {
    const plain: unknown = JSON.parse(text)
    return plain
  }
  return JSON.parse(text, (_key, value, { source }) => {
    const isChanged = typeof value === 'number' && source !== undefined && String(value) !== source
    return isChanged ? JSON.rawJSON(source) : value
  })
}

/** Whether this browser would change a number of a text when it writes it again. */
export function losesNumbers(text: string): boolean {
  return !canKeepNumbers && SUSPECT_NUMBER.test(text)
}

export function isObject(value: unknown): value is SecretData {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  return !canKeepNumbers || !JSON.isRawJSON(value)
}

/** A value as people read it: a string without quotes, anything else as JSON. */
export function valueText(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value, null, SPACES) ?? '')
}

export function dataText(data: SecretData): string {
  return JSON.stringify(data, null, SPACES)
}

/** A fault in a text, with its place. */
export interface TextFault {
  readonly line: number
  readonly column: number
  readonly message: string
}

export type ParsedData =
  | { readonly data: SecretData; readonly fault?: undefined }
  | { readonly data?: undefined; readonly fault: TextFault }

/** Parses the data of a secret, an object. A repeated key is a fault, because only its last value would be stored. */
export function parseData(text: string): ParsedData {
  const fault = findJsonFault(text)
  if (fault) return { fault: { ...positionIn(text, fault.offset), message: fault.message } }
  const data = parseJsonText(text)
  if (isObject(data)) return { data }
  return { fault: { ...positionIn(text, text.search(/\S/)), message: 'expected an object: `{`' } }
}

/** Counts from 1, in UTF-16 code units. */
function positionIn(text: string, offset: number): { readonly line: number; readonly column: number } {
  const before = text.slice(0, offset)
  return { line: before.split('\n').length, column: offset - before.lastIndexOf('\n') }
}

/** A key in the editor. */
export interface EditorRow {
  readonly id: number
  readonly key: string
  readonly text: string
  /** True for a value other than a string, whose text is JSON. */
  readonly isJson: boolean
}

export interface RowFault {
  readonly id: number
  readonly message: string
}

export function rowsOf(data: SecretData): EditorRow[] {
  return Object.entries(data).map(([key, value], id) => ({
    id,
    key,
    text: valueText(value),
    isJson: typeof value !== 'string',
  }))
}

/** The data of rows; a row without key and value is ignored. */
export function dataOfRows(rows: readonly EditorRow[]): { readonly data: SecretData; readonly faults: RowFault[] } {
  const members: [string, unknown][] = []
  const faults: RowFault[] = []
  const names = new Set<string>()
  for (const { id, isJson, key, text } of rows) {
    if (key === '' && text === '') continue
    if (key === '') faults.push({ id, message: 'The key is empty.' })
    else if (names.has(key)) faults.push({ id, message: 'The key is repeated.' })
    names.add(key)
    const value = isJson ? jsonValue(text) : { value: text }
    if ('message' in value) faults.push({ id, message: value.message })
    else members.push([key, value.value])
  }
  return { data: Object.fromEntries(members), faults }
}

function jsonValue(text: string): { readonly value: unknown } | { readonly message: string } {
  try {
    return { value: parseJsonText(text) }
  } catch {
    return { message: 'The value is not JSON. Choose "Text" to store it as a string.' }
  }
}
