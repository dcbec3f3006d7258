/**
 * What is kept of a secret beside its data: settings, and for each version when it was made, deleted, destroyed. Times
 * are milliseconds since the Unix epoch here and RFC 3339 outside.
 */
import { Fault } from '../../kit/errors.ts'

export interface VersionRecord {
  readonly createdAtMs: number
  /** 0: never. In the future: it is still there. */
  readonly deletedAtMs: number
  readonly destroyed: boolean
}

export type CustomMetadata = Readonly<Record<string, string>>

export interface KeyRecord {
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
}

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
  versions: [number, number, number, boolean][],
]

export function freshRecord(nowMs: number): KeyRecord {
  return {
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
    [...record.versions].map(([version, { createdAtMs, deletedAtMs, destroyed }]) => {
      return [version, createdAtMs, deletedAtMs, destroyed]
    }),
  ]
  return Buffer.from(JSON.stringify(encoded))
}

/** Throws a Fault for a record of a form that this program does not know. */
export function decodeRecord(bytes: Buffer): KeyRecord {
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
      encoded[11].map(([version, createdAtMs, deletedAtMs, destroyed]) => [
        version,
        { createdAtMs, deletedAtMs, destroyed },
      ]),
    ),
  }
}

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
