/**
 * The secrets of one mount, as its paths work on them: where the entries of a secret are, the settings of the engine, and
 * the changes that are made to a secret. Nothing here knows of requests and answers.
 */
import type { Batch } from '../../../storage/barrier/storage.ts'
import { BatchBuilder } from '../../framework/records.ts'
import { type Caller, type EngineCall, Rejection } from '../../framework/engine.ts'
import type { KeyedHash } from '../../../platform/keyed-hash.ts'
import type { Read } from './folder.ts'
import { addName, hidden, isNamed, removeName } from './names.ts'
import {
  type Actor,
  type ChangeKind,
  freshRecord,
  isDeleted,
  type KeyRecord,
  records,
  type VersionRecord,
} from './record.ts'

const CONFIG_PATH = 'config'
/** Names of the secrets that the newest batch with a removal removed: whoever reads the log learns it from there. */
export const REMOVED_PATH = 'removed'
/** What the path of a secret's record begins with. */
export const RECORDS_PREFIX = 'k/'
/** Kept of a secret where neither it nor the engine says how many. */
const VERSIONS_DEFAULT = 10
/** Of one version's data as JSON: as much as a body may bring at once, also where patches have put it together. */
const DATA_BYTES_MAX = 32 << 20
/**
 * Of the data that one request writes. A transaction of patches writes each secret anew, so it writes far more than its
 * body has. What the store may commit at once has room for this and for the records.
 */
const WRITTEN_BYTES_MAX = 48 << 20
/** Of data that is kept in the record: longer ones would be written again with each change of the metadata. */
const DATA_IN_RECORD_MAX = 4096

export interface EngineConfig {
  /** 0: ten. */
  readonly maxVersions: number
  readonly casRequired: boolean
  /** 0: never; below 0: never, whatever a secret says. */
  readonly deleteAfterSeconds: number
  readonly metadataCasRequired: boolean
  /** Whether lists leave out what their caller could do nothing with. */
  readonly listFilter?: boolean
}

const NO_CONFIG: EngineConfig = {
  maxVersions: 0,
  casRequired: false,
  deleteAfterSeconds: 0,
  metadataCasRequired: false,
}

/** A mount's secrets for a caller who reads: what is durable. */
export class Secrets {
  readonly secret: KeyedHash
  readonly nowMs: number
  readonly read: Read
  /** Where the last secret that was asked for is: a request asks for one, several times. */
  #placed = { name: '', path: '' }

  constructor({ mount, nowMs, storage }: EngineCall, read: Read = (path) => storage.get(path)) {
    this.secret = mount.secret
    this.nowMs = nowMs
    this.read = read
  }

  get config(): EngineConfig {
    const kept = this.read(CONFIG_PATH)
    // Written by `putConfig` and authenticated by the barrier.
    return kept ? (JSON.parse(kept.toString('utf8')) as EngineConfig) : NO_CONFIG
  }

  record(name: string): KeyRecord | undefined {
    const kept = this.read(this.recordPath(name))
    return kept && records.of(kept)
  }

  /** The data of a version as JSON text; undefined where it is gone. */
  data({ current, name, newest }: KeyRecord, version: number): string | undefined {
    if (version === current && newest !== undefined) return newest
    return this.read(this.blobPath(name, version))?.toString('utf8')
  }

  /** The data of a version that can be read: not deleted, not destroyed. */
  liveData(record: KeyRecord, version = record.current): string | undefined {
    const kept = record.versions.get(version)
    return kept && !kept.destroyed && !isDeleted(kept, this.nowMs) ? this.data(record, version) : undefined
  }

  recordPath(name: string): string {
    if (this.#placed.path === '' || this.#placed.name !== name) {
      this.#placed = { name, path: RECORDS_PREFIX + hidden(this.secret, 'key', name) }
    }
    return this.#placed.path
  }

  blobPath(name: string, version: number): string {
    return `${this.recordPath(name)}/${version}`
  }
}

/** Throws a Rejection (400) for more than a secret may have. */
function checkLength(json: string): void {
  const bytes = Buffer.byteLength(json)
  if (bytes <= DATA_BYTES_MAX) return
  throw new Rejection(400, `a secret has at most ${DATA_BYTES_MAX} bytes of JSON, this one has ${bytes}`)
}

/**
 * Secrets for deciding about a write. Whether there is one is asked of the folder, which the write of a new one needs
 * anyway: what is not there is what costs the store the longest look.
 */
class PendingSecrets extends Secrets {
  has(name: string): boolean {
    return isNamed(this.secret, this.read, name)
  }

  override record(name: string): KeyRecord | undefined {
    return this.has(name) ? super.record(name) : undefined
  }
}

export function pendingSecrets(call: EngineCall): PendingSecrets {
  return new PendingSecrets(call, (path) => call.storage.pending(path))
}

