/**
 * Changes of the mounts, each one entry, so each is there whole or not at all.
 *
 * Enabling, tuning and moving write the mount's record; the table in memory follows once that is durable. Disabling has
 * steps: the record is marked as leaving, and from then on nobody finds the mount; what is under way there ends; what it has given
 * out is taken back; the data goes, page by page; the record goes last. A process that is killed in between goes on with it when it is unsealed again,
 * so data of a mount that was said to be disabled never comes back and never stays.
 *
 * A path that is being taken by a change that is not durable yet is taken for others already: of two who want it one wins.
 * What a change starts from is what is pending, so two changes of one mount follow one another.
 */
import { randomUUID } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Storage } from '../../storage/barrier/storage.ts'
import { Rejection } from '../../engines/framework/engine.ts'
import type { Logger } from '../../platform/log.ts'
import { messageOf } from '../../platform/errors.ts'
import { dataPrefix, encodeRecord, isAuthPath, type MountRecord, parseRecord, recordPath } from './mount-record.ts'
import type { Mount, MountTable } from './mounts.ts'

/** Longer than any request may take. */
const UNDER_WAY_MS = 100_000
const RETRY_MS = 30_000
/** Of moves that were made; their callers ask within seconds. */
const MIGRATIONS_MAX = 1000

export interface Migration {
  readonly id: string
  readonly from: string
  readonly to: string
}

export interface MountChangesOptions {
  readonly table: MountTable
  /** All of the barrier. */
  readonly storage: Storage
  readonly logger: Logger
  /** Takes back what a mount has given out; resolves with texts of what could not be. */
  readonly release?: (uuid: string) => Promise<readonly string[]>
  /** Between two attempts to remove what could not be removed. */
  readonly retryMs?: number
  /** How long what is under way at a mount may take to end once it is disabled. */
  readonly underWayMs?: number
}

export class MountChanges {
  readonly #options: MountChangesOptions
  readonly #taken = new Set<string>()
  /** Removals under way, by the mount's UUID. */
  readonly #leaving = new Map<string, Promise<void>>()
  /** Mounts that serve no longer and whose leases may still be taken back. */
  readonly #outgoing = new Map<string, Mount>()
  readonly #migrations = new LRUCache<string, Migration>({ max: MIGRATIONS_MAX })
  readonly #retries = new Set<NodeJS.Timeout>()
  #isClosed = false

  constructor(options: MountChangesOptions) {
    this.#options = options
  }

  /** Throws a Rejection (400) where something is in the way. */
  async enable(record: MountRecord): Promise<void> {
    const inTheWay = this.#occupant(record.path)
    if (inTheWay !== undefined) throw new Rejection(400, `path is already in use at ${shownPath(inTheWay)}`)
    await this.#taking(record.path, record)
  }

  /**
   * Turns a mount's record into another with the same path, or leaves it when `alter` returns the same one. Throws a
   * Rejection (400) where there is no such mount, and whatever `alter` throws.
   */
  async tune(path: string, alter: (record: MountRecord, mount: Mount) => MountRecord): Promise<void> {
    const mount = this.#options.table.get(path)
    const record = mount && this.#pending(mount)
    if (!record) throw new Rejection(400, `tune of path "${shownPath(path)}" failed: no mount entry found`)
    const altered = alter(record, mount)
    if (altered === record) return
    await this.#put(altered)
    this.#options.table.place(altered)
  }

  /** Gives a mount another path. Throws a Rejection (400) where there is none, or where something is in the way. */
  async move(from: string, to: string): Promise<Migration> {
    const mount = this.#options.table.get(from)
    const record = mount && this.#pending(mount)
    if (!record) throw new Rejection(400, `no matching mount at "${from}"`)
    const inTheWay = this.#occupant(to)
    if (inTheWay !== undefined) throw new Rejection(400, `path already in use at "${inTheWay}"`)
    await this.#taking(to, { ...record, path: to })
    const migration = { id: randomUUID(), from, to }
    this.#migrations.set(migration.id, migration)
    return migration
  }

  migration(id: string): Migration | undefined {
    return this.#migrations.get(id)
  }

  /** A mount that is on its way out, while its engine may still be asked. */
  leaving(uuid: string): Mount | undefined {
    return this.#outgoing.get(uuid)
  }

