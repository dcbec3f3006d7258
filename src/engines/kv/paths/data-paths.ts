/** `data/`: reads and writes versions of a secret. `subkeys/`: their structure. `delete/`, `undelete/`, `destroy/`: versions by number. */
import { JsonText } from '../../../platform/operation.ts'
import { denied, type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { inPath, integer, integerList, isObject, object, text } from '../../framework/fields.ts'
import {} from '../store/names.ts'
import { type KeyRecord, versionMetadata } from '../store/record.ts'
import { isVersionForbidden, kvPath, mayReadVersion } from '../store/rights.ts'
import { SecretWriter, pendingSecrets, SecretReader } from '../store/secrets.ts'
import { type DataInput, exactInput, patch, put } from '../store/writes.ts'

const NAME = inPath('Name of the secret')
const options = object('`cas`: the required current version, 0 for a new secret')
const data = object('Data of the secret')
const version = integer('Version; 0 for the latest', { fallback: 0 })
const at = text('Read the version that was the latest at this time: RFC 3339 or Unix seconds', { fallback: '' })

export interface VersionInput {
  readonly path: string
  readonly version: number
  readonly at?: string
}

/** `exists`: the result of the lookup of the same request. */
function writeData(input: DataInput, call: EngineCall, exists: boolean): Reply {
  const secrets = new SecretWriter(call, { name: input.path, exists })
  const written = put(secrets, exactInput(input, call))
  return { data: written, batch: secrets.batch }
}

function patchData(input: DataInput, call: EngineCall): Reply {
  const secrets = new SecretWriter(call)
  const reply = patch(secrets, exactInput(input, call))
  return { ...reply, batch: secrets.batch }
}

/** Throws a Rejection (400) for an invalid time. */
function timeOf(given: string): number {
  const ms = /^\d{9,12}$/.test(given) ? Number(given) * 1000 : Date.parse(given)
  if (/^\d{9,12}$|^\d{4}-\d\d-\d\dT.*(?:Z|[+-]\d\d:\d\d)$/i.test(given) && Number.isFinite(ms)) return ms
  throw new Rejection(400, '"at" must be a time such as 2026-01-31T12:00:00Z, or seconds since 1970')
}

/** The version that was newest at a time; 0 if there was none or it was pruned. */
function versionAt(record: KeyRecord, ms: number): number {
  let newest = 0
  for (const [number, { createdAtMs }] of record.versions) {
    if (createdAtMs <= ms && number > newest) newest = number
  }
  return newest
}

/**
 * Throws a Rejection (403) if the caller's policies do not allow the version. A version by number is authorized again with the
 * parsed number, because `01` and `1` are the same version. A version by time is authorized as if it had been requested by
 * number; a time before the first version as the first one, so that the response does not reveal when it was created.
 */
function requireVersionRights(
  record: KeyRecord,
  resolved: number,
  { at: time = '' }: VersionInput,
  call: EngineCall,
): void {
  const isAllowed =
    time === ''
      ? call.allows('read', call.path, { ...call.data, version: resolved })
      : mayReadVersion(call, record, resolved === 0 ? Math.max(record.oldest, 1) : resolved)
  if (!isAllowed) throw denied()
}

/**
 * The requested version, if it exists, with its data as JSON text unless it is deleted or destroyed. Throws a Rejection (403) for
 * a version that the caller may not read.
 */
export function versionOf(input: VersionInput, call: EngineCall, requireRights = requireVersionRights) {
  const { path: given, version: number, at: time = '' } = input
  if (time !== '' && number !== 0) throw new Rejection(400, '"version" and "at" are mutually exclusive')
  const atMs = time === '' ? undefined : timeOf(time)
  const secrets = new SecretReader(call)
  const record = given === '' || given.endsWith('/') ? undefined : secrets.record(given)
  if (!record) return undefined
  const resolved = atMs !== undefined ? versionAt(record, atMs) : number <= 0 ? record.current : number
  if (number > 0 || time !== '') requireRights(record, resolved, input, call)
  if (!record.versions.has(resolved)) return undefined
  // A version that was deleted since is deleted for reads by time too.
  const metadata = versionMetadata(record, resolved)
  return { record, version: resolved, metadata, text: secrets.liveData(record, resolved) }
}

function readData(input: VersionInput, call: EngineCall): Reply | undefined {
  if (Object.hasOwn(call.data, 'read_snapshot_id')) {
    throw new Rejection(
      400,
      'reads from loaded snapshots are not supported: use "at" to read the version that was current at a time',
    )
  }
  const found = versionOf(input, call)
  if (!found) return undefined
  const { metadata, text: json } = found
  if (json === undefined) return { status: 404, data: { data: null, metadata } }
  return { data: new JsonText(`{"data":${json},"metadata":${JSON.stringify(metadata)}}`) }
}

/** The structure of a value, with null for each leaf, down to `depth` levels (0: all). */
function structure(value: unknown, depth: number): unknown {
  if (!isObject(value)) return null
  const entries = Object.entries(value).map(([key, each]) => {
    const isLeaf = depth === 1 || !isObject(each) || Object.keys(each).length === 0
    return [key, isLeaf ? null : structure(each, depth - 1)] as const
  })
  return Object.fromEntries(entries)
}

function readSubkeys(input: VersionInput & { readonly depth: number }, call: EngineCall): Reply | undefined {
  const found = versionOf(input, call)
  if (!found) return undefined
  if (isVersionForbidden(call, found.record, found.version)) throw denied()
  const { metadata, text: json } = found
  if (json === undefined) return { status: 404, data: { metadata, subkeys: null } }
  const depth = input.depth < 0 ? 1 : input.depth
  return { data: { metadata, subkeys: structure(JSON.parse(json) ?? {}, depth) } }
}

export const dataPaths: readonly Path[] = [
  kvPath({
    pattern: 'data/:path+',
    summary: 'Read, write, patch or delete a secret',
    fields: { path: NAME, options, data, version, at },
    exists: ({ path: given }, call) => pendingSecrets(call).has(given),
    read: readData,
    create: (input, call) => writeData(input, call, false),
    update: (input, call) => writeData(input, call, true),
    patch: patchData,
    delete({ path: given }, call) {
      const secrets = new SecretWriter(call)
      const record = secrets.record(given)
      if (record) secrets.softDelete(given, [record.current])
      return { batch: secrets.batch }
    },
  }),
  kvPath({
    pattern: 'subkeys/:path+',
    summary: 'Read the keys of a secret without values',
    fields: {
      path: NAME,
      version,
      depth: integer('Number of levels; 0 for all', { fallback: 0 }),
    },
    read: readSubkeys,
  }),
]

type VersionChange = 'softDelete' | 'undelete' | 'destroy'

function versionPath(pattern: string, summary: string, missing: string, change: VersionChange): Path {
  return kvPath({
    pattern,
    summary,
    fields: { path: NAME, versions: integerList('Version numbers') },
    update({ path: name, versions }, call: EngineCall): Reply {
      if (!versions || versions.length === 0) throw new Rejection(400, missing)
      const secrets = new SecretWriter(call)
      secrets[change](name, versions)
      return { batch: secrets.batch }
    },
  })
}

/** `delete/`, `undelete/`, `destroy/`. */
export const versionPaths: readonly Path[] = [
  versionPath('delete/:path+', 'Delete versions, which can be undeleted', 'No version number provided', 'softDelete'),
  versionPath('undelete/:path+', 'Undelete versions of a secret', 'No version number provided', 'undelete'),
  versionPath('destroy/:path+', 'Destroy versions permanently', 'no version number provided', 'destroy'),
]