/** Whether there is a secret of a name. */
export interface Asked {
  readonly name: string
  readonly isThere: boolean
}

/** The same for a caller who writes: what is pending, and the batch that is being made. */
export class ChangingSecrets extends PendingSecrets {
  readonly #changes: BatchBuilder
  readonly #caller: Caller
  readonly #removed = new Set<string>()
  /** What the path has found out in this turn already. */
  #asked: Asked | undefined
  #config: EngineConfig | undefined
  #writtenBytes = 0
  /** Those that this batch changes: each is put into bytes once, however often it was changed. */
  readonly #records = new Map<string, KeyRecord>()

  constructor(call: EngineCall, asked?: Asked) {
    const changes = new BatchBuilder(call.storage)
    super(call, (path) => changes.get(path))
    this.#changes = changes
    this.#caller = call.caller
    this.#asked = asked
  }

  override get config(): EngineConfig {
    this.#config ??= super.config
    return this.#config
  }

  override has(name: string): boolean {
    return this.#asked?.name === name ? this.#asked.isThere : super.has(name)
  }

  /** All that was changed, to be committed as one. */
  get batch(): Batch {
    for (const [name, record] of this.#records) this.#changes.put(this.recordPath(name), records.bytes(record))
    const removed = [...this.#removed].filter((name) => !this.#records.has(name))
    if (removed.length > 0) this.#changes.put(REMOVED_PATH, Buffer.from(JSON.stringify(removed)))
    return this.#changes.batch
  }

  override record(name: string): KeyRecord | undefined {
    return this.#records.get(name) ?? super.record(name)
  }

  putConfig(config: EngineConfig): void {
    this.#config = config
    this.#changes.put(CONFIG_PATH, Buffer.from(JSON.stringify(config)))
  }

  /** `isNew` where the name is not known yet. */
  #put(record: KeyRecord, lastChange: ChangeKind, isNew: boolean): KeyRecord {
    const kept = { ...record, lastChange }
    if (isNew) addName(this.secret, this.#changes, record.name)
    this.#records.set(record.name, kept)
    return kept
  }

  #actor(operation: string): Actor {
    const { displayName, entityId } = this.#caller
    return {
      ...(displayName !== '' && { actor: displayName }),
      operation,
      ...(entityId !== '' && { entity_id: entityId, client_id: entityId }),
    }
  }

  /** Puts a record whose settings were changed. */
  putSettings(record: KeyRecord, isNew: boolean, operation: 'update' | 'patch'): void {
    this.#put({ ...record, lastUpdatedBy: this.#actor(isNew ? 'create' : operation) }, 'metadata', isNew)
  }

  /** Puts the texts beside a secret that is there. */
  putCustom(name: string, custom: KeyRecord['custom']): void {
    const before = this.record(name)
    if (!before) return
    const metadataVersion = before.metadataVersion + 1
    this.putSettings({ ...before, custom, metadataVersion, updatedAtMs: this.nowMs }, false, 'update')
  }

  /** A new version with this JSON text; what is too old goes. Returns the record as it is then. */
  addVersion(name: string, before: KeyRecord | undefined, data: string, operation: 'update' | 'patch'): KeyRecord {
    const { config, nowMs } = this
    const known = before ?? freshRecord(name, nowMs)
    const current = known.current + 1
    const createdBy = this.#actor(before ? operation : 'create')
    const deletedAtMs = this.#deletionTime(config, known)
    const versions = new Map(known.versions)
    versions.set(current, { createdAtMs: nowMs, deletedAtMs, destroyed: false, createdBy, deletedBy: null })
    const oldest = this.#pruned(known, versions, known.maxVersions || config.maxVersions || VERSIONS_DEFAULT)
    if (known.newest !== undefined && versions.has(known.current)) {
      this.#changes.put(this.blobPath(name, known.current), Buffer.from(known.newest))
    }
    const newest = this.#putNewest(name, current, data)
    const record = { ...known, current, oldest, versions, updatedAtMs: nowMs, lastUpdatedBy: createdBy, newest }
    return this.#put(record, 'write', !before)
  }

  /** The data of what is to be the newest version: returned where it goes into the record. */
  #putNewest(name: string, version: number, data: string): string | undefined {
    if (data.length <= DATA_IN_RECORD_MAX) return data
    checkLength(data)
    const bytes = Buffer.from(data)
    this.#writtenBytes += bytes.length
    if (this.#writtenBytes > WRITTEN_BYTES_MAX) {
      throw new Rejection(413, `a request writes at most ${WRITTEN_BYTES_MAX} bytes of data, divide it`)
    }
    this.#changes.put(this.blobPath(name, version), bytes)
    return undefined
  }