  /**
   * Resolves when the mount and everything in it are gone. There need not be one. Throws a Rejection (400), and leaves it
   * as it is, where leases of it cannot be taken back.
   */
  async disable(path: string): Promise<void> {
    const mount = this.#options.table.get(path)
    if (!mount) return
    const { uuid } = mount.record
    if (!this.#leaving.has(uuid)) await this.#release(mount)
    const under = this.#leaving.get(uuid)
    if (under) return under
    const record = this.#pending(mount)
    if (!record) return
    const leaving = this.#leave(mount, { ...record, isLeaving: true }).finally(() => this.#leaving.delete(uuid))
    this.#leaving.set(uuid, leaving)
    return leaving
  }

  /** Goes on with what was on its way out when the process ended. */
  resume(records: readonly MountRecord[]): void {
    for (const record of records) {
      const mount = this.#outgoing.get(record.uuid) ?? this.#options.table.unplaced(record)
      if (mount) this.#outgoing.set(record.uuid, mount)
      void this.#finish(record, mount).catch(() => undefined)
    }
  }

  close(): void {
    this.#isClosed = true
    for (const retry of this.#retries) clearTimeout(retry)
    this.#retries.clear()
  }

  /** The mount's record once everything that is queued is durable; undefined when it has then left its path. */
  #pending({ record: { path, uuid } }: Mount): MountRecord | undefined {
    const kept = this.#options.storage.pending(recordPath(uuid))
    const record = kept && parseRecord(kept)
    return record && !record.isLeaving && record.path === path ? record : undefined
  }

  /** The path at, above or below `path` that a mount has or is about to have. */
  #occupant(path: string): string | undefined {
    const paths = [...this.#options.table.all().map(({ record }) => record.path), ...this.#taken]
    return paths.find((each) => each.startsWith(path) || path.startsWith(each))
  }

  async #taking(path: string, record: MountRecord): Promise<void> {
    this.#taken.add(path)
    try {
      await this.#put(record)
      this.#options.table.place(record)
    } finally {
      this.#taken.delete(path)
    }
  }

  async #put(record: MountRecord): Promise<void> {
    const put = { path: recordPath(record.uuid), value: encodeRecord(record) }
    await this.#options.storage.commit({ puts: [put], deletes: [] })
  }

  async #leave(mount: Mount, record: MountRecord): Promise<void> {
    const { viewScope, traffic } = mount
    this.#outgoing.set(record.uuid, mount)
    await this.#put(record)
    this.#options.table.displace(record.uuid)
    viewScope.endFeed(disabled)
    await traffic.idle(this.#options.underWayMs ?? UNDER_WAY_MS)
    await this.#finish(record, mount)
  }

  /**
   * Takes back what requests gave out that were under way when the mount was disabled, then removes its data. Without the data its
   * engine could take nothing back. What fails is tried again later.
   */
  async #finish(record: MountRecord, mount: Mount | undefined): Promise<void> {
    try {
      if (mount) {
        await this.#release(mount)
        this.#outgoing.delete(record.uuid)
        await mount.viewScope.revoke(disabled)
      }
      await this.#clear(record)
    } catch (error) {
      if (this.#isClosed) throw error
      this.#options.logger.error('the data of a disabled mount cannot be removed now; it is tried again', {
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
    const left = (await this.#options.release?.(uuid)) ?? []
    if (left.length > 0) throw new Rejection(400, left.join('; '))
  }

  /** Removes the data, then the record. */
  async #clear({ path, uuid }: MountRecord): Promise<void> {
    const { logger, storage } = this.#options
    const entries = await storage.removeAll(dataPrefix(uuid))
    await storage.commit({ puts: [], deletes: [recordPath(uuid)] })
    logger.info('a mount was disabled, and its data is gone', { path, entries })
  }
}

/** What a request is told that is still at a mount which is going. */
function disabled(): Rejection {
  return new Rejection(404, 'this mount has been disabled')
}

/** A mount's path as callers of `sys/mounts` and `sys/auth` give it. */
function shownPath(path: string): string {
  return isAuthPath(path) ? path.slice('auth/'.length) : path
}
