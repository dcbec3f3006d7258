/** What a request brings to be kept, with its numbers as they were written. */
import { type EngineCall, Rejection } from '../../framework/engine.ts'
import { hasSuspectNumbers, parseExact, TooManyNumbers } from '../../framework/exact-json.ts'
import { isObject, type JsonObject } from '../../framework/fields.ts'

/** Of a body: some fifty milliseconds to read. */
const NUMBERS_MAX = 50_000

/**
 * The body as `call.data` has it, but for numbers that reading has changed: those are kept as their text. Policies are
 * asked about `call.data`, and so is every setting; what is stored is taken from here. Throws a Rejection (400) for too many such numbers.
 */
export function exactBody({ bodyText, data }: EngineCall): JsonObject {
  if (bodyText === undefined || !hasSuspectNumbers(bodyText)) return data
  const body = parseBounded(bodyText)
  return isObject(body) ? body : data
}

/** The member `data` of a part of such a body, in the place of what `call.data` has there. */
export function exactData<T>(part: unknown, data: T): T | JsonObject {
  const exact = isObject(part) ? part['data'] : undefined
  return isObject(data) && isObject(exact) ? exact : data
}

/** As `parseExact`; throws a Rejection (400) for more numbers than a body may bring. */
export function parseBounded(text: string): unknown {
  try {
    return parseExact(text, NUMBERS_MAX)
  } catch (error) {
    if (!(error instanceof TooManyNumbers)) throw error
    const why = `more than ${NUMBERS_MAX} numbers such as 1.0 or 1e5, which are kept as they are written`
    throw new Rejection(400, `${why}: write them as texts, or in several secrets`)
  }
}
