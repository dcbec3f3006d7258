/** New versions of a secret: a write, or a merge patch over the newest one, each if the current version is as said. */
import { type EngineCall, Rejection, type Reply } from '../../framework/engine.ts'
import { FieldError, integerOf, type JsonObject } from '../../framework/fields.ts'
import { exactBody, exactData, parseBounded } from './exact-body.ts'
import { mergePatch } from './merge-patch.ts'
import { type KeyRecord, versionMetadata } from './record.ts'
import type { ChangingSecrets } from './secrets.ts'

export interface DataInput {
  readonly path: string
  readonly options: JsonObject | null | undefined
  /** Numbers in it are as they were written. */
  readonly data: JsonObject | null | undefined
}

/** The data of a body that holds it beside its options. */
export function exactInput(input: DataInput, call: EngineCall): DataInput {
  return { ...input, data: exactData(exactBody(call), input.data) }
}

/** Throws where the caller's idea of the current version is wrong, or missing where it must be given. */
export function checkCas(
  options: JsonObject | null | undefined,
  secrets: ChangingSecrets,
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

/** What is said of the version that was made. */
export function put(secrets: ChangingSecrets, input: DataInput): Record<string, unknown> {
  if (input.data === undefined) throw new Rejection(400, 'no data provided')
  const before = secrets.record(input.path)
  checkCas(input.options, secrets, before)
  const record = secrets.addVersion(input.path, before, JSON.stringify(input.data), 'update')
  return versionMetadata(record, record.current)
}

/** As `put`; with a status where there is nothing that could be patched, and then nothing was changed. */
export function patch(secrets: ChangingSecrets, input: DataInput): Pick<Reply, 'status' | 'data'> {
  if (input.data === undefined) throw new Rejection(400, 'no data provided')
  const before = secrets.record(input.path)
  // A text, so that a stock command does not take an empty 404 for success.
  if (!before) throw new Rejection(404, 'no secret to patch at this path')
  checkCas(input.options, secrets, before)
  if (!before.versions.has(before.current)) throw new Rejection(404, 'no version to patch at this path')
  const text = secrets.liveData(before)
  if (text === undefined) return { status: 404, data: versionMetadata(before, before.current) }
  const merged = mergePatch(parseBounded(text), input.data ?? {})
  const record = secrets.addVersion(input.path, before, JSON.stringify(merged), 'patch')
  return { data: versionMetadata(record, record.current) }
}
