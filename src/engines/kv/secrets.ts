/**
 * The secrets of one mount, as its paths work on them: where the entries of a secret are, the settings of the engine, and
 * the changes that are made to a secret. Nothing here knows of requests and answers.
 */
import { Changes } from '../changes.ts'
import type { EngineCall } from '../engine.ts'
import type { KeyedHash } from '../keyed-hash.ts'
import { addName, hidden, removeName } from './names.ts'
import { decodeRecord, encodeRecord, isDeleted, type KeyRecord, type VersionRecord } from './record.ts'

const CONFIG_PATH = 'config'
/** Kept of a secret where neither it nor the engine says how many. */
const VERSIONS_DEFAULT = 10

export interface EngineConfig {
  /** 0: ten. */
  readonly maxVersions: number
  readonly casRequired: boolean
  /** 0: never; below 0: never, whatever a secret says. */
  readonly deleteAfterSeconds: number
  readonly metadataCasRequired: boolean
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
  readonly read: (path: string) => Buffer | undefined

  constructor({ mount, nowMs, view }: EngineCall, read = (path: string) => view.get(path)) {
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
    const kept = this.read(this.#place(name))
    return kept && decodeRecord(kept)
  }

  /** The data of a version as JSON text; undefined where it is gone. */
  data(name: string, version: number): string | undefined {
    return this.read(this.blobPath(name, version))?.toString('utf8')
  }

  #place(name: string): string {
    return `k/${hidden(this.secret, 'key', name)}`
  }

  blobPath(name: string, version: number): string {
    return `${this.#place(name)}/${version}`
  }

  recordPath(name: string): string {
    return this.#place(name)
  }
}

/** The same for a caller who writes: what is pending, and the batch that is being made. */
export class ChangingSecrets extends Secrets {
  readonly changes: Changes

  constructor(call: EngineCall) {
    const changes = new Changes(call.view)
    super(call, (path) => changes.get(path))
    this.changes = changes
  }

  putConfig(config: EngineConfig): void {
    this.changes.put(CONFIG_PATH, Buffer.from(JSON.stringify(config)))
  }

  /** `before` tells whether the name is known already. */
  putRecord(name: string, record: KeyRecord, before: KeyRecord | undefined): void {
    if (!before) addName(this.secret, this.changes, name)
    this.changes.put(this.recordPath(name), encodeRecord(record))
  }

  /** A new version with this JSON text; what is too old goes. Returns the record as it is then. */
  addVersion(name: string, before: KeyRecord, data: string, isNew: boolean): KeyRecord {
    const { config, nowMs } = this
    const current = before.current + 1
    const versions = new Map(before.versions)
    versions.set(current, { createdAtMs: nowMs, deletedAtMs: this.#deletionTime(config, before), destroyed: false })
    const kept = before.maxVersions || config.maxVersions || VERSIONS_DEFAULT
    let { oldest } = before
    if (current - oldest >= kept) {
      const cut = current - kept
      for (const version of before.versions.keys()) {
        if (version > cut) continue
        versions.delete(version)
        this.changes.delete(this.blobPath(name, version))
      }
      oldest = cut + 1
    }
    const record = { ...before, current, oldest, versions, updatedAtMs: nowMs }
    this.changes.put(this.blobPath(name, current), Buffer.from(data))
    this.putRecord(name, record, isNew ? undefined : before)
    return record
  }

  #deletionTime({ deleteAfterSeconds: engine }: EngineConfig, { deleteAfterSeconds: key }: KeyRecord): number {
    if (engine < 0) return 0
    const seconds = engine === 0 || key === 0 ? engine + key : Math.min(engine, key)
    return seconds === 0 ? 0 : this.nowMs + seconds * 1000
  }

  /** Changes some versions; the change gets undefined for none and gives undefined to leave one as it is. */
  changeVersions(
    name: string,
    numbers: Iterable<number>,
    change: (version: VersionRecord, number: number) => VersionRecord | undefined,
  ): void {
    const record = this.record(name)
    if (!record) return
    const versions = new Map(record.versions)
    let isChanged = false
    for (const number of numbers) {
      const version = versions.get(number)
      const changed = version && change(version, number)
      if (!changed) continue
      versions.set(number, changed)
      isChanged = true
    }
    if (isChanged) this.putRecord(name, { ...record, versions }, record)
  }

  softDelete(name: string, numbers: Iterable<number>): void {
    this.changeVersions(name, numbers, (version) =>
      version.destroyed || isDeleted(version, this.nowMs) ? undefined : { ...version, deletedAtMs: this.nowMs },
    )
  }

  undelete(name: string, numbers: Iterable<number>): void {
    const record = this.record(name)
    if (!record) return
    const deletedAtMs = this.#deletionTime(this.config, record)
    this.changeVersions(name, numbers, (version) =>
      version.destroyed || version.deletedAtMs === 0 ? undefined : { ...version, deletedAtMs },
    )
  }

  destroy(name: string, numbers: Iterable<number>): void {
    this.changeVersions(name, numbers, (version, number) => {
      this.changes.delete(this.blobPath(name, number))
      return version.destroyed ? undefined : { ...version, destroyed: true }
    })
  }

  /** Everything of it, at once. */
  remove(name: string): void {
    const record = this.record(name)
    if (!record) return
    for (const version of record.versions.keys()) this.changes.delete(this.blobPath(name, version))
    this.changes.delete(this.recordPath(name))
    removeName(this.secret, this.changes, name)
  }
}
