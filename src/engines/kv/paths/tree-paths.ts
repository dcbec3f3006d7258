/**
 * `export/` and `import/`: a folder of secrets as a JSON document, or a secret as a `.env` file. An export contains what the
 * caller may read, with custom metadata if it may read the metadata, and the number of omitted secrets. An import writes changed
 * secrets in one batch. A secret that the caller may not read is always written, so that the result does not reveal its data.
 */
import { denied, type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { parseExact } from '../../framework/exact-json.ts'
import { anything, boolean, inPath, integer, isObject, type JsonObject, text } from '../../framework/fields.ts'
import { runSliced, RECORD_COST, type SlicedWork } from '../../../platform/sliced-work.ts'
import { customMetadata } from '../store/custom-metadata.ts'
import { envText, parseEnv } from '../store/env-file.ts'
import { exactBody, exactData, put } from '../store/writes.ts'
import { folderOf } from '../store/listing.ts'
import { eachBelow, secretName } from '../store/names.ts'
import { kvPath, mayReadMetadata, mayReadNewest } from '../store/rights.ts'
import { SecretWriter, SecretReader } from '../store/secrets.ts'

/** Limit of a request. Larger folders are exported in pages. */
const SECRETS_MAX = 1000
const BYTES_MAX = 16 << 20
/** JSON that is parsed for one unit of cost (`platform/sliced-work.ts`). */
const BYTES_PER_UNIT = 2048

interface ExportInput {
  readonly path: string
  readonly format: string
  readonly after: string
  readonly limit: number
}

function exportEnv(name: string, call: EngineCall): Reply | undefined {
  if (!mayReadNewest(call, name)) throw denied()
  const secrets = new SecretReader(call)
  const record = secrets.record(name)
  const json = record && secrets.liveData(record)
  if (json === undefined) return undefined
  const data = parseExact(json)
  return { data: { format: 'env', text: envText(isObject(data) ? data : {}) } }
}

function* exportTree(input: ExportInput, call: EngineCall): SlicedWork<Reply> {
  const secrets = new SecretReader(call)
  const folder = folderOf(input.path)
  const limit = Math.min(input.limit <= 0 ? SECRETS_MAX : input.limit, SECRETS_MAX)
  const found: (readonly [string, unknown])[] = []
  let [bytes, hidden, withoutMetadata, next] = [0, 0, 0, '']
  const isMore = yield* eachBelow(secrets.secret, secrets.read, folder, input.after, (name) => {
    if (!mayReadNewest(call, folder + name)) {
      hidden++
      return 1
    }
    // Comes after the check of rights, because `next` must not be a name that the caller may not know.
    if (found.length >= limit || bytes >= BYTES_MAX) return 'enough'
    next = name
    const record = secrets.record(folder + name)
    const json = record && secrets.liveData(record)
    if (json === undefined) return RECORD_COST
    bytes += json.length
    const hasMetadata = mayReadMetadata(call, folder + name)
    if (!hasMetadata) withoutMetadata++
    found.push([name, { data: parseExact(json), ...(hasMetadata && { custom_metadata: record?.custom ?? null }) }])
    return RECORD_COST + json.length / BYTES_PER_UNIT
  })
  return exportReply(found, { hidden, withoutMetadata }, isMore ? next : null)
}

function exportReply(
  found: readonly (readonly [string, unknown])[],
  { hidden, withoutMetadata }: { readonly hidden: number; readonly withoutMetadata: number },
  next: string | null,
): Reply {
  const warnings = [
    ...(hidden > 0 ? [`secrets omitted that this token may not read: ${hidden}`] : []),
    ...(withoutMetadata > 0
      ? [`secrets without custom metadata that this token may not read: ${withoutMetadata}`]
      : []),
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

/** A secret of an import. */
interface ImportedSecret {
  readonly name: string
  /** The value of its name in the request. */
  readonly given: JsonObject
  readonly data: JsonObject
  /** Its data with numbers as written. */
  readonly exact: JsonObject
}

function importedSecrets(input: ImportInput, call: EngineCall): ImportedSecret[] {
  if (input.format === 'env') {
    const data = parseEnv(input.text)
    return [{ name: secretName(input.path, 'path'), given: {}, data, exact: data }]
  }
  if (input.format !== 'json') throw new Rejection(400, '"format" must be json or env')
  const { secrets } = input
  if (!isObject(secrets)) throw new Rejection(400, '"secrets" must be an object of secrets by their names')
  const entries = Object.entries(secrets)
  if (entries.length > SECRETS_MAX)
    throw new Rejection(400, `at most ${SECRETS_MAX} secrets can be imported in one request: split the import`)
  const folder = folderOf(input.path)
  // The same members in the same order.
  const { secrets: exactSecrets } = exactBody(call)
  const all = isObject(exactSecrets) ? Object.values(exactSecrets) : []
  return entries.map(([name, given], at) => {
    const whole = secretName(folder + name, 'secrets')
    if (!isObject(given) || !isObject(given['data']))
      throw new Rejection(400, `secret "${whole}": "data" must be an object`)
    return { name: whole, given, data: given['data'], exact: exactData(all[at], given['data']) }
  })
}

type ImportOutcome = 'created' | 'updated' | 'metadata' | 'unchanged'

function importOne(
  secrets: SecretWriter,
  { data, exact, given, name }: ImportedSecret,
  call: EngineCall,
): ImportOutcome {
  const before = secrets.record(name)
  const verb = before ? 'update' : 'create'
  const options = { cas: before?.current ?? 0 }
  if (!call.allows(verb, `data/${name}`, { data, options })) throw denied()
  const custom = Object.hasOwn(given, 'custom_metadata') ? customMetadata(given['custom_metadata']) : undefined
  const isMetadataNew =
    custom !== undefined &&
    (!mayReadMetadata(call, name) || JSON.stringify(custom) !== JSON.stringify(before?.custom ?? null))
  if (isMetadataNew && !call.allows(verb, `metadata/${name}`, { custom_metadata: custom })) throw denied()
  // The outcome 'unchanged' reveals the data.
  const isSame = before !== undefined && mayReadNewest(call, name) && secrets.liveData(before) === JSON.stringify(exact)
  if (!isSame) put(secrets, { path: name, data: exact, options })
  if (isMetadataNew) secrets.putCustom(name, custom)
  return !before ? 'created' : !isSame ? 'updated' : isMetadataNew ? 'metadata' : 'unchanged'
}

function importTree(input: ImportInput, call: EngineCall): Reply {
  const secrets = new SecretWriter(call)
  const outcomes = importedSecrets(input, call).map((each) => [each.name, importOne(secrets, each, call)] as const)
  const counts: Record<ImportOutcome, number> = { created: 0, updated: 0, metadata: 0, unchanged: 0 }
  for (const [, outcome] of outcomes) counts[outcome]++
  const data = { ...counts, secrets: Object.fromEntries(outcomes), dry_run: input.dry_run }
  return input.dry_run ? { data } : { data, batch: secrets.batch }
}

const format = text('json for a folder of secrets, env for one secret', { fallback: 'json' })

export const treePaths: readonly Path[] = [
  kvPath({
    pattern: 'export/:path*',
    summary: 'Export a folder as JSON or a secret as .env file',
    fields: {
      path: inPath('Folder, empty for the whole mount; name of the secret for env'),
      format,
      after: text('`next` of the previous response', { fallback: '' }),
      limit: integer(`Maximum number of secrets, at most ${SECRETS_MAX}`, { fallback: 0 }),
    },
    read(input, call) {
      if (input.format === 'env') return exportEnv(input.path, call)
      if (input.format === 'json') return runSliced(exportTree(input, call), call)
      throw new Rejection(400, '"format" must be json or env')
    },
  }),
  kvPath({
    pattern: 'import/:path*',
    summary: 'Import an export, writing only changed secrets',
    fields: {
      path: inPath('Folder, empty for the whole mount; name of the secret for env'),
      format,
      text: text('Content of a .env file', { fallback: '' }),
      secrets: anything('Secrets by name relative to the folder, each with `data` and optional `custom_metadata`'),
      dry_run: boolean('Return the outcome without writing', { fallback: false }),
    },
    update: importTree,
  }),
]
