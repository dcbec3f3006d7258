/**
 * Parses JSON from callers. In addition to `JSON.parse`, it refuses nesting that is too deep to serialize again, more values or
 * names than the limits, and numbers outside the range of a double. Errors never quote the input, because it may be a secret.
 */
import { Rejection } from '../../engines/framework/engine.ts'
import { endOfString } from '../../engines/framework/exact-json.ts'

/** Serializing a value needs stack for each level. */
const DEPTH_MAX = 1000

const [ZERO, NINE, UPPER_E, LOWER_E] = [48, 57, 69, 101]
/** A number with at most this many digits and no exponent is below 1.8e308. */
const DIGITS_IN_RANGE = 308
const [QUOTE, OPEN_LIST, OPEN_OBJECT, CLOSE_LIST, CLOSE_OBJECT, COMMA, COLON] = [34, 91, 123, 93, 125, 44, 58]

export interface JsonLimits {
  /** Values of all kinds, including the members of lists and objects. */
  readonly valuesMax: number
  /** Names of members in all objects together. */
  readonly namesMax: number
}

/** Throws a Rejection (400) with the position of the error. */
export function parseJson(text: string, limits: JsonLimits): unknown {
  const hasLongNumber = checkShape(text, limits)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new Rejection(400, `failed to decode JSON input: ${positionOf(error, text)}`)
  }
  if (hasLongNumber && !isFinite(value)) {
    throw new Rejection(400, 'failed to decode JSON input: a number is out of range')
  }
  return value
}

/** V8's message quotes the text, so only the position is kept. */
function positionOf(error: unknown, text: string): string {
  const at = /position (\d+)/.exec(error instanceof Error ? error.message : '')?.[1]
  if (at === undefined) return text.trim() === '' ? 'the body is empty' : 'malformed or truncated JSON'
  return `malformed JSON at character ${at}`
}

/**
 * Stops at the first violation, so that a refused text costs no more than an accepted one. True if a number may be out of range:
 * it has an exponent or hundreds of digits.
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

function tooComplex(reason: string): Rejection {
  return new Rejection(400, `refused JSON input due to high complexity: ${reason}`)
}

function isFinite(value: unknown): boolean {
  if (typeof value === 'number') return Number.isFinite(value)
  return typeof value !== 'object' || value === null || Object.values(value).every(isFinite)
}
