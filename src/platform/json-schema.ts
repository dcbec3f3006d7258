/** Shorthands for the JSON schemas of responses, which the OpenAPI document contains. */
import type { JsonSchema } from './operation.ts'

export const TEXT: JsonSchema = { type: 'string' }
export const FLAG: JsonSchema = { type: 'boolean' }
export const COUNT: JsonSchema = { type: 'integer' }
export const NUMBER: JsonSchema = { type: 'number' }

/** An object with exactly these properties, all required. */
export function record(properties: Readonly<Record<string, JsonSchema>>): JsonSchema {
  return { type: 'object', properties, required: Object.keys(properties) }
}

/** An object with any names. */
export function map(values: JsonSchema): JsonSchema {
  return { type: 'object', additionalProperties: values }
}

export function orNull(schema: JsonSchema): JsonSchema {
  return { anyOf: [schema, { type: 'null' }] }
}

export function listOf(items: JsonSchema): JsonSchema {
  return { type: 'array', items }
}
