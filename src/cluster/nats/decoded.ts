/** Narrow types of values that were decoded from the bus, of which nothing is known yet. By hand, where each call has them. */

export function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}

/** A list of so many values; undefined for anything else. */
export function listOf(value: unknown, length: number): readonly unknown[] | undefined {
  return Array.isArray(value) && value.length === length ? value : undefined
}

export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0
}

export function isText(value: unknown, lengthMax: number): value is string {
  return typeof value === 'string' && value.length <= lengthMax
}
