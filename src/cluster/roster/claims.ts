/**
 * Who owns allocations that no node reports at present. The key that announced an allocation first keeps it (roster.ts);
 * when its node does not report the allocation any more, the claim of that key is remembered here, so that another node
 * cannot take the allocation's name and its callers.
 *
 * A claim ends when its node is purged, or after `REMEMBERED_MS`. The number of claims is bounded, for each node and in
 * all. Where there are too many in all, the node with the most loses its oldest ones: a node that makes up allocations
 * drives out its own claims first. Times are of the wall clock, because claims outlive the process.
 */

/** Longer than any log of a collected allocation is looked for, and than a host is usually away for repair. */
export const REMEMBERED_MS = 7 * 24 * 3600 * 1000
export const CLAIMS_PER_NODE_MAX = 10_000
export const CLAIMS_MAX = 200_000
/** Part of a node's claims that goes at once where there are too many in all: finding the node costs a look at each. */
const DROPPED_PART = 0.1

export interface Claim {
  readonly nodeId: string
  /** Raw key in base64. */
  readonly publicKey: string
  /** Since when no node reports the allocation. */
  readonly sinceMs: number
}

/** Claims by allocation ID. `save` and `remove` keep them in the database. */
export class Claims {
  readonly #save: (id: string, claim: Claim) => void
  readonly #remove: (id: string) => void
  readonly #byId = new Map<string, Claim>()
  /** Allocation IDs of each node, the oldest claim first. */
  readonly #byNode = new Map<string, Set<string>>()

  constructor(store: { saveClaim(id: string, claim: Claim): void; removeClaim(id: string): void }) {
    this.#save = (id, claim) => store.saveClaim(id, claim)
    this.#remove = (id) => store.removeClaim(id)
  }

  get size(): number {
    return this.#byId.size
  }

  get(id: string): Claim | undefined {
    return this.#byId.get(id)
  }

  /** Takes in what was saved, the oldest first. */
  load(saved: Iterable<{ readonly id: string; readonly claim: Claim }>): void {
    const sorted = [...saved].sort((a, b) => a.claim.sinceMs - b.claim.sinceMs)
    for (const { id, claim } of sorted) this.#keep(id, claim)
  }

  add(id: string, claim: Claim): void {
    this.delete(id)
    this.#save(id, claim)
    this.#keep(id, claim)
  }

  #keep(id: string, claim: Claim): void {
    this.#byId.set(id, claim)
    const ids = this.#byNode.get(claim.nodeId) ?? new Set()
    this.#byNode.set(claim.nodeId, ids.add(id))
    if (ids.size > CLAIMS_PER_NODE_MAX) this.#dropOldest(ids, 1)
    if (this.#byId.size <= CLAIMS_MAX) return
    let most = ids
    for (const each of this.#byNode.values()) if (each.size > most.size) most = each
    this.#dropOldest(most, Math.ceil(most.size * DROPPED_PART))
  }

  #dropOldest(ids: ReadonlySet<string>, count: number): void {
    // Not by a copy: a node may drive out ten thousand of its own with one message, one by one.
    let left = count
    for (const id of ids) {
      if (left-- <= 0) return
      this.delete(id)
    }
  }

  delete(id: string): void {
    const claim = this.#byId.get(id)
    if (!claim) return
    this.#byId.delete(id)
    const ids = this.#byNode.get(claim.nodeId)
    ids?.delete(id)
    if (ids?.size === 0) this.#byNode.delete(claim.nodeId)
    this.#remove(id)
  }

  /** Ends all claims of a node; returns how many there were. */
  deleteOf(nodeId: string): number {
    const ids = [...(this.#byNode.get(nodeId) ?? [])]
    for (const id of ids) this.delete(id)
    return ids.length
  }

  /** Ends the claims that are too old; returns how many there were. */
  expire(nowMs: number): number {
    let count = 0
    for (const ids of this.#byNode.values()) {
      for (const id of ids) {
        const claim = this.#byId.get(id)
        if (claim && nowMs - claim.sinceMs <= REMEMBERED_MS) break
        this.delete(id)
        count++
      }
    }
    return count
  }
}
