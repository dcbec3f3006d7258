/**
 * Changes of mounts. The record of a mount is one entry, so each change is atomic.
 *
 * Enabling, tuning and moving write the record; the table in memory changes when the record is durable. Disabling has steps: revoke
 * leases and tokens of the mount; mark the record as leaving, from which on no request finds the mount; wait for requests under way;
 * revoke what they issued; remove the data, page by page; remove the record. After a kill the next unsealed core continues, so data
 * of a disabled mount never reappears and never stays.
 *
 * A path is reserved while a change to it is not durable, so two concurrent changes cannot use the same path. A change starts from the
 * pending record, so concurrent changes of one mount do not overwrite each other.
 */
import { randomUUID } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Storage } from '../../storage/barrier/storage.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import type { Logger } from '../../platform/log.ts'
import { messageOf } from '../../platform/errors.ts'
import { dataPrefix, encodeRecord, isAuthPath, type MountRecord, parseMountRecord, recordPath } from './mount-record.ts'
import type { Mount, MountTable } from './mounts.ts'

/** Longer than the timeout of any request. */
const DRAIN_TIMEOUT_MS = 100_000
const RETRY_MS = 30_000
/** Completed moves; callers query the status within seconds. */
const MIGRATIONS_MAX = 1000

/** A completed move of a mount (`sys/remount/status`). */
export interface MountMigration {
  readonly id: string
  readonly from: string
  readonly to: string
}

export interface MountChangesOptions {
  readonly table: MountTable
  /** All of the barrier. */
  readonly storage: Storage
  readonly logger: Logger
  /** Revokes everything that a mount has issued. Resolves to the errors that prevent it. */
  readonly release?: (uuid: string) => Promise<readonly string[]>
  /** Delay before the removal of a mount's data is retried. */
  readonly retryMs?: number
  /** Maximum time that disabling waits for requests under way at the mount. */
  readonly drainTimeoutMs?: number
}

export class MountChanges {
  readonly #options: MountChangesOptions
  /** Paths of changes that are not durable yet. */
  readonly #reservedPaths = new Set<string>()
  /** Removals under way, by the mount's UUID. */
  readonly #removals = new Map<string, Promise<void>>()
  /** Mounts that are being removed, by UUID: their engines are needed to revoke leases. */
  readonly #detached = new Map<string, Mount>()
  readonly #migrations = new LRUCache<string, MountMigration>({ max: MIGRATIONS_MAX })
  readonly #retries = new Set<NodeJS.Timeout>()
  #isClosed = false

  constructor(options: MountChangesOptions) {
    this.#options = options
  }

  /** Throws a Rejection (400) if another mount is at, above or below the path. */
  async enable(record: MountRecord): Promise<void> {
    const conflict = this.#conflictingPath(record.path)
    if (conflict !== undefined) throw new Rejection(400, `path is already in use at ${shownPath(conflict)}`)
    await this.#putAt(record.path, record)
  }

  /** Replaces the record of a mount, unless `update` returns the same one. Throws a Rejection (400) for an unknown mount. */
  async tune(path: string, update: (record: MountRecord, mount: Mount) => MountRecord): Promise<void> {
    const mount = this.#options.table.get(path)
    const record = mount && this.#pending(mount)
    if (!record) throw new Rejection(400, `tune of path "${shownPath(path)}" failed: no mount entry found`)
    const updated = update(record, mount)
    if (updated === record) return
    await this.#put(updated)
    this.#options.table.attach(updated)
  }

  /** Moves a mount to another path. Throws a Rejection (400) for an unknown mount, or if another mount is at, above or below the path. */
  async move(from: string, to: string): Promise<MountMigration> {
    const mount = this.#options.table.get(from)
    const record = mount && this.#pending(mount)
    if (!record) throw new Rejection(400, `no matching mount at "${from}"`)
    const conflict = this.#conflictingPath(to)
    if (conflict !== undefined) throw new Rejection(400, `path already in use at "${conflict}"`)
    await this.#putAt(to, { ...record, path: to })
    const migration = { id: randomUUID(), from, to }
    this.#migrations.set(migration.id, migration)
    return migration
  }

  migration(id: string): MountMigration | undefined {
    return this.#migrations.get(id)
  }

  /** A mount that is being removed and whose engine is still needed. */
  detached(uuid: string): Mount | undefined {
    return this.#detached.get(uuid)
  }

