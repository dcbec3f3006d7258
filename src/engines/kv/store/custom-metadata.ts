/** Custom metadata of secrets: parsing and limits. */
import { errorList, oneError, Rejection } from '../../framework/engine.ts'
import { isObject, UNPRINTABLE } from '../../framework/fields.ts'
import type { CustomMetadata } from './record.ts'

const KEYS_MAX = 64
const KEY_BYTES_MAX = 128
const VALUE_BYTES_MAX = 512

function textOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (typeof value === 'number') return String(value)
  if (typeof value === 'boolean') return value ? '1' : '0'
  if (value === null) return ''
  throw new Rejection(400, 'custom_metadata validation failed: values must be strings')
}

function faultsOf(key: string, value: string): string[] {
  const [keyBytes, valueBytes] = [Buffer.byteLength(key), Buffer.byteLength(value)]
  const faults: string[] = []
  if (keyBytes === 0 || keyBytes > KEY_BYTES_MAX) {
    faults.push(`length of key "${key}" is ${keyBytes} but must be 0 < len(key) <= ${KEY_BYTES_MAX}`)
  }
  if (valueBytes === 0 || valueBytes > VALUE_BYTES_MAX) {
    faults.push(`length of value for key "${key}" is ${valueBytes} but must be 0 < len(value) <= ${VALUE_BYTES_MAX}`)
  }
  if (UNPRINTABLE.test(key)) faults.push(`key "${key}" (${key}) contains unprintable characters`)
  if (UNPRINTABLE.test(value)) faults.push(`value for key "${key}" contains unprintable characters`)
  return faults
}

function check(entries: readonly (readonly [string, string])[]): void {
  if (entries.length > KEYS_MAX) {
    const count = `payload must contain at most ${KEYS_MAX} keys, provided ${entries.length}`
    throw new Rejection(400, oneError(`custom_metadata validation failed: ${count}`))
  }
  const faults = entries.flatMap(([key, value]) => faultsOf(key, value))
  if (faults.length === 0) return
  throw new Rejection(400, errorList(faults.map((each) => `custom_metadata validation failed: ${each}`)))
}

function entriesOf(given: unknown): readonly (readonly [string, unknown])[] {
  if (given === null || given === undefined) return []
  if (isObject(given)) return Object.entries(given)
  throw new Rejection(400, 'custom_metadata validation failed: it must be an object of strings')
}

/** Null for an empty object. Throws a Rejection (400). */
export function customMetadata(given: unknown): CustomMetadata | null {
  const entries = entriesOf(given).map(([key, value]) => [key, textOf(value)] as const)
  check(entries)
  return entries.length === 0 ? null : Object.fromEntries(entries)
}

/** Applies a merge patch. The limits apply to the result. Throws a Rejection (400). */
export function patchedMetadata(before: CustomMetadata | null, given: unknown): CustomMetadata | null {
  if (given === null) return null
  const entries = entriesOf(given)
  check(entries.flatMap(([key, value]) => (value === null ? [] : [[key, textOf(value)] as const])))
  const merged = new Map(Object.entries(before ?? {}))
  for (const [key, value] of entries) {
    if (value === null) merged.delete(key)
    else merged.set(key, textOf(value))
  }
  check([...merged])
  return merged.size === 0 ? null : Object.fromEntries(merged)
}
