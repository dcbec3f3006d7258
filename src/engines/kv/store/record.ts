/**
 * What is kept of a secret: settings, for each version when it was made, deleted, destroyed, and the data of the newest
 * version where that is small, so that most secrets are read and written as one entry. Times are milliseconds since the
 * Unix epoch here and RFC 3339 outside.
 */
import { formatDuration } from '../../../platform/duration.ts'
import { Fault } from '../../../platform/errors.ts'
import { CachedCodec } from '../../framework/records.ts'

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
  /** The data of the version `current` as JSON text, where it is kept here and not in an entry of its own. */
  readonly newest: string | undefined
}

const FORMAT = 3
/** Between the record and the data: JSON text has none. */
const DATA_MARK = '\0'

type EncodedVersion = [
  version: number,
  createdAtMs: number,
  deletedAtMs: number,
  destroyed: boolean,
  /** Where in the list of actors; 0 for nobody, the first is 1. */
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
    newest: undefined,
  }
}

function encodeRecord(record: KeyRecord): Buffer {
  const actors = new Actors()
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

/** Those of a record, each once: most versions of a secret are made by the same few. */
class Actors {
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

function encodeVersion([version, given]: readonly [number, VersionRecord], actors: Actors): EncodedVersion {
  const { createdAtMs, createdBy, deletedAtMs, deletedBy, destroyed } = given
  const made = actors.number(createdBy)
  if (deletedBy) return [version, createdAtMs, deletedAtMs, destroyed, made, actors.number(deletedBy)]
  return [version, createdAtMs, deletedAtMs, destroyed, made]
}

function decodeRecord(bytes: Buffer): KeyRecord {
  const text = bytes.toString('utf8')
  const mark = text.indexOf(DATA_MARK)
  // Written by this file and authenticated by the barrier; the format tells another program's from ours.
  const encoded = JSON.parse(mark < 0 ? text : text.slice(0, mark)) as Encoded
  if (encoded[0] !== FORMAT) throw new Fault('the record of a secret is of another version of this program')
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

/** Records as entries. Throws a Fault for a record of a form that this program does not know. */
export const records = new CachedCodec(decodeRecord, encodeRecord)

export function isDeleted({ deletedAtMs }: VersionRecord, nowMs: number): boolean {
  return deletedAtMs !== 0 && deletedAtMs <= nowMs
}

const newestTime = { ms: 0, text: '' }

/** RFC 3339, empty for never. The last one is remembered: many answers tell of one moment. */
export function timeText(ms: number): string {
  if (ms === 0) return ''
  if (ms !== newestTime.ms) {
    newestTime.text = new Date(ms).toISOString()
    newestTime.ms = ms
  }
  return newestTime.text
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

/** As Go writes a duration: `1h0m0s`. Below zero it means never, and is told as one second less than none. */
export function durationText(seconds: number): string {
  return formatDuration(Math.max(-1, seconds) * 1000)
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
