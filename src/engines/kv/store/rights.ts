/**
 * What a caller may reach of a secret by a path other than `data/` and `metadata/` (`reads.ts` lists them): copy, diff,
 * export, search and the like need a grant there; `subkeys/` and detailed lists have their own, and only keep to what is
 * forbidden there. Each version that such a request reads is judged as `GET data/NAME?version=N`, so a rule about the parameter
 * `version` holds for it; the newest one also as `GET data/NAME`. Settings and the list of versions are judged as
 * `GET metadata/NAME`.
 */
import type { EngineCall } from '../../framework/engine.ts'
import { durationText, type KeyRecord } from './record.ts'

type Asking = Pick<EngineCall, 'allows'>

/** Whether the caller may read the newest version of a secret, whichever it is. */
export function mayReadNewest({ allows }: Asking, name: string): boolean {
  return allows('read', `data/${name}`)
}

export function mayReadVersion(
  call: Asking,
  { current, name }: Pick<KeyRecord, 'current' | 'name'>,
  version: number,
): boolean {
  return (version === current && mayReadNewest(call, name)) || call.allows('read', `data/${name}`, { version })
}

export function mayReadMetadata({ allows }: Asking, name: string): boolean {
  return allows('read', `metadata/${name}`)
}

/** Whether a rule about `data/` forbids a version; for a path that is granted by its own rule. */
export function isVersionForbidden(
  { forbids }: Pick<EngineCall, 'forbids'>,
  { current, name }: Pick<KeyRecord, 'current' | 'name'>,
  version: number,
): boolean {
  const isNewestForbidden = version !== current || forbids('read', `data/${name}`)
  return isNewestForbidden && forbids('read', `data/${name}`, { version })
}

/** Whether a rule about `metadata/` forbids what is kept of a secret; for a path that is granted by its own rule. */
export function isMetadataForbidden({ forbids }: Pick<EngineCall, 'forbids'>, name: string): boolean {
  return forbids('read', `metadata/${name}`)
}

/** Whether the caller could bring a deleted version back and then read it. */
export function mayReadDeleted(call: Asking, record: Pick<KeyRecord, 'current' | 'name'>, version: number): boolean {
  const mayUndelete = call.allows('update', `undelete/${record.name}`, { versions: [version] })
  return mayUndelete && mayReadVersion(call, record, version)
}

/** The settings of a secret as the body of a write to `metadata/` gives them; those with their default are left out. */
export function settingsOf(record: KeyRecord): Record<string, unknown> {
  return {
    ...(record.custom && { custom_metadata: record.custom }),
    ...(record.maxVersions !== 0 && { max_versions: record.maxVersions }),
    ...(record.casRequired && { cas_required: true }),
    ...(record.deleteAfterSeconds !== 0 && { delete_version_after: durationText(record.deleteAfterSeconds) }),
    ...(record.metadataCasRequired && { metadata_cas_required: true }),
  }
}
