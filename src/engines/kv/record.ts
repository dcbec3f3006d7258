/**
 * What is kept of a secret beside its data: settings, and for each version when it was made, deleted, destroyed. Times
 * are milliseconds since the Unix epoch here and RFC 3339 outside.
 */
import { Fault } from '../../kit/errors.ts'
import { decodedOnce } from '../decoded.ts'

/** Who did something, as it is shown; what is not known is left out. */
export interface Actor {
  readonly actor?: string
  readonly operation: string
  readonly entity_id?: string
  readonly client_id?: string
}

export interface VersionRecord {
  readonly createdAtMs: number
  /** 0: never. In the future: it is still there. */
  readonly deletedAtMs: number
  readonly destroyed: boolean
  readonly createdBy: Actor | null
  /** Null for one that nobody deleted: also where its time is set by `delete_version_after`. */
  readonly deletedBy: Actor | null
}

/** What happened to a secret last, for who watches it. */
export type ChangeKind = 'write' | 'delete' | 'undelete' | 'destroy' | 'metadata'

export type CustomMetadata = Readonly<Record<string, string>>

export interface KeyRecord {
  /** Its whole name: entries are named by a hash of it, which cannot be read backwards. */
  readonly name: string
  readonly current: number
  readonly oldest: number
  readonly createdAtMs: number
  readonly updatedAtMs: number
  /** 0: what the engine says. */
  readonly maxVersions: number
  readonly casRequired: boolean
  readonly deleteAfterSeconds: number
  readonly custom: CustomMetadata | null
  readonly metadataVersion: number
  readonly metadataCasRequired: boolean
  readonly versions: ReadonlyMap<number, VersionRecord>
  readonly lastChange: ChangeKind
  readonly lastUpdatedBy: Actor | null
}

type EncodedVersion = [
  version: number,
  createdAtMs: number,
  deletedAtMs: number,
  destroyed: boolean,
  createdBy?: Actor | null,
  deletedBy?: Actor | null,
]

type Encoded = [
  format: 1,
  current: number,
  oldest: number,
  createdAtMs: number,
  updatedAtMs: number,
  maxVersions: number,
  casRequired: boolean,
  deleteAfterSeconds: number,
  custom: CustomMetadata | null,
  metadataVersion: number,
  metadataCasRequired: boolean,
  versions: EncodedVersion[],
  name: string,
  lastChange: ChangeKind,
  lastUpdatedBy: Actor | null,
]

export function freshRecord(name: string, nowMs: number): KeyRecord {
  return {
    name,
    current: 0,
    oldest: 0,
    createdAtMs: nowMs,
    updatedAtMs: nowMs,
    maxVersions: 0,
    casRequired: false,
    deleteAfterSeconds: 0,
    custom: null,
    metadataVersion: 0,
    metadataCasRequired: false,
    versions: new Map(),
    lastChange: 'metadata',
    lastUpdatedBy: null,
  }
}

export function encodeRecord(record: KeyRecord): Buffer {
  const encoded: Encoded = [
    1,
    record.current,
    record.oldest,
    record.createdAtMs,
    record.updatedAtMs,
    record.maxVersions,
    record.casRequired,
    record.deleteAfterSeconds,
    record.custom,
    record.metadataVersion,
    record.metadataCasRequired,
    [...record.versions].map(encodeVersion),
    record.name,
    record.lastChange,
    record.lastUpdatedBy,
  ]
  return Buffer.from(JSON.stringify(encoded))
}

function encodeVersion([version, given]: readonly [number, VersionRecord]): EncodedVersion {
  const { createdAtMs, createdBy, deletedAtMs, deletedBy, destroyed } = given
  if (deletedBy) return [version, createdAtMs, deletedAtMs, destroyed, createdBy, deletedBy]
  return [version, createdAtMs, deletedAtMs, destroyed, createdBy]
}

/** Throws a Fault for a record of a form that this program does not know. */
export const decodeRecord = decodedOnce((bytes): KeyRecord => {
  // Written by this file and authenticated by the barrier; the format tells another program's from ours.
  const encoded = JSON.parse(bytes.toString('utf8')) as Encoded
  if (encoded[0] !== 1) throw new Fault('the record of a secret is of a newer version of this program')
  return {
    current: encoded[1],
    oldest: encoded[2],
    createdAtMs: encoded[3],
    updatedAtMs: encoded[4],
    maxVersions: encoded[5],
    casRequired: encoded[6],
    deleteAfterSeconds: encoded[7],
    custom: encoded[8],
    metadataVersion: encoded[9],
    metadataCasRequired: encoded[10],
    versions: new Map(
      encoded[11].map(([version, createdAtMs, deletedAtMs, destroyed, createdBy = null, deletedBy = null]) => [
        version,
        { createdAtMs, deletedAtMs, destroyed, createdBy, deletedBy },
      ]),
    ),
    name: encoded[12],
    lastChange: encoded[13],
    lastUpdatedBy: encoded[14],
  }
})

export function isDeleted({ deletedAtMs }: VersionRecord, nowMs: number): boolean {
  return deletedAtMs !== 0 && deletedAtMs <= nowMs
}

/** RFC 3339, empty for never. */
export function timeText(ms: number): string {
  return ms === 0 ? '' : new Date(ms).toISOString()
}

/** What a read and a write say of one version. */
export function versionMetadata(record: KeyRecord, version: number): Record<string, unknown> {
  const found = record.versions.get(version)
  return {
    created_time: timeText(found?.createdAtMs ?? 0),
    custom_metadata: record.custom,
    deletion_time: timeText(found?.deletedAtMs ?? 0),
    destroyed: found?.destroyed ?? false,
    version,
  }
}

/** As Go writes a duration of whole seconds: `1h0m0s`. */
export function durationText(seconds: number): string {
  if (seconds < 0) return '-1s'
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60), seconds % 60]
  if (hours > 0) return `${hours}h${minutes}m${rest}s`
  return minutes > 0 ? `${minutes}m${rest}s` : `${rest}s`
}

/** The metadata as it is shown. */
export function shownRecord(record: KeyRecord): Record<string, unknown> {
  const versions = [...record.versions].map(
    ([number, { createdAtMs, createdBy, deletedAtMs, deletedBy, destroyed }]) => {
      const times = { created_time: timeText(createdAtMs), deletion_time: timeText(deletedAtMs) }
      return [String(number), { ...times, destroyed, created_by: createdBy, deleted_by: deletedBy }] as const
    },
  )
  return {
    cas_required: record.casRequired,
    created_time: timeText(record.createdAtMs),
    current_metadata_version: record.metadataVersion,
    current_version: record.current,
    custom_metadata: record.custom,
    delete_version_after: durationText(record.deleteAfterSeconds),
    last_updated_by: record.lastUpdatedBy,
    max_versions: record.maxVersions,
    metadata_cas_required: record.metadataCasRequired,
    oldest_version: record.oldest,
    updated_time: timeText(record.updatedAtMs),
    versions: Object.fromEntries(versions),
  }
}
