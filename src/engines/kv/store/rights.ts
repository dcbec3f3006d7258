/**
 * Rights on secrets for paths other than `data/` and `metadata/`.
 *
 * Policies name `data/` and `metadata/`, so a rule there that denies a secret, or requires a second factor, must apply to every
 * other path that reveals a part of it. `copy/`, `diff/`, `export/`, `search/` and similar paths need a grant there. `subkeys/`
 * and detailed lists are granted by their own rules, and only respect what is forbidden there. Each version that such a
 * request reads is authorized as `GET data/NAME?version=N`, so a rule about the parameter `version` applies; the newest
 * version also as `GET data/NAME`. Settings and the list of versions are authorized as `GET metadata/NAME`.
 *
 * The tables below list what each path reads. A path without an entry is an error at start-up (`kvPath`).
 */
import { Fault } from '../../../platform/errors.ts'
import {
  type EngineCall,
  type EngineVerb,
  type ImpliedRead,
  path,
  type Path,
  type PathDeclaration,
} from '../../framework/engine.ts'
import type { EngineFields } from '../../framework/fields.ts'
import { durationText, type KeyRecord } from './record.ts'

type AllowedRights = Pick<EngineCall, 'allows'>

/** Whether the caller may read the newest version of a secret, without naming its number. */
export function mayReadNewest({ allows }: AllowedRights, name: string): boolean {
  return allows('read', `data/${name}`)
}

export function mayReadVersion(
  call: AllowedRights,
  { current, name }: Pick<KeyRecord, 'current' | 'name'>,
  version: number,
): boolean {
  return (version === current && mayReadNewest(call, name)) || call.allows('read', `data/${name}`, { version })
}

export function mayReadMetadata({ allows }: AllowedRights, name: string): boolean {
  return allows('read', `metadata/${name}`)
}

/** Whether a rule about `data/` forbids a version, for a path that is granted by its own rule. */
export function isVersionForbidden(
  { forbids }: Pick<EngineCall, 'forbids'>,
  { current, name }: Pick<KeyRecord, 'current' | 'name'>,
  version: number,
): boolean {
  const isNewestForbidden = version !== current || forbids('read', `data/${name}`)
  return isNewestForbidden && forbids('read', `data/${name}`, { version })
}

/** Whether a rule about `metadata/` forbids the metadata of a secret, for a path that is granted by its own rule. */
export function isMetadataForbidden({ forbids }: Pick<EngineCall, 'forbids'>, name: string): boolean {
  return forbids('read', `metadata/${name}`)
}

/** Whether the caller may undelete a version and then read it. */
export function mayReadDeleted(
  call: AllowedRights,
  record: Pick<KeyRecord, 'current' | 'name'>,
  version: number,
): boolean {
  const mayUndelete = call.allows('update', `undelete/${record.name}`, { versions: [version] })
  return mayUndelete && mayReadVersion(call, record, version)
}

/** The settings of a secret as in the body of a write to `metadata/`, without defaults. */
export function settingsOf(record: KeyRecord): Record<string, unknown> {
  return {
    ...(record.custom && { custom_metadata: record.custom }),
    ...(record.maxVersions !== 0 && { max_versions: record.maxVersions }),
    ...(record.casRequired && { cas_required: true }),
    ...(record.deleteAfterSeconds !== 0 && { delete_version_after: durationText(record.deleteAfterSeconds) }),
    ...(record.metadataCasRequired && { metadata_cas_required: true }),
  }
}

/**
 * What a response reveals. `data`, `metadata` and `names` are of the secret or folder in the path: the core authorizes them with
 * the request (`Path.reads`). A deny refuses the request, and a required code is required here too; a missing grant does
 * not refuse it. `… of each` is of secrets that the response finds or the body names: the handler authorizes each.
 */
export type KvRead = 'data' | 'metadata' | 'names' | 'data of each' | 'metadata of each' | 'names of each'
/** By operation. `update` includes `create`. */
export type PathReads = Readonly<Partial<Record<Exclude<EngineVerb, 'create'>, readonly KvRead[]>>>

const AUTHORISED_WITH_REQUEST: ReadonlySet<KvRead> = new Set<KvRead>(['data', 'metadata', 'names'])
const NOTHING: readonly KvRead[] = []
const EACH: readonly KvRead[] = ['data of each', 'metadata of each']

/** Paths of a mount of version 2. */
export const VERSIONED_READS: Readonly<Record<string, PathReads>> = {
  config: { read: NOTHING, update: NOTHING },
  // Also with `version` and `at`: the handler authorizes the version that is read.
  'data/:path+': { read: NOTHING, update: NOTHING, patch: NOTHING, delete: NOTHING },
  'subkeys/:path+': { read: ['data'] },
  // A list with `exclude_deleted` depends on the metadata of each secret.
  'metadata/:path+': {
    read: NOTHING,
    update: NOTHING,
    patch: NOTHING,
    delete: NOTHING,
    list: ['metadata of each'],
    scan: ['names of each', 'metadata of each'],
  },
  metadata: {
    read: NOTHING,
    update: NOTHING,
    patch: NOTHING,
    delete: NOTHING,
    list: ['metadata of each'],
    scan: ['names of each', 'metadata of each'],
  },
  'detailed-metadata/:path*': {
    list: ['names', 'metadata of each'],
    scan: ['names', 'names of each', 'metadata of each'],
  },
  'delete/:path+': { update: NOTHING },
  'undelete/:path+': { update: NOTHING },
  'destroy/:path+': { update: NOTHING },
  transaction: { update: EACH },
  'copy/:path+': { update: ['data', 'metadata'] },
  'move/:path+': { update: ['data', 'metadata'] },
  'diff/:path+': { read: ['data'] },
  'search/:path*': { read: EACH },
  'export/:path*': { read: EACH },
  // Unchanged secrets are not rewritten, which reveals that they are equal.
  'import/:path*': { update: EACH },
  'watch/:path*': { read: EACH },
  ':path*': { read: NOTHING, list: NOTHING, scan: NOTHING, update: NOTHING, patch: NOTHING, delete: NOTHING },
}

/** Paths of a mount of version 1. */
export const PLAIN_READS: Readonly<Record<string, PathReads>> = {
  ':path*': { read: NOTHING, update: NOTHING, delete: NOTHING, list: NOTHING, scan: ['names of each'] },
}

/** A path with what it reads. Throws a Fault for a path without an entry in `table`. */
export function kvPath<F extends EngineFields>(declaration: PathDeclaration<F>, table = VERSIONED_READS): Path {
  const made = path(declaration)
  const reads = table[made.pattern]
  for (const verb of Object.keys(made.handlers)) {
    if (!reads || !Object.hasOwn(reads, verb === 'create' ? 'update' : verb)) {
      throw new Fault(`kv: the table of implied reads has no entry for ${verb} ${made.pattern}`)
    }
  }
  const hasImpliedReads = Object.values(reads ?? {}).some((each) =>
    each.some((read) => AUTHORISED_WITH_REQUEST.has(read)),
  )
  if (!hasImpliedReads) return made
  return { ...made, reads: (params, verb) => impliedReads(reads?.[verb === 'create' ? 'update' : verb], params, verb) }
}

function impliedReads(
  reads: readonly KvRead[] = NOTHING,
  { path: name = '' }: Readonly<Record<string, string>>,
  verb: EngineVerb,
): ImpliedRead[] {
  return reads.flatMap((each): ImpliedRead[] => {
    if (each === 'data' || each === 'metadata') return [{ operation: 'read', path: `${each}/${name}` }]
    return each === 'names' ? [{ operation: verb, path: `metadata/${name}` }] : []
  })
}
