/**
 * Reading and writing the secrets of a mount: the entries of a secret, the settings of the engine, and the changes of secrets.
 * Independent of requests and responses.
 */
import type { Batch } from '../../../storage/barrier/storage.ts'
import { BatchBuilder, type ReadEntry } from '../../framework/records.ts'
import { type Caller, type EngineCall, Rejection } from '../../framework/engine.ts'
import type { KeyedHash } from '../../../platform/keyed-hash.ts'
import { addName, hashedName, isNamed, removeName } from './names.ts'
import {
  type Actor,
  type ChangeKind,
  newRecord,
  isDeleted,
  type KeyRecord,
  records,
  type VersionRecord,
} from './record.ts'

const CONFIG_PATH = 'config'
/** Names of the secrets that the latest batch with a removal removed. The change feed reads them from the log. */
export const REMOVED_PATH = 'removed'
/** Prefix of the paths of records. */
export const RECORDS_PREFIX = 'k/'
/** Number of versions if neither the secret nor the engine sets one. */
const VERSIONS_DEFAULT = 10
/** Limit of a version's data as JSON: that of a request body. A patched version may not exceed it either. */
const DATA_BYTES_MAX = 32 << 20
/**
 * Limit of the data that a request writes. A transaction of patches rewrites each secret, so it writes much more than its body
 * contains. The store's limit for a batch leaves space for this and for the records.
 */
const WRITTEN_BYTES_MAX = 48 << 20
/** Limit of data inside the record. Longer data would be rewritten with each change of the metadata. */
const DATA_IN_RECORD_MAX = 4096

export interface EngineConfig {
  /** 0: the default of 10. */
  readonly maxVersions: number
  readonly casRequired: boolean
  /** 0: no limit. Below 0: no limit, and those of secrets are ignored. */
  readonly deleteAfterSeconds: number
  readonly metadataCasRequired: boolean
  /** Whether lists omit names on which the caller has no rights. */
  readonly listFilter?: boolean
}

const NO_CONFIG: EngineConfig = {
  maxVersions: 0,
  casRequired: false,
  deleteAfterSeconds: 0,
  metadataCasRequired: false,
}

/** Reads the durable secrets of a mount. */
export class SecretReader {
  readonly secret: KeyedHash
  readonly nowMs: number
  readonly read: ReadEntry
  /** The last path. Most requests read one secret several times. */
  #lastPath = { name: '', path: '' }

  constructor({ mount, nowMs, storage }: EngineCall, read: ReadEntry = (path) => storage.get(path)) {
    this.secret = mount.secret
    this.nowMs = nowMs
    this.read = read
  }

  get config(): EngineConfig {
    const stored = this.read(CONFIG_PATH)
    // Written only by `putConfig` and authenticated by the barrier.
    return stored ? (JSON.parse(stored.toString('utf8')) as EngineConfig) : NO_CONFIG
  }

  record(name: string): KeyRecord | undefined {
    const stored = this.read(this.recordPath(name))
    return stored && records.of(stored)
  }

  /** The data of a version as JSON text; undefined if it was removed. */
  data({ current, name, newest }: KeyRecord, version: number): string | undefined {
    if (version === current && newest !== undefined) return newest
    return this.read(this.blobPath(name, version))?.toString('utf8')
  }

  /** The data of a version that is neither deleted nor destroyed. */
  liveData(record: KeyRecord, version = record.current): string | undefined {
    const found = record.versions.get(version)
    return found && !found.destroyed && !isDeleted(found, this.nowMs) ? this.data(record, version) : undefined
  }

  recordPath(name: string): string {
    if (this.#lastPath.path === '' || this.#lastPath.name !== name) {
      this.#lastPath = { name, path: RECORDS_PREFIX + hashedName(this.secret, 'key', name) }
    }
    return this.#lastPath.path
  }

  blobPath(name: string, version: number): string {
    return `${this.recordPath(name)}/${version}`
  }
}

/** Throws a Rejection (400) for data above the limit. */
function checkLength(json: string): void {
  const bytes = Buffer.byteLength(json)
  if (bytes <= DATA_BYTES_MAX) return
  throw new Rejection(400, `a secret can have at most ${DATA_BYTES_MAX} bytes of JSON, this one has ${bytes}`)
}

/**
 * Reads secrets for the decision about a write. Whether a secret exists is looked up in its folder, which the write of a new one
 * reads anyway: lookups of missing entries are the slowest in the store.
 */
class PendingSecretReader extends SecretReader {
  has(name: string): boolean {
    return isNamed(this.secret, this.read, name)
  }

  override record(name: string): KeyRecord | undefined {
    return this.has(name) ? super.record(name) : undefined
  }
}

export function pendingSecrets(call: EngineCall): PendingSecretReader {
  return new PendingSecretReader(call, (path) => call.storage.pending(path))
}

/** Whether a secret exists, as known from an earlier lookup. */
export interface ExistenceCheck {
  readonly name: string
  readonly exists: boolean
}

