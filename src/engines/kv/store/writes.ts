/** Writes new versions of a secret: data with its numbers as written, merge patches, check-and-set. */
import { type EngineCall, Rejection, type Reply } from '../../framework/engine.ts'
import { hasSuspectNumbers, parseExact, TooManyNumbers } from '../../framework/exact-json.ts'
import { FieldError, integerOf, isObject, type JsonObject } from '../../framework/fields.ts'
import { type KeyRecord, versionMetadata } from './record.ts'
import type { SecretWriter } from './secrets.ts'

export interface DataInput {
  readonly path: string
  readonly options: JsonObject | null | undefined
  /** Numbers are as they were written. */
  readonly data: JsonObject | null | undefined
}

/** Replaces the data by that of the body text, with numbers as written. */
export function exactInput(input: DataInput, call: EngineCall): DataInput {
  return { ...input, data: exactData(exactBody(call), input.data) }
}

/** Check-and-set. Throws a Rejection (400) if the current version differs from `cas`, or if a required `cas` is missing. */
export function checkCas(
  options: JsonObject | null | undefined,
  secrets: SecretWriter,
  record: KeyRecord | undefined,
): void {
  const cas = options && Object.hasOwn(options, 'cas') ? casOf(options['cas']) : undefined
  if (cas === undefined) {
    if (!secrets.config.casRequired && !record?.casRequired) return
    throw new Rejection(400, 'check-and-set parameter required for this call')
  }
  if (cas === (record?.current ?? 0)) return
  throw new Rejection(400, 'check-and-set parameter did not match the current version')
}

function casOf(value: unknown): number {
  try {
    return integerOf(value)
  } catch (error) {
    if (!(error instanceof FieldError)) throw error
    throw new Rejection(400, 'error parsing check-and-set parameter')
  }
}

/** Adds a version. Returns its metadata. */
export function put(secrets: SecretWriter, input: DataInput): Record<string, unknown> {
  if (input.data === undefined) throw new Rejection(400, 'no data provided')
  const before = secrets.record(input.path)
  checkCas(input.options, secrets, before)
  const record = secrets.addVersion(input.path, before, JSON.stringify(input.data), 'update')
  return versionMetadata(record, record.current)
}

/** Adds a version that is the newest one with a merge patch. Returns a status, without a change, if that is deleted or destroyed. */
export function patch(secrets: SecretWriter, input: DataInput): Pick<Reply, 'status' | 'data'> {
  if (input.data === undefined) throw new Rejection(400, 'no data provided')
  const before = secrets.record(input.path)
  // With a text, because stock commands take an empty 404 for success.
  if (!before) throw new Rejection(404, 'no secret to patch at this path')
  checkCas(input.options, secrets, before)
  if (!before.versions.has(before.current)) throw new Rejection(404, 'no version to patch at this path')
  const text = secrets.liveData(before)
  if (text === undefined) return { status: 404, data: versionMetadata(before, before.current) }
  const merged = mergePatch(parseBounded(text), input.data ?? {})
  const record = secrets.addVersion(input.path, before, JSON.stringify(merged), 'patch')
  return { data: versionMetadata(record, record.current) }
}

/** Takes some fifty milliseconds to parse. */
const NUMBERS_MAX = 50_000

/**
 * The same as `call.data`, but with numbers as they were written. Policies and settings use `call.data`; the data that is stored
 * comes from here. Throws a Rejection (400) for too many such numbers.
 */
export function exactBody({ bodyText, data }: EngineCall): JsonObject {
  if (bodyText === undefined || !hasSuspectNumbers(bodyText)) return data
  const body = parseBounded(bodyText)
  return isObject(body) ? body : data
}

/** The member `data` of a part of such a body, instead of the same part of `call.data`. */
export function exactData<T>(part: unknown, data: T): T | JsonObject {
  const exact = isObject(part) ? part['data'] : undefined
  return isObject(data) && isObject(exact) ? exact : data
}

/** Parses JSON with numbers as written. Throws a Rejection (400) for too many of them. */
function parseBounded(text: string): unknown {
  try {
    return parseExact(text, NUMBERS_MAX)
  } catch (error) {
    if (!(error instanceof TooManyNumbers)) throw error
    const why = `more than ${NUMBERS_MAX} numbers such as 1.0 or 1e5, which are stored as written`
    throw new Rejection(400, `${why}: write them as strings, or in several secrets`)
  }
}

/** JSON merge patch (RFC 7396): null removes, objects merge, everything else replaces. Neither argument is modified. */
function mergePatch(target: unknown, changes: unknown): unknown {
  if (!isObject(changes)) return changes
  // A map, because a member may have the name `__proto__`.
  const merged = new Map(isObject(target) ? Object.entries(target) : [])
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) merged.delete(name)
    else merged.set(name, mergePatch(merged.get(name), value))
  }
  return Object.fromEntries(merged)
}
