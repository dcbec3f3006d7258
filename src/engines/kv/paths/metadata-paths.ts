/** `metadata/`: settings and versions of a secret, and lists of names. `config`: the defaults of the mount. */
import { type EngineCall, type EngineVerb, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { anything, boolean, duration, inPath, integer, signedDuration } from '../../framework/fields.ts'
import { customMetadata, patchedMetadata } from '../store/custom-metadata.ts'
import { detailedList, detailedScan, list, LIST_FIELDS, scan } from '../store/listing.ts'
import { durationText, newRecord, type KeyRecord, metadataResponse } from '../store/record.ts'
import { kvPath } from '../store/rights.ts'
import { SecretWriter, pendingSecrets, SecretReader } from '../store/secrets.ts'

const VERSIONS_MAX = 0xff_ff_ff_ff

const settings = {
  max_versions: integer('Maximum number of versions; 0 for the setting of the mount'),
  cas_required: boolean('Require `cas` with each write'),
  delete_version_after: duration('Time after which a new version is deleted'),
  custom_metadata: anything('Strings stored with the secret'),
  metadata_cas_required: boolean('Require `metadata_cas` with each change of the metadata'),
  metadata_cas: integer('Required current version of the metadata'),
}

const SETTINGS = ['max_versions', 'cas_required', 'delete_version_after', 'custom_metadata', 'metadata_cas_required']

interface MetadataInput {
  readonly max_versions: number | undefined
  readonly cas_required: boolean | undefined
  readonly delete_version_after: number | undefined
  readonly custom_metadata: unknown
  readonly metadata_cas_required: boolean | undefined
  readonly metadata_cas: number | undefined
}

function checkMetadataCas(secrets: SecretReader, before: KeyRecord | undefined, given: number | undefined): void {
  if (given === undefined) {
    if (!secrets.config.metadataCasRequired && !before?.metadataCasRequired) return
    throw new Rejection(400, 'metadata check-and-set parameter required for this call')
  }
  if (!before && given !== 0) throw new Rejection(400, 'metadata_cas must be 0 when creating new metadata')
  if (given !== (before?.metadataVersion ?? 0)) {
    throw new Rejection(400, 'metadata check-and-set parameter does not match the current version')
  }
}

function checkVersionsMax(given: number | undefined): void {
  if (given === undefined || (given >= 0 && given <= VERSIONS_MAX)) return
  throw new Rejection(400, `max_versions must be between 0 and ${VERSIONS_MAX}`)
}

function ignored(name: string): string {
  return `"${name}" set to false, but is mandated by backend config. This value will be ignored.`
}

/** A setting that is weaker than that of the mount is stored, but has no effect. */
function warnings(secrets: SecretReader, given: MetadataInput): string[] {
  const { config } = secrets
  return [
    ...(given.cas_required === false && config.casRequired ? [ignored('cas_required')] : []),
    ...(given.metadata_cas_required === false && config.metadataCasRequired ? [ignored('metadata_cas_required')] : []),
  ]
}

function changedRecord(before: KeyRecord, given: MetadataInput, custom: KeyRecord['custom'], nowMs: number): KeyRecord {
  return {
    ...before,
    maxVersions: given.max_versions ?? before.maxVersions,
    casRequired: given.cas_required ?? before.casRequired,
    deleteAfterSeconds: given.delete_version_after ?? before.deleteAfterSeconds,
    metadataCasRequired: given.metadata_cas_required ?? before.metadataCasRequired,
    metadataVersion: before.metadataVersion + 1,
    custom,
    updatedAtMs: nowMs,
  }
}

function isGiven(call: EngineCall): boolean {
  return SETTINGS.some((name) => Object.hasOwn(call.data, name))
}

function reply(secrets: SecretWriter, given: MetadataInput): Reply {
  return { warnings: warnings(secrets, given), batch: secrets.batch }
}

function writeMetadata(input: MetadataInput & { readonly path: string }, call: EngineCall): Reply | undefined {
  checkVersionsMax(input.max_versions)
  if (!isGiven(call)) return undefined
  const secrets = new SecretWriter(call)
  const before = secrets.record(input.path)
  checkMetadataCas(secrets, before, input.metadata_cas)
  const isNamed = Object.hasOwn(call.data, 'custom_metadata')
  const custom = isNamed ? customMetadata(input.custom_metadata) : (before?.custom ?? null)
  const record = changedRecord(before ?? newRecord(input.path, call.nowMs), input, custom, call.nowMs)
  secrets.putSettings(record, !before, 'update')
  return reply(secrets, input)
}

function patchMetadata(input: MetadataInput & { readonly path: string }, call: EngineCall): Reply | undefined {
  checkVersionsMax(input.max_versions)
  if (!isGiven(call)) return undefined
  const secrets = new SecretWriter(call)
  const before = secrets.record(input.path)
  const isNamed = Object.hasOwn(call.data, 'custom_metadata')
  const custom = isNamed ? patchedMetadata(before?.custom ?? null, input.custom_metadata) : (before?.custom ?? null)
  if (!before) throw new Rejection(404, 'no metadata to patch at this path')
  checkMetadataCas(secrets, before, input.metadata_cas)
  // Null resets a setting, except a duration, which it leaves unchanged.
  const isUnchanged = call.data['delete_version_after'] === null
  const given = isUnchanged ? { ...input, delete_version_after: undefined } : input
  secrets.putSettings(changedRecord(before, given, custom, call.nowMs), false, 'patch')
  return reply(secrets, input)
}

const ROOTS = new Set(['metadata', 'data', 'delete', 'undelete', 'destroy'])
const COMMANDS: Readonly<Record<EngineVerb, string>> = {
  read: 'get',
  list: 'list',
  scan: 'scan',
  create: 'put',
  update: 'put',
  patch: 'patch',
  delete: 'delete',
}

/** For paths without `data/`, or without a name. Stock clients show the warning to their users. */
export function unsupportedPath(_input: object, { path, verb }: EngineCall): Reply {
  const isRoot = ROOTS.has(path.replace(/\/$/, ''))
  const warning = isRoot
    ? 'Non-listing operations on the root of a K/V v2 mount are not supported.'
    : `Invalid path for a versioned K/V secrets engine. See the API docs for the appropriate API endpoints to use. If using the Vault CLI, use 'vault kv ${COMMANDS[verb]}' for this operation.`
  return { status: 404, warnings: [warning] }
}

export const metadataPaths: readonly Path[] = [
  kvPath({
    pattern: 'metadata/:path+',
    summary: 'Read or change the metadata of a secret; list a folder',
    fields: { ...settings, ...LIST_FIELDS, path: inPath('Name of the secret, or a folder') },
    exists: ({ path: name }, call) => pendingSecrets(call).record(name) !== undefined,
    read({ path: name }, call) {
      const record = new SecretReader(call).record(name)
      return record && { data: metadataResponse(record) }
    },
    update: writeMetadata,
    patch: patchMetadata,
    delete({ path: name }, call) {
      const secrets = new SecretWriter(call)
      secrets.remove(name)
      return { batch: secrets.batch }
    },
    list,
    scan,
  }),
  kvPath({
    pattern: 'metadata',
    summary: 'List the top folder',
    fields: LIST_FIELDS,
    read: unsupportedPath,
    update: unsupportedPath,
    patch: unsupportedPath,
    delete: unsupportedPath,
    list,
    scan,
  }),
  kvPath({
    pattern: 'detailed-metadata/:path*',
    summary: 'List a folder with the metadata of each secret',
    fields: LIST_FIELDS,
    list: detailedList,
    scan: detailedScan,
  }),
]

const CONFIG_FIELDS = {
  max_versions: integer('Maximum number of versions of a secret; 0 for 10'),
  cas_required: boolean('Require `cas` with each write'),
  delete_version_after: signedDuration(
    'Maximum time until a new version is deleted; negative to disable for all secrets',
  ),
  metadata_cas_required: boolean('Require `metadata_cas` with each change of metadata'),
  list_filter: boolean('Omit names from lists if the caller has no permissions on them'),
}

export const configPaths: readonly Path[] = [
  kvPath({
    pattern: 'config',
    summary: 'Read or change the settings of the mount',
    fields: CONFIG_FIELDS,
    read(_input, call) {
      const { casRequired, deleteAfterSeconds, listFilter, maxVersions, metadataCasRequired } = new SecretReader(call)
        .config
      return {
        data: {
          cas_required: casRequired,
          delete_version_after: durationText(deleteAfterSeconds),
          max_versions: maxVersions,
          metadata_cas_required: metadataCasRequired,
          // Shown only if set: Vault has no such setting.
          ...(listFilter && { list_filter: true }),
        },
      }
    },
    update(input, call) {
      checkVersionsMax(input.max_versions)
      if (!Object.keys(CONFIG_FIELDS).some((name) => Object.hasOwn(call.data, name))) return undefined
      const secrets = new SecretWriter(call)
      const before = secrets.config
      secrets.putConfig({
        maxVersions: input.max_versions ?? before.maxVersions,
        casRequired: input.cas_required ?? before.casRequired,
        deleteAfterSeconds: Math.max(-1, input.delete_version_after ?? before.deleteAfterSeconds),
        metadataCasRequired: input.metadata_cas_required ?? before.metadataCasRequired,
        listFilter: input.list_filter ?? before.listFilter ?? false,
      })
      return { batch: secrets.batch }
    },
  }),
]
