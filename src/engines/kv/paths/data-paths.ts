/** `data/`: the versions of a secret, and `subkeys/`, what they look like without their values. */
import { JsonText } from '../../../platform/operation.ts'
import { type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { inPath, integer, isObject, object, text } from '../../framework/fields.ts'
import { kvPath } from '../store/reads.ts'
import { type KeyRecord, versionMetadata } from '../store/record.ts'
import { isVersionForbidden, mayReadVersion } from '../store/rights.ts'
import { forbidden } from '../store/secret-name.ts'
import { ChangingSecrets, pendingSecrets, Secrets } from '../store/secrets.ts'
import { type DataInput, exactInput, patch, put } from '../store/writes.ts'

const name = inPath('Name of the secret')
const options = object('`cas`: the version that must be the current one, 0 for none yet')
const data = object('What the secret holds')
const version = integer('Which version; 0 for the newest', { fallback: 0 })
const at = text('The version that was the newest at this time: RFC 3339, or seconds since 1970', { fallback: '' })

export interface VersionQuestion {
  readonly path: string
  readonly version: number
  readonly at?: string
}

/** `isThere`: what `exists` has said just now. */
function writeData(input: DataInput, call: EngineCall, isThere: boolean): Reply {
  const secrets = new ChangingSecrets(call, { name: input.path, isThere })
  const written = put(secrets, exactInput(input, call))
  return { data: written, batch: secrets.batch }
}

function patchData(input: DataInput, call: EngineCall): Reply {
  const secrets = new ChangingSecrets(call)
  const reply = patch(secrets, exactInput(input, call))
  return { ...reply, batch: secrets.batch }
}

/** Milliseconds of a time as callers give it. Throws a Rejection for what is none. */
function timeOf(given: string): number {
  const ms = /^\d{9,12}$/.test(given) ? Number(given) * 1000 : Date.parse(given)
  if (/^\d{9,12}$|^\d{4}-\d\d-\d\dT.*(?:Z|[+-]\d\d:\d\d)$/i.test(given) && Number.isFinite(ms)) return ms
  throw new Rejection(400, '"at" is a time such as 2026-01-31T12:00:00Z, or seconds since 1970')
}

/** The number of the version that was the newest at a time; 0 where there was none, or where it was pruned. */
function versionAt(record: KeyRecord, ms: number): number {
  let newest = 0
  for (const [number, { createdAtMs }] of record.versions) {
    if (createdAtMs <= ms && number > newest) newest = number
  }
  return newest
}

/**
 * Throws (403) where the caller's policies do not allow this version. One that is named by its number is judged again
 * with the number as it is meant: `01` and `1` are one version. One that is found by a time is judged as if it had been
 * named; a time before the first version as the first, so that the answer does not tell when that was made.
 */
function demandVersion(record: KeyRecord, meant: number, { at: time = '' }: VersionQuestion, call: EngineCall): void {
  const isAllowed =
    time === ''
      ? call.allows('read', call.path, { ...call.data, version: meant })
      : mayReadVersion(call, record, meant === 0 ? Math.max(record.oldest, 1) : meant)
  if (!isAllowed) throw forbidden()
}

/**
 * The version that is asked for, when it is known: with its data as JSON text, unless that was deleted or destroyed.
 * Throws a Rejection (403) for a version that the caller may not read.
 */
export function versionOf(question: VersionQuestion, call: EngineCall, demand = demandVersion) {
  const { path: given, version: number, at: time = '' } = question
  if (time !== '' && number !== 0) throw new Rejection(400, 'either "version" or "at", not both')
  const atMs = time === '' ? undefined : timeOf(time)
  const secrets = new Secrets(call)
  const record = given === '' || given.endsWith('/') ? undefined : secrets.record(given)
  if (!record) return undefined
  const meant = atMs !== undefined ? versionAt(record, atMs) : number <= 0 ? record.current : number
  if (number > 0 || time !== '') demand(record, meant, question, call)
  const kept = record.versions.get(meant)
  if (!kept) return undefined
  // What was deleted since is as gone as it is without a time: time travel brings nothing back.
  return { record, version: meant, metadata: versionMetadata(record, meant), text: secrets.liveData(record, meant) }
}

function readData(input: VersionQuestion, call: EngineCall): Reply | undefined {
  if (Object.hasOwn(call.data, 'read_snapshot_id')) {
    throw new Rejection(400, 'there are no loaded snapshots to read from; "at" reads what was there at a time')
  }
  const kept = versionOf(input, call)
  if (!kept) return undefined
  const { metadata, text: json } = kept
  if (json === undefined) return { status: 404, data: { data: null, metadata } }
  return { data: new JsonText(`{"data":${json},"metadata":${JSON.stringify(metadata)}}`) }
}

/** The structure of a value with null for each leaf; `depth` levels of it, all where that is 0. */
function structure(value: unknown, depth: number): unknown {
  if (!isObject(value)) return null
  const entries = Object.entries(value).map(([key, each]) => {
    const isLeaf = depth === 1 || !isObject(each) || Object.keys(each).length === 0
    return [key, isLeaf ? null : structure(each, depth - 1)] as const
  })
  return Object.fromEntries(entries)
}

function readSubkeys(input: VersionQuestion & { readonly depth: number }, call: EngineCall): Reply | undefined {
  const kept = versionOf(input, call)
  if (!kept) return undefined
  if (isVersionForbidden(call, kept.record, kept.version)) throw forbidden()
  const { metadata, text: json } = kept
  if (json === undefined) return { status: 404, data: { metadata, subkeys: null } }
  const depth = input.depth < 0 ? 1 : input.depth
  return { data: { metadata, subkeys: structure(JSON.parse(json) ?? {}, depth) } }
}

export const dataPaths: readonly Path[] = [
  kvPath({
    pattern: 'data/:path+',
    summary: 'Read, write, patch and delete the newest version of a secret, or read an older one',
    fields: { path: name, options, data, version, at },
    exists: ({ path: given }, call) => pendingSecrets(call).has(given),
    read: readData,
    create: (input, call) => writeData(input, call, false),
    update: (input, call) => writeData(input, call, true),
    patch: patchData,
    delete({ path: given }, call) {
      const secrets = new ChangingSecrets(call)
      const record = secrets.record(given)
      if (record) secrets.softDelete(given, [record.current])
      return { batch: secrets.batch }
    },
  }),
  kvPath({
    pattern: 'subkeys/:path+',
    summary: 'The structure of a secret, with null in place of each value',
    fields: {
      path: name,
      version,
      depth: integer('Levels that are shown; 0 for all', { fallback: 0 }),
    },
    read: readSubkeys,
  }),
]
