/** Group commits of lease revocation: marks and removals of one turn of the event loop share a commit. */
import { type Batch, type CommitPart, Storage } from '../../storage/barrier/storage.ts'
import type { Lease } from './lease-entry.ts'
import type { LeaseStore } from './lease-store.ts'

/** Items per commit: a few milliseconds of the writer thread and of the event loop. */
const ITEMS_MAX = 128

interface PendingItem<T> {
  readonly item: T
  readonly resolve: (group: readonly T[]) => void
  readonly reject: (error: unknown) => void
}

/** If a commit of several items fails, each is committed alone, so one that cannot be committed does not block the others. */
export class GroupCommitter<T> {
  readonly #partOf: (item: T) => CommitPart
  #pending: PendingItem<T>[] = []

  constructor(partOf: (item: T) => CommitPart) {
    this.#partOf = partOf
  }

  /** Resolves when the item is durable, with all items of its commit. */
  add(item: T): Promise<readonly T[]> {
    return new Promise((resolve, reject) => {
      if (this.#pending.push({ item, resolve, reject }) === 1) setImmediate(() => this.#commitPending())
    })
  }

  #commitPending(): void {
    const pending = this.#pending
    this.#pending = []
    while (pending.length > 0) void this.#commit(pending.splice(0, ITEMS_MAX))
  }

  /** Never rejects. */
  async #commit(group: readonly PendingItem<T>[]): Promise<void> {
    const items = group.map(({ item }) => item)
    try {
      await Storage.commitAll(items.map(this.#partOf))
    } catch (error) {
      if (group.length === 1) for (const { reject } of group) reject(error)
      else for (const each of group) await this.#commit([each])
      return
    }
    for (const { resolve } of group) resolve(items)
  }
}

/**
 * Removes revoked leases. If the engine returned a batch, the batch and the removal of its lease are a commit of their own, queued
 * at once, so no other commit comes between what the engine has read and its batch.
 */
export class LeaseRemover {
  readonly #leases: LeaseStore
  readonly #commits: GroupCommitter<Lease>

  constructor(leases: LeaseStore) {
    this.#leases = leases
    this.#commits = new GroupCommitter((lease) => leases.removalPart(lease))
  }

  /** Resolves when the removal is durable. */
  async remove(lease: Lease): Promise<void> {
    const group = await this.#commits.add(lease)
    // Once for each issuing path of the group.
    const first = group.find(({ mount, path }) => mount === lease.mount && path === lease.path)
    if (first === lease) await this.#leases.removeUnusedPath(lease)
  }

  /** As `remove`, together with the batch of the engine for `storage`. */
  async removeWithBatch(lease: Lease, storage: Storage, batch: Batch): Promise<void> {
    await Storage.commitAll([this.#leases.removalPart(lease), { storage, batch }])
    await this.#leases.removeUnusedPath(lease)
  }
}
