/**
 * Removals of leases that have been taken back: those of one turn of the event loop are one commit. Where an engine has returned a
 * batch, that and the removal of its lease are a commit of their own, queued at once: nobody else comes in between what the engine
 * has read and that.
 *
 * A removal that cannot be committed (what is under way was sealed, a path is damaged) must keep no other: where a commit of
 * several fails, each is attempted by itself.
 */
import { type Batch, Storage } from '../../barrier/storage.ts'
import type { Lease } from './lease-entry.ts'
import type { LeaseStore } from './lease-store.ts'

/** Of one commit: a few milliseconds of the writer's time, and of the event loop's. */
const LEASES_MAX = 128

interface Removal {
  readonly lease: Lease
  readonly removed: () => void
  readonly failed: (error: unknown) => void
}

export class LeaseRemoval {
  readonly #leases: LeaseStore
  #waiting: Removal[] = []

  constructor(leases: LeaseStore) {
    this.#leases = leases
  }

  /** Resolves when the lease is gone, durably; rejects where it is not. */
  remove(lease: Lease): Promise<void> {
    return new Promise((removed, failed) => {
      if (this.#waiting.push({ lease, removed, failed }) === 1) setImmediate(() => this.#writeAll())
    })
  }

  /** As `remove`, together with what its engine returned, which belongs into `storage`. */
  async removeWith(lease: Lease, storage: Storage, batch: Batch): Promise<void> {
    await Storage.commitAll([this.#leases.removal(lease), { storage, batch }])
    await this.#leases.forgetText(lease)
  }

  #writeAll(): void {
    const waiting = this.#waiting
    this.#waiting = []
    while (waiting.length > 0) void this.#write(waiting.splice(0, LEASES_MAX))
  }

  /** Never rejects. */
  async #write(group: readonly Removal[]): Promise<void> {
    try {
      await Storage.commitAll(group.map(({ lease }) => this.#leases.removal(lease)))
    } catch (error) {
      if (group.length === 1) for (const { failed } of group) failed(error)
      else for (const removal of group) await this.#write([removal])
      return
    }
    await this.#forgetTexts(group)
  }

  /** Once for each path that leases of the group were given for. */
  async #forgetTexts(group: readonly Removal[]): Promise<void> {
    const byPath = Map.groupBy(group, ({ lease: { mount, path } }) => `${mount}/${path}`)
    for (const removals of byPath.values()) {
      try {
        for (const { lease } of removals.slice(0, 1)) await this.#leases.forgetText(lease)
        for (const { removed } of removals) removed()
      } catch (error) {
        for (const { failed } of removals) failed(error)
      }
    }
  }
}
