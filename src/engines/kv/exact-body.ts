/** What a request brings to be kept, with its numbers as they were written. */
import type { EngineCall } from '../engine.ts'
import { hasSuspectNumbers, parseExact } from '../exact-json.ts'
import { isObject, type JsonObject } from '../fields.ts'

/**
 * The body as `call.data` has it, but for numbers that reading has changed: those are kept as their text. Policies are
 * asked about `call.data`, and so is every setting; what is stored is taken from here.
 */
export function exactBody({ bodyText, data }: EngineCall): JsonObject {
  if (bodyText === undefined || !hasSuspectNumbers(bodyText)) return data
  const body = parseExact(bodyText)
  return isObject(body) ? body : data
}

/** The member `data` of a part of such a body, in the place of what `call.data` has there. */
export function exactData<T>(part: unknown, data: T): T | JsonObject {
  const exact = isObject(part) ? part['data'] : undefined
  return isObject(data) && isObject(exact) ? exact : data
}
