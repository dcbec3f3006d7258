/**
 * The record of a secret: its settings, the times and state of each version, and the data of the newest version if that is
 * small, so that most secrets are read and written as one entry. Times are milliseconds since the Unix epoch in records and RFC
 * 3339 in responses.
 */
import { formatDuration } from '../../../platform/duration.ts'
import { Fault } from '../../../platform/errors.ts'
import { CachedCodec } from '../../framework/records.ts'

/** The author of a change, as shown in responses. Unknown members are absent. */
export interface Actor {
  readonly actor?: string
  readonly operation: string
  readonly entity_id?: string
  readonly client_id?: string
}

export interface VersionRecord {
  readonly createdAtMs: number
  /** 0: not deleted. A time in the future: not deleted yet. */
  readonly deletedAtMs: number
  readonly destroyed: boolean
  readonly createdBy: Actor | null
  /** Null unless a caller deleted it: also for a deletion by `delete_version_after`. */
  readonly deletedBy: Actor | null
}

/** The kind of the last change, for the change feed. */
export type ChangeKind = 'write' | 'delete' | 'undelete' | 'destroy' | 'metadata'

export type CustomMetadata = Readonly<Record<string, string>>

export interface KeyRecord {
  /** The full name. The path of the entry has only a hash of it. */
  readonly name: string
  readonly current: number
  readonly oldest: number
  readonly createdAtMs: number
  readonly updatedAtMs: number
  /** 0: the setting of the engine. */
  readonly maxVersions: number
  readonly casRequired: boolean
  readonly deleteAfterSeconds: number
  readonly custom: CustomMetadata | null
  readonly metadataVersion: number
  readonly metadataCasRequired: boolean
  readonly versions: ReadonlyMap<number, VersionRecord>
  readonly lastChange: ChangeKind
  readonly lastUpdatedBy: Actor | null
  /** The data of version `current` as JSON text, if it is in the record and not in a separate entry. */
  readonly newest: string | undefined
}

const FORMAT = 3
/** Separates the record from the data. JSON text never contains it. */
const DATA_MARK = '\0'

type EncodedVersion = [
  version: number,
  createdAtMs: number,
  deletedAtMs: number,
  destroyed: boolean,
  /** Index in the list of actors, from 1; 0 for none. */
  createdBy: number,
  deletedBy?: number,
]

type Encoded = [
  format: typeof FORMAT,
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
  lastUpdatedBy: number,
  actors: Actor[],
]

export function newRecord(name: string, nowMs: number): KeyRecord {
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
    newest: undefined,
  }
}

function encodeRecord(record: KeyRecord): Buffer {
  const actors = new ActorTable()
  const encoded: Encoded = [
    FORMAT,
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
    Array.from(record.versions, (version) => encodeVersion(version, actors)),
    record.name,
    record.lastChange,
    actors.number(record.lastUpdatedBy),
    actors.all,
  ]
  const text = JSON.stringify(encoded)
  return Buffer.from(record.newest === undefined ? text : text + DATA_MARK + record.newest)
}

/** The distinct actors of a record: most versions of a secret have the same few. */
class ActorTable {
  readonly all: Actor[] = []
  readonly #numbers = new Map<Actor, number>()

  number(actor: Actor | null): number {
    if (!actor) return 0
    const known = this.#numbers.get(actor) ?? this.all.findIndex((each) => isSame(each, actor)) + 1
    const number = known || this.all.push(actor)
    this.#numbers.set(actor, number)
    return number
  }
}

function isSame(a: Actor, b: Actor): boolean {
  return a.actor === b.actor && a.operation === b.operation && a.entity_id === b.entity_id
}

function encodeVersion([version, given]: readonly [number, VersionRecord], actors: ActorTable): EncodedVersion {
  const { createdAtMs, createdBy, deletedAtMs, deletedBy, destroyed } = given
  const creator = actors.number(createdBy)
  if (deletedBy) return [version, createdAtMs, deletedAtMs, destroyed, creator, actors.number(deletedBy)]
  return [version, createdAtMs, deletedAtMs, destroyed, creator]
}

function decodeRecord(bytes: Buffer): KeyRecord {
  const text = bytes.toString('utf8')
  const mark = text.indexOf(DATA_MARK)
  // Written only by this file and authenticated by the barrier. The format number detects other versions of the program.
  const encoded = JSON.parse(mark < 0 ? text : text.slice(0, mark)) as Encoded
  if (encoded[0] !== FORMAT) throw new Fault('the record of a secret was written by another version')
  const actors = encoded[15]
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
      encoded[11].map(([version, createdAtMs, deletedAtMs, destroyed, createdBy, deletedBy = 0]) => [
        version,
        {
          createdAtMs,
          deletedAtMs,
          destroyed,
          createdBy: actors[createdBy - 1] ?? null,
          deletedBy: actors[deletedBy - 1] ?? null,
        },
      ]),
    ),
    name: encoded[12],
    lastChange: encoded[13],
    lastUpdatedBy: actors[encoded[14] - 1] ?? null,
    newest: mark < 0 ? undefined : text.slice(mark + 1),
  }
}

/** Codec of records. Throws a Fault for a record with an unknown format. */
export const records = new CachedCodec(decodeRecord, encodeRecord)

export function isDeleted({ deletedAtMs }: VersionRecord, nowMs: number): boolean {
  return deletedAtMs !== 0 && deletedAtMs <= nowMs
}

const lastTime = { ms: 0, text: '' }

/** RFC 3339; empty for 0. Caches the last result, as many responses contain the same time. */
function timeText(ms: number): string {
  if (ms === 0) return ''
  if (ms !== lastTime.ms) {
    lastTime.text = new Date(ms).toISOString()
    lastTime.ms = ms
  }
  return lastTime.text
}

/** The metadata of a version in responses to reads and writes. */
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

/** In Go's format: `1h0m0s`. A negative value means never and is shown as `-1s`. */
export function durationText(seconds: number): string {
  return formatDuration(Math.max(-1, seconds) * 1000)
}

/** The metadata of a secret in responses. */
export function metadataResponse(record: KeyRecord): Record<string, unknown> {
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
