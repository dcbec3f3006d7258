/** `metadata/`: what is kept of a secret beside its data, and the lists of names. */
import { type EngineCall, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { anything, boolean, duration, inPath, integer } from '../../framework/fields.ts'
import { customMetadata, patchedMetadata } from '../store/custom-metadata.ts'
import { elsewhere } from '../store/elsewhere.ts'
import { detailedList, detailedScan, list, LISTING, scan } from '../store/listing.ts'
import { kvPath } from '../store/reads.ts'
import { freshRecord, type KeyRecord, shownRecord } from '../store/record.ts'
import { ChangingSecrets, pendingSecrets, Secrets } from '../store/secrets.ts'

const VERSIONS_MAX = 0xff_ff_ff_ff

const settings = {
  max_versions: integer('Versions that are kept; 0 for what the engine says'),
  cas_required: boolean('Whether writes must name the current version'),
  delete_version_after: duration('How long each new version lives'),
  custom_metadata: anything('Texts to be kept with the secret'),
  metadata_cas_required: boolean('Whether changes of this metadata must name its current version'),
  metadata_cas: integer('The version of this metadata that must be the current one'),
}

const SETTINGS = ['max_versions', 'cas_required', 'delete_version_after', 'custom_metadata', 'metadata_cas_required']

interface Settings {
  readonly max_versions: number | undefined
  readonly cas_required: boolean | undefined
  readonly delete_version_after: number | undefined
  readonly custom_metadata: unknown
  readonly metadata_cas_required: boolean | undefined
  readonly metadata_cas: number | undefined
}

function checkMetadataCas(secrets: Secrets, before: KeyRecord | undefined, given: number | undefined): void {
  if (given === undefined) {
    if (!secrets.config.metadataCasRequired && !before?.metadataCasRequired) return
    throw new Rejection(400, 'metadata check-and-set parameter required for this call')
  }
  if (!before && given !== 0) throw new Rejection(400, 'metadata_cas must be 0 when creating new metadata')
  if (given !== (before?.metadataVersion ?? 0)) {
    throw new Rejection(400, 'metadata check-and-set parameter does not match the current version')
  }
}

export function checkVersionsMax(given: number | undefined): void {
  if (given === undefined || (given >= 0 && given <= VERSIONS_MAX)) return
  throw new Rejection(400, `max_versions must be between 0 and ${VERSIONS_MAX}`)
}

function ignored(name: string): string {
  return `"${name}" set to false, but is mandated by backend config. This value will be ignored.`
}

/** What is weaker than the engine's own setting is kept and has no effect; who asks for it is told. */
function warnings(secrets: Secrets, given: Settings): string[] {
  const { config } = secrets
  return [
    ...(given.cas_required === false && config.casRequired ? [ignored('cas_required')] : []),
    ...(given.metadata_cas_required === false && config.metadataCasRequired ? [ignored('metadata_cas_required')] : []),
  ]
}

function changed(before: KeyRecord, given: Settings, custom: KeyRecord['custom'], nowMs: number): KeyRecord {
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

function reply(secrets: ChangingSecrets, given: Settings): Reply {
  return { warnings: warnings(secrets, given), batch: secrets.batch }
}

function writeMetadata(input: Settings & { readonly path: string }, call: EngineCall): Reply | undefined {
  checkVersionsMax(input.max_versions)
  if (!isGiven(call)) return undefined
  const secrets = new ChangingSecrets(call)
  const before = secrets.record(input.path)
  checkMetadataCas(secrets, before, input.metadata_cas)
  const isNamed = Object.hasOwn(call.data, 'custom_metadata')
  const custom = isNamed ? customMetadata(input.custom_metadata) : (before?.custom ?? null)
  const record = changed(before ?? freshRecord(input.path, call.nowMs), input, custom, call.nowMs)
  secrets.putSettings(record, !before, 'update')
  return reply(secrets, input)
}

function patchMetadata(input: Settings & { readonly path: string }, call: EngineCall): Reply | undefined {
  checkVersionsMax(input.max_versions)
  if (!isGiven(call)) return undefined
  const secrets = new ChangingSecrets(call)
  const before = secrets.record(input.path)
  const isNamed = Object.hasOwn(call.data, 'custom_metadata')
  const custom = isNamed ? patchedMetadata(before?.custom ?? null, input.custom_metadata) : (before?.custom ?? null)
  if (!before) throw new Rejection(404, 'no metadata to patch at this path')
  checkMetadataCas(secrets, before, input.metadata_cas)
  // Null puts a setting back; only a duration has no null to go back to.
  const isKept = call.data['delete_version_after'] === null
  const given = isKept ? { ...input, delete_version_after: undefined } : input
  secrets.putSettings(changed(before, given, custom, call.nowMs), false, 'patch')
  return reply(secrets, input)
}

export const metadataPaths: readonly Path[] = [
  kvPath({
    pattern: 'metadata/:path+',
    summary: 'Settings and versions of a secret; the names in a folder',
    fields: { ...settings, ...LISTING, path: inPath('Name of the secret, or a folder') },
    exists: ({ path: name }, call) => pendingSecrets(call).record(name) !== undefined,
    read({ path: name }, call) {
      const record = new Secrets(call).record(name)
      return record && { data: shownRecord(record) }
    },
    update: writeMetadata,
    patch: patchMetadata,
    delete({ path: name }, call) {
      const secrets = new ChangingSecrets(call)
      secrets.remove(name)
      return { batch: secrets.batch }
    },
    list,
    scan,
  }),
  kvPath({
    pattern: 'metadata',
    summary: 'The names at the top',
    fields: LISTING,
    read: elsewhere,
    update: elsewhere,
    patch: elsewhere,
    delete: elsewhere,
    list,
    scan,
  }),
  kvPath({
    pattern: 'detailed-metadata/:path*',
    summary: 'The names in a folder with what is kept of each secret',
    fields: LISTING,
    list: detailedList,
    scan: detailedScan,
  }),
]
