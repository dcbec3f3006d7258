/**
 * Reads JSON from callers. Beyond what `JSON.parse` refuses, it refuses what would hurt later: nesting that is too deep
 * to be written again, more values or names than memory and time are good for, and numbers that no JavaScript number can hold. Its texts
 * never hold a piece of the input: that may be a secret.
 */
import { Rejection } from '../../engines/framework/engine.ts'
import { endOfString } from '../../engines/framework/exact-json.ts'

/** Deeper than any document that a person or a program means; writing a value costs stack for each level. */
export const DEPTH_MAX = 1000

const [ZERO, NINE, UPPER_E, LOWER_E] = [48, 57, 69, 101]
/** A number with as many digits and no exponent is below 1.8e308. */
const DIGITS_IN_RANGE = 308
const [QUOTE, OPEN_LIST, OPEN_OBJECT, CLOSE_LIST, CLOSE_OBJECT, COMMA, COLON] = [34, 91, 123, 93, 125, 44, 58]

export interface JsonLimits {
  /** Of all kinds, the members of lists and objects included. */
  readonly valuesMax: number
  /** Names of members, of all objects together. */
  readonly namesMax: number
}

/** The value of a JSON text. Throws a Rejection (400) that says where it cannot be read. */
export function parseJson(text: string, limits: JsonLimits): unknown {
  const hasLongNumber = checkShape(text, limits)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new Rejection(400, `failed to decode JSON input: ${placeOf(error, text)}`)
  }
  if (hasLongNumber && !isFinite(value)) {
    throw new Rejection(400, 'failed to decode JSON input: a number is out of range')
  }
  return value
}

/** V8's message quotes the text; only the place in it is kept. */
function placeOf(error: unknown, text: string): string {
  const at = /position (\d+)/.exec(error instanceof Error ? error.message : '')?.[1]
  if (at === undefined) return text.trim() === '' ? 'the body is empty' : 'it is no JSON, or ends early'
  return `it is no JSON from character ${at}`
}

/**
 * Ends at the first thing too many: what is refused must not cost more than what is read. True where a number may be out of
 * range: it has an exponent, or hundreds of digits.
 */
function checkShape(text: string, { namesMax, valuesMax }: JsonLimits): boolean {
  let [depth, names, values, digits] = [0, 0, 1, 0]
  let hasLongNumber = false
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code >= ZERO && code <= NINE) {
      if (++digits > DIGITS_IN_RANGE) hasLongNumber = true
      continue
    }
    if (digits > 0 && (code === LOWER_E || code === UPPER_E)) hasLongNumber = true
    digits = 0
    if (code === QUOTE) at = endOfString(text, at)
    else if (code === COMMA) values++
    else if (code === COLON) names++
    else if (code === OPEN_LIST || code === OPEN_OBJECT) {
      if (++depth > DEPTH_MAX) throw tooComplex(`nested deeper than ${DEPTH_MAX} levels`)
      values++
    } else if (code === CLOSE_LIST || code === CLOSE_OBJECT) depth--
    if (values > valuesMax) throw tooComplex(`more than ${valuesMax} values`)
    if (names > namesMax) throw tooComplex(`more than ${namesMax} names of members`)
  }
  return hasLongNumber
}

function tooComplex(why: string): Rejection {
  return new Rejection(400, `refused JSON input due to high complexity: ${why}`)
}

function isFinite(value: unknown): boolean {
  if (typeof value === 'number') return Number.isFinite(value)
  return typeof value !== 'object' || value === null || Object.values(value).every(isFinite)
}
