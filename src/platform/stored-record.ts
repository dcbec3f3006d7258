/** Records that are stored as JSON text: entries of the barrier, state files. */
import * as v from 'valibot'
import { Fault } from './errors.ts'

/** Undefined for a text that is not JSON or does not match the schema. */
export function tryParseRecord<T>(schema: v.GenericSchema<unknown, T>, stored: Buffer | string): T | undefined {
  let value: unknown
  try {
    value = JSON.parse(stored.toString('utf8'))
  } catch {
    return undefined
  }
  const parsed = v.safeParse(schema, value)
  return parsed.success ? parsed.output : undefined
}

/** `name` is for the error: `a role`. Throws a Fault for a record that is damaged or has another format. */
export function parseRecord<T>(schema: v.GenericSchema<unknown, T>, stored: Buffer | string, name: string): T {
  const record = tryParseRecord(schema, stored)
  if (record === undefined) throw new Fault(`the record of ${name} is damaged or was written by another version`)
  return record
}