/** Writes secrets: reads pending entries, and builds a batch. */
export class SecretWriter extends PendingSecretReader {
  readonly #changes: BatchBuilder
  readonly #caller: Caller
  readonly #removed = new Set<string>()
  /** From a lookup in the same turn. */
  #known: ExistenceCheck | undefined
  #config: EngineConfig | undefined
  #writtenBytes = 0
  /** Records that the batch changes. Each is encoded once, after all changes. */
  readonly #records = new Map<string, KeyRecord>()

  constructor(call: EngineCall, known?: ExistenceCheck) {
    const changes = new BatchBuilder(call.storage)
    super(call, (path) => changes.get(path))
    this.#changes = changes
    this.#caller = call.caller
    this.#known = known
  }

  override get config(): EngineConfig {
    this.#config ??= super.config
    return this.#config
  }

  override has(name: string): boolean {
    return this.#known?.name === name ? this.#known.exists : super.has(name)
  }

  /** All changes, to be committed atomically. */
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

  /** `isNew`: also adds the name to its folder. */
  #put(record: KeyRecord, lastChange: ChangeKind, isNew: boolean): KeyRecord {
    const changed = { ...record, lastChange }
    if (isNew) addName(this.secret, this.#changes, record.name)
    this.#records.set(record.name, changed)
    return changed
  }

  #actor(operation: string): Actor {
    const { displayName, entityId } = this.#caller
    return {
      ...(displayName !== '' && { actor: displayName }),
      operation,
      ...(entityId !== '' && { entity_id: entityId, client_id: entityId }),
    }
  }

  /** Writes a record with changed settings. */
  putSettings(record: KeyRecord, isNew: boolean, operation: 'update' | 'patch'): void {
    this.#put({ ...record, lastUpdatedBy: this.#actor(isNew ? 'create' : operation) }, 'metadata', isNew)
  }

  /** Writes the custom metadata of an existing secret. */
  putCustom(name: string, custom: KeyRecord['custom']): void {
    const before = this.record(name)
    if (!before) return
    const metadataVersion = before.metadataVersion + 1
    this.putSettings({ ...before, custom, metadataVersion, updatedAtMs: this.nowMs }, false, 'update')
  }

  /** Adds a version with this JSON text and prunes old ones. Returns the new record. */
  addVersion(name: string, before: KeyRecord | undefined, data: string, operation: 'update' | 'patch'): KeyRecord {
    const { config, nowMs } = this
    const known = before ?? newRecord(name, nowMs)
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

  /** Stores the data of the newest version. Returns data that belongs into the record. */
  #putNewest(name: string, version: number, data: string): string | undefined {
    if (data.length <= DATA_IN_RECORD_MAX) return data
    checkLength(data)
    const bytes = Buffer.from(data)
    this.#writtenBytes += bytes.length
    if (this.#writtenBytes > WRITTEN_BYTES_MAX) {
      throw new Rejection(413, `a request can write at most ${WRITTEN_BYTES_MAX} bytes of data, split it`)
    }
    this.#changes.put(this.blobPath(name, version), bytes)
    return undefined
  }

  /** Replaces the data of version 1, in a mount without versions. */
  replace(name: string, data: string): void {
    const before = this.record(name)
    const createdBy = this.#actor(before ? 'update' : 'create')
    const version = { createdAtMs: this.nowMs, deletedAtMs: 0, destroyed: false, createdBy, deletedBy: null }
    const record = { ...(before ?? newRecord(name, this.nowMs)), current: 1, versions: new Map([[1, version]]) }
    const newest = this.#putNewest(name, 1, data)
    if (before && before.newest === undefined && newest !== undefined) this.#changes.delete(this.blobPath(name, 1))
    this.#put({ ...record, updatedAtMs: this.nowMs, lastUpdatedBy: createdBy, newest }, 'write', !before)
  }

  /** Removes versions that are too old after a version is added. Returns the oldest remaining one. `versions` are in order. */
  #pruned({ current, name, oldest }: KeyRecord, versions: Map<number, VersionRecord>, versionsMax: number): number {
    if (current + 1 - oldest < versionsMax) return oldest
    const cut = current + 1 - versionsMax
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

  /** Changes versions. `change` returns undefined to keep a version. */
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

  /** Removes a secret with all its versions. */
  remove(name: string): void {
    const record = this.record(name)
    if (!record) return
    for (const version of record.versions.keys()) this.#changes.delete(this.blobPath(name, version))
    this.#known = undefined
    this.#records.delete(name)
    this.#changes.delete(this.recordPath(name))
    removeName(this.secret, this.#changes, name)
    this.#removed.add(name)
  }

  /**
   * Copies a secret with its versions to a new name. Versions in `leftOut` are destroyed in the copy. Returns the bytes of the
   * versions, and stops once these exceed `bytesMax`.
   */
  copy(
    from: KeyRecord,
    to: string,
    { bytesMax, leftOut }: { readonly bytesMax: number; readonly leftOut: ReadonlySet<number> },
  ): number {
    const newest = leftOut.has(from.current) ? undefined : from.newest
    const versions = new Map(from.versions)
    let bytes = newest?.length ?? 0
    for (const [version, record] of from.versions) {
      if (leftOut.has(version)) versions.set(version, { ...record, destroyed: true })
      if (record.destroyed || leftOut.has(version) || (version === from.current && newest !== undefined)) continue
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
