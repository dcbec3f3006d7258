/**
 * MessagePack for messages on the bus: plain values only.
 *
 * Pointers (the library's extension for values that occur several times) are refused: with them a message of some kilobytes
 * could represent billions of values, which a check of types would visit one by one. Without them the cost of a message is
 * bounded by its bytes.
 */
import { Packr } from 'msgpackr'
import * as v from 'valibot'

export const packr: Packr = new Packr({ useRecords: false, mapsAsObjects: true, structuredClone: false })

/** Undefined for bytes that are not MessagePack. */
export function unpack(payload: Uint8Array): unknown {
  try {
    return packr.unpack(payload)
  } catch {
    return undefined
  }
}

/** Undefined for bytes that are not MessagePack, and for a value that does not match the schema. */
export function unpackAs<T extends v.GenericSchema>(schema: T, payload: Uint8Array): v.InferOutput<T> | undefined {
  const parsed = v.safeParse(schema, unpack(payload))
  return parsed.success ? parsed.output : undefined
}

// Checks of unpacked values without a schema, for messages of which each call has one.

export function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}

/** Undefined for a value that is not a list of this length. */
export function listOf(value: unknown, length: number): readonly unknown[] | undefined {
  return Array.isArray(value) && value.length === length ? value : undefined
}

/** True for a safe integer, 0 or above. */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0
}

export function isText(value: unknown, lengthMax: number): value is string {
  return typeof value === 'string' && value.length <= lengthMax
}
