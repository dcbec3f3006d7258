/**
 * Owners of allocations that no node reports at present. The key that reports an allocation first owns it (roster.ts). When
 * its node does not report the allocation any more, the owner is stored here, so that another node cannot take over the
 * allocation's ID and its callers.
 *
 * Ownership ends when the node is purged, or after `EXPIRY_MS`. The number of entries is bounded, for each node and in total.
 * At the total limit the node with the most entries loses its oldest ones: a node that invents allocations evicts its own
 * entries first. Times are wall clock times, because entries outlive the process.
 */

/** Longer than logs of a collected allocation are requested, and than a host is usually down for repair. */
const EXPIRY_MS = 7 * 24 * 3600 * 1000
export const OWNED_PER_NODE_MAX = 10_000
export const OWNED_MAX = 200_000
/** Part of a node's entries that is evicted at once at the total limit, because finding the node visits all nodes. */
const EVICTED_PART = 0.1

export interface AllocationOwner {
  readonly nodeId: string
  /** Raw key in base64. */
  readonly publicKey: string
  /** Time since which no node reports the allocation. */
  readonly sinceMs: number
}

/** Keeps the entries after a restart. */
export interface OwnerStore {
  saveOwner(allocationId: string, owner: AllocationOwner): void
  removeOwner(allocationId: string): void
}

/** Owners by allocation ID. */
export class AllocationOwners {
  readonly #store: OwnerStore
  readonly #byId = new Map<string, AllocationOwner>()
  /** Allocation IDs of each node, the oldest entry first. */
  readonly #byNode = new Map<string, Set<string>>()

  constructor(store: OwnerStore) {
    this.#store = store
  }

  get size(): number {
    return this.#byId.size
  }

  get(id: string): AllocationOwner | undefined {
    return this.#byId.get(id)
  }

  /** Adds stored entries, the oldest first. */
  load(stored: Iterable<{ readonly id: string; readonly owner: AllocationOwner }>): void {
    const sorted = [...stored].sort((a, b) => a.owner.sinceMs - b.owner.sinceMs)
    for (const { id, owner } of sorted) this.#insert(id, owner)
  }

  add(id: string, owner: AllocationOwner): void {
    this.delete(id)
    this.#store.saveOwner(id, owner)
    this.#insert(id, owner)
  }

  #insert(id: string, owner: AllocationOwner): void {
    this.#byId.set(id, owner)
    const ids = this.#byNode.get(owner.nodeId) ?? new Set()
    this.#byNode.set(owner.nodeId, ids.add(id))
    if (ids.size > OWNED_PER_NODE_MAX) this.#evictOldest(ids, 1)
    if (this.#byId.size <= OWNED_MAX) return
    let largest = ids
    for (const each of this.#byNode.values()) if (each.size > largest.size) largest = each
    this.#evictOldest(largest, Math.ceil(largest.size * EVICTED_PART))
  }

  #evictOldest(ids: ReadonlySet<string>, count: number): void {
    // Not from a copy: a node may evict ten thousand of its own entries with one message, one by one.
    let left = count
    for (const id of ids) {
      if (left-- <= 0) return
      this.delete(id)
    }
  }

  delete(id: string): void {
    const owner = this.#byId.get(id)
    if (!owner) return
    this.#byId.delete(id)
    const ids = this.#byNode.get(owner.nodeId)
    ids?.delete(id)
    if (ids?.size === 0) this.#byNode.delete(owner.nodeId)
    this.#store.removeOwner(id)
  }

  /** Deletes all entries of a node; returns their number. */
  deleteOfNode(nodeId: string): number {
    const ids = [...(this.#byNode.get(nodeId) ?? [])]
    for (const id of ids) this.delete(id)
    return ids.length
  }

  /** Deletes expired entries; returns their number. */
  expire(nowMs: number): number {
    let count = 0
    for (const ids of this.#byNode.values()) {
      for (const id of ids) {
        const owner = this.#byId.get(id)
        if (owner && nowMs - owner.sinceMs <= EXPIRY_MS) break
        this.delete(id)
        count++
      }
    }
    return count
  }
}
