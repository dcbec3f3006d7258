/**
 * Removals of leases that have been taken back: those of one turn of the event loop are one commit. Where an engine has returned a
 * batch, that and the removal of its lease are a commit of their own, queued at once: nothing else comes in between what the
 * engine has read and that.
 */
import { type Batch, Storage } from '../../storage/barrier/storage.ts'
import { GroupedCommits } from './grouped-commits.ts'
import type { Lease } from './lease-entry.ts'
import type { LeaseStore } from './lease-store.ts'

export class LeaseRemoval {
  readonly #leases: LeaseStore
  readonly #commits: GroupedCommits<Lease>

  constructor(leases: LeaseStore) {
    this.#leases = leases
    this.#commits = new GroupedCommits((lease) => leases.removal(lease))
  }

  /** Resolves when the lease is gone, durably; rejects where it is not. */
  async remove(lease: Lease): Promise<void> {
    const group = await this.#commits.add(lease)
    // Once for each path that leases of the group were given for.
    const first = group.find(({ mount, path }) => mount === lease.mount && path === lease.path)
    if (first === lease) await this.#leases.forgetText(lease)
  }

  /** As `remove`, together with what its engine returned, which belongs into `storage`. */
  async removeWith(lease: Lease, storage: Storage, batch: Batch): Promise<void> {
    await Storage.commitAll([this.#leases.removal(lease), { storage, batch }])
    await this.#leases.forgetText(lease)
  }
}