  /**
   * Resolves when the mount and its data are removed, or if there is no such mount. Throws a Rejection (400) and changes nothing if
   * leases of the mount cannot be revoked.
   */
  async disable(path: string): Promise<void> {
    const mount = this.#options.table.get(path)
    if (!mount) return
    const { uuid } = mount.record
    if (!this.#removals.has(uuid)) await this.#release(mount)
    const underWay = this.#removals.get(uuid)
    if (underWay) return underWay
    const record = this.#pending(mount)
    if (!record) return
    const removal = this.#remove(mount, { ...record, isLeaving: true }).finally(() => this.#removals.delete(uuid))
    this.#removals.set(uuid, removal)
    return removal
  }

  /** Continues removals that were under way when the process ended. */
  resume(records: readonly MountRecord[]): void {
    for (const record of records) {
      const mount = this.#detached.get(record.uuid) ?? this.#options.table.createDetached(record)
      if (mount) this.#detached.set(record.uuid, mount)
      void this.#finish(record, mount).catch(() => undefined)
    }
  }

  close(): void {
    this.#isClosed = true
    for (const retry of this.#retries) clearTimeout(retry)
    this.#retries.clear()
  }

  /** The record with all queued changes; undefined if the mount is being removed or has moved. */
  #pending({ record: { path, uuid } }: Mount): MountRecord | undefined {
    const bytes = this.#options.storage.pending(recordPath(uuid))
    const record = bytes && parseMountRecord(bytes)
    return record && !record.isLeaving && record.path === path ? record : undefined
  }

  /** A used or reserved path at, above or below `path`. */
  #conflictingPath(path: string): string | undefined {
    const paths = [...this.#options.table.all().map(({ record }) => record.path), ...this.#reservedPaths]
    return paths.find((each) => each.startsWith(path) || path.startsWith(each))
  }

  async #putAt(path: string, record: MountRecord): Promise<void> {
    this.#reservedPaths.add(path)
    try {
      await this.#put(record)
      this.#options.table.attach(record)
    } finally {
      this.#reservedPaths.delete(path)
    }
  }

  async #put(record: MountRecord): Promise<void> {
    const put = { path: recordPath(record.uuid), value: encodeRecord(record) }
    await this.#options.storage.commit({ puts: [put], deletes: [] })
  }

  async #remove(mount: Mount, record: MountRecord): Promise<void> {
    const { activeRequests, viewScope } = mount
    this.#detached.set(record.uuid, mount)
    await this.#put(record)
    this.#options.table.detach(record.uuid)
    viewScope.endFeed(disabled)
    await activeRequests.idle(this.#options.drainTimeoutMs ?? DRAIN_TIMEOUT_MS)
    await this.#finish(record, mount)
  }

  /**
   * Revokes what requests issued that were under way when the mount was disabled, then removes the data: the engine needs it to
   * revoke. Retried later after a failure.
   */
  async #finish(record: MountRecord, mount: Mount | undefined): Promise<void> {
    try {
      if (mount) {
        await this.#release(mount)
        this.#detached.delete(record.uuid)
        await mount.viewScope.revoke(disabled)
      }
      await this.#removeData(record)
    } catch (error) {
      if (this.#isClosed) throw error
      this.#options.logger.error('removing a disabled mount failed, will retry', {
        path: record.path,
        error: messageOf(error),
      })
      const retry = setTimeout(() => {
        this.#retries.delete(retry)
        this.resume([record])
      }, this.#options.retryMs ?? RETRY_MS)
      retry.unref()
      this.#retries.add(retry)
      throw error
    }
  }

  async #release({ record: { uuid } }: Mount): Promise<void> {
    const errors = (await this.#options.release?.(uuid)) ?? []
    if (errors.length > 0) throw new Rejection(400, errors.join('; '))
  }

  async #removeData({ path, uuid }: MountRecord): Promise<void> {
    const { logger, storage } = this.#options
    const entries = await storage.removeAll(dataPrefix(uuid))
    await storage.commit({ puts: [], deletes: [recordPath(uuid)] })
    logger.info('mount disabled and its data removed', { path, entries })
  }
}

/** The error of a request that is under way at a disabled mount. */
function disabled(): Rejection {
  return new Rejection(404, 'this mount has been disabled')
}

/** A mount's path as in requests to `sys/mounts` and `sys/auth`. */
function shownPath(path: string): string {
  return isAuthPath(path) ? path.slice('auth/'.length) : path
}