  /** Version 1 of a secret that has no others, with this JSON text in the place of what it had. */
  replace(name: string, data: string): void {
    const before = this.record(name)
    const createdBy = this.#actor(before ? 'update' : 'create')
    const version = { createdAtMs: this.nowMs, deletedAtMs: 0, destroyed: false, createdBy, deletedBy: null }
    const record = { ...(before ?? freshRecord(name, this.nowMs)), current: 1, versions: new Map([[1, version]]) }
    const newest = this.#putNewest(name, 1, data)
    if (before && before.newest === undefined && newest !== undefined) this.#changes.delete(this.blobPath(name, 1))
    this.#put({ ...record, updatedAtMs: this.nowMs, lastUpdatedBy: createdBy, newest }, 'write', !before)
  }

  /** Versions are in order. Takes out what is too old once there is one version more; returns the oldest that is left. */
  #pruned({ current, name, oldest }: KeyRecord, versions: Map<number, VersionRecord>, kept: number): number {
    if (current + 1 - oldest < kept) return oldest
    const cut = current + 1 - kept
    for (const version of versions.keys()) {
      if (version > cut) break
      versions.delete(version)
      this.#changes.delete(this.blobPath(name, version))
    }
    return cut + 1
  }

  #deletionTime({ deleteAfterSeconds: engine }: EngineConfig, { deleteAfterSeconds: key }: KeyRecord): number {
    if (engine < 0) return 0
    const seconds = engine === 0 || key === 0 ? engine + key : Math.min(engine, key)
    return seconds === 0 ? 0 : this.nowMs + seconds * 1000
  }

  /** Changes some versions; `change` gives undefined to leave one as it is. */
  #changeVersions(
    name: string,
    numbers: Iterable<number>,
    kind: ChangeKind,
    change: (version: VersionRecord, number: number, record: KeyRecord) => VersionRecord | undefined,
  ): void {
    const record = this.record(name)
    if (!record) return
    const versions = new Map(record.versions)
    let isChanged = false
    for (const number of numbers) {
      const version = versions.get(number)
      const changed = version && change(version, number, record)
      if (!changed) continue
      versions.set(number, changed)
      isChanged = true
    }
    if (!isChanged) return
    const newest = versions.get(record.current)?.destroyed ? undefined : record.newest
    this.#put({ ...record, versions, newest, lastUpdatedBy: this.#actor(kind) }, kind, false)
  }

  softDelete(name: string, numbers: Iterable<number>): void {
    const deletedBy = this.#actor('delete')
    this.#changeVersions(name, numbers, 'delete', (version) =>
      version.destroyed || isDeleted(version, this.nowMs)
        ? undefined
        : { ...version, deletedAtMs: this.nowMs, deletedBy },
    )
  }

  undelete(name: string, numbers: Iterable<number>): void {
    this.#changeVersions(name, numbers, 'undelete', (version, _number, record) =>
      version.destroyed || version.deletedAtMs === 0
        ? undefined
        : { ...version, deletedAtMs: this.#deletionTime(this.config, record), deletedBy: null },
    )
  }

  destroy(name: string, numbers: Iterable<number>): void {
    this.#changeVersions(name, numbers, 'destroy', (version, number) => {
      this.#changes.delete(this.blobPath(name, number))
      return version.destroyed ? undefined : { ...version, destroyed: true }
    })
  }

  /** Everything of it, at once. */
  remove(name: string): void {
    const record = this.record(name)
    if (!record) return
    for (const version of record.versions.keys()) this.#changes.delete(this.blobPath(name, version))
    this.#asked = undefined
    this.#records.delete(name)
    this.#changes.delete(this.recordPath(name))
    removeName(this.secret, this.#changes, name)
    this.#removed.add(name)
  }

  /**
   * A secret under another name, with its versions; there must be none of that name. Versions that are `leftOut` are
   * destroyed in the copy. Returns the bytes that the versions have, and gives up where these are more than `bytesMax`.
   */
  copy(
    from: KeyRecord,
    to: string,
    { bytesMax, leftOut }: { readonly bytesMax: number; readonly leftOut: ReadonlySet<number> },
  ): number {
    const newest = leftOut.has(from.current) ? undefined : from.newest
    const versions = new Map(from.versions)
    let bytes = newest?.length ?? 0
    for (const [version, kept] of from.versions) {
      if (leftOut.has(version)) versions.set(version, { ...kept, destroyed: true })
      if (kept.destroyed || leftOut.has(version) || (version === from.current && newest !== undefined)) continue
      const data = this.read(this.blobPath(from.name, version))
      if (!data) continue
      bytes += data.length
      if (bytes > bytesMax) return bytes
      this.#changes.put(this.blobPath(to, version), data)
    }
    this.#put({ ...from, name: to, versions, newest, lastUpdatedBy: this.#actor('create') }, 'write', true)
    return bytes
  }
}
