/**
 * `export/` and `import/`: a folder of secrets as one JSON document, or one secret as a `.env` file. An export has what its
 * caller may read, custom metadata where that may read metadata, and says how much it left out. An import writes only what
 * is different, in one batch; a caller who may not read a secret is not told whether it is the same, so it is written.
 */
import { type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { parseExact } from '../../framework/exact-json.ts'
import { anything, boolean, inPath, integer, isObject, type JsonObject, text } from '../../framework/fields.ts'
import { runSliced, RECORD_COST, type SlicedWork } from '../../../platform/scheduler.ts'
import { customMetadata } from '../store/custom-metadata.ts'
import { envText, parseEnv } from '../store/env-file.ts'
import { exactBody, exactData } from '../store/exact-body.ts'
import { folderOf } from '../store/listing.ts'
import { eachBelow } from '../store/names.ts'
import { kvPath } from '../store/reads.ts'
import { mayReadMetadata, mayReadNewest } from '../store/rights.ts'
import { forbidden, secretName } from '../store/secret-name.ts'
import { ChangingSecrets, Secrets } from '../store/secrets.ts'
import { put } from '../store/writes.ts'

/** Of one request; more come in pages. */
const SECRETS_MAX = 1000
const BYTES_MAX = 16 << 20
/** Of JSON that is read, one unit of what is done in a turn (`turns.ts`): half a megabyte is read in one. */
const BYTES_OF_A_UNIT = 2048

interface ExportInput {
  readonly path: string
  readonly format: string
  readonly after: string
  readonly limit: number
}

function exportEnv(name: string, call: EngineCall): Reply | undefined {
  if (!mayReadNewest(call, name)) throw forbidden()
  const secrets = new Secrets(call)
  const record = secrets.record(name)
  const json = record && secrets.liveData(record)
  if (json === undefined) return undefined
  const data = parseExact(json)
  return { data: { format: 'env', text: envText(isObject(data) ? data : {}) } }
}

function* exportTree(input: ExportInput, call: EngineCall): SlicedWork<Reply> {
  const secrets = new Secrets(call)
  const folder = folderOf(input.path)
  const limit = Math.min(input.limit <= 0 ? SECRETS_MAX : input.limit, SECRETS_MAX)
  const found: (readonly [string, unknown])[] = []
  let [bytes, hidden, withoutMetadata, next] = [0, 0, 0, '']
  const isMore = yield* eachBelow(secrets.secret, secrets.read, folder, input.after, (name) => {
    if (!mayReadNewest(call, folder + name)) {
      hidden++
      return 1
    }
    // Only names that the caller may read are told, also as the place to go on from.
    if (found.length >= limit || bytes >= BYTES_MAX) return 'enough'
    next = name
    const record = secrets.record(folder + name)
    const json = record && secrets.liveData(record)
    if (json === undefined) return RECORD_COST
    bytes += json.length
    const hasMetadata = mayReadMetadata(call, folder + name)
    if (!hasMetadata) withoutMetadata++
    found.push([name, { data: parseExact(json), ...(hasMetadata && { custom_metadata: record?.custom ?? null }) }])
    return RECORD_COST + json.length / BYTES_OF_A_UNIT
  })
  return exported(found, { hidden, withoutMetadata }, isMore ? next : null)
}

function exported(
  found: readonly (readonly [string, unknown])[],
  { hidden, withoutMetadata }: { readonly hidden: number; readonly withoutMetadata: number },
  next: string | null,
): Reply {
  const warnings = [
    ...(hidden > 0 ? [`secrets that this token may not read are left out: ${hidden}`] : []),
    ...(withoutMetadata > 0 ? [`custom metadata that this token may not read is left out: ${withoutMetadata}`] : []),
  ]
  return { data: { format: 'json', secrets: Object.fromEntries(found), next, left_out: hidden }, warnings }
}

interface ImportInput {
  readonly path: string
  readonly format: string
  readonly text: string
  readonly secrets: unknown
  readonly dry_run: boolean
}

/** One secret of an import. */
interface Imported {
  readonly name: string
  /** What is said of it. */
  readonly given: JsonObject
  readonly data: JsonObject
  /** Its data as it is to be kept. */
  readonly exact: JsonObject
}

function imported(input: ImportInput, call: EngineCall): Imported[] {
  if (input.format === 'env') {
    const data = parseEnv(input.text)
    return [{ name: secretName(input.path, 'path'), given: {}, data, exact: data }]
  }
  if (input.format !== 'json') throw new Rejection(400, '"format" is json or env')
  const { secrets } = input
  if (!isObject(secrets)) throw new Rejection(400, '"secrets" must be an object of secrets by their names')
  const entries = Object.entries(secrets)
  if (entries.length > SECRETS_MAX)
    throw new Rejection(400, `at most ${SECRETS_MAX} secrets at once: send them in parts`)
  const folder = folderOf(input.path)
  // The same, so in the same order.
  const { secrets: kept } = exactBody(call)
  const all = isObject(kept) ? Object.values(kept) : []
  return entries.map(([name, given], at) => {
    const whole = secretName(folder + name, 'secrets')
    if (!isObject(given) || !isObject(given['data']))
      throw new Rejection(400, `secret "${whole}": "data" must be an object`)
    return { name: whole, given, data: given['data'], exact: exactData(all[at], given['data']) }
  })
}

type Done = 'created' | 'updated' | 'metadata' | 'unchanged'

function importOne(secrets: ChangingSecrets, { data, exact, given, name }: Imported, call: EngineCall): Done {
  const before = secrets.record(name)
  const verb = before ? 'update' : 'create'
  const options = { cas: before?.current ?? 0 }
  if (!call.allows(verb, `data/${name}`, { data, options })) throw forbidden()
  const custom = Object.hasOwn(given, 'custom_metadata') ? customMetadata(given['custom_metadata']) : undefined
  const isMetadataNew =
    custom !== undefined &&
    (!mayReadMetadata(call, name) || JSON.stringify(custom) !== JSON.stringify(before?.custom ?? null))
  if (isMetadataNew && !call.allows(verb, `metadata/${name}`, { custom_metadata: custom })) throw forbidden()
  // To be told that nothing has changed is to be told the value.
  const isSame = before !== undefined && mayReadNewest(call, name) && secrets.liveData(before) === JSON.stringify(exact)
  // Read here and compared: the version that it is written over is the one that was seen.
  if (!isSame) put(secrets, { path: name, data: exact, options })
  if (isMetadataNew) secrets.putCustom(name, custom)
  return !before ? 'created' : !isSame ? 'updated' : isMetadataNew ? 'metadata' : 'unchanged'
}

function importTree(input: ImportInput, call: EngineCall): Reply {
  const secrets = new ChangingSecrets(call)
  const done = imported(input, call).map((each) => [each.name, importOne(secrets, each, call)] as const)
  const counts: Record<Done, number> = { created: 0, updated: 0, metadata: 0, unchanged: 0 }
  for (const [, what] of done) counts[what]++
  const data = { ...counts, secrets: Object.fromEntries(done), dry_run: input.dry_run }
  return input.dry_run ? { data } : { data, batch: secrets.batch }
}

const format = text('json, a folder of secrets; or env, one secret', { fallback: 'json' })

export const treePaths: readonly Path[] = [
  kvPath({
    pattern: 'export/:path*',
    summary: 'A folder of secrets as JSON, or a secret as a .env file',
    fields: {
      path: inPath('Folder; empty for all of the mount. The name of a secret for env'),
      format,
      after: text('`next` of the answer before', { fallback: '' }),
      limit: integer(`Most secrets that are given, at most ${SECRETS_MAX}`, { fallback: 0 }),
    },
    read(input, call) {
      if (input.format === 'env') return exportEnv(input.path, call)
      if (input.format === 'json') return runSliced(exportTree(input, call), call)
      throw new Rejection(400, '"format" is json or env')
    },
  }),
  kvPath({
    pattern: 'import/:path*',
    summary: 'Writes what an export gave, where it is different from what is there',
    fields: {
      path: inPath('Folder; empty for all of the mount. The name of a secret for env'),
      format,
      text: text('The lines of a .env file', { fallback: '' }),
      secrets: anything('Secrets by their names from the folder on, each with `data` and perhaps `custom_metadata`'),
      dry_run: boolean('Tells what would be written', { fallback: false }),
    },
    update: importTree,
  }),
]
