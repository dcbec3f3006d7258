/**
 * Slots shared among nodes: for the logs of a job that are followed at once, and for concurrent calls. A node decides itself how many
 * slots it asks for, so one that asks for thousands must not exclude the others. While slots are free, every node gets
 * what it asks for, up to a limit for each. When none is free, a node that holds fewer slots than another gets one of the node
 * that holds most. A node that holds no more than an equal share loses none.
 */

/** One slot. */
export interface Slot {
  readonly nodeId: string
}

interface HeldSlot extends Slot {
  readonly onLost: () => void
}

export class NodeShares {
  readonly #slots: number
  readonly #slotsPerNode: number
  /** Of each node, in the order in which they were acquired. */
  readonly #held = new Map<string, HeldSlot[]>()
  #count = 0

  constructor({ slots, slotsPerNode = slots }: { readonly slots: number; readonly slotsPerNode?: number }) {
    this.#slots = slots
    this.#slotsPerNode = slotsPerNode
  }

  /** Undefined when there is no slot for this node. `onLost` is called when another node has got it; it must not throw. */
  acquire(nodeId: string, onLost: () => void): Slot | undefined {
    if ((this.#held.get(nodeId)?.length ?? 0) >= this.#slotsPerNode) return undefined
    if (this.#count >= this.#slots && !this.#evictFor(nodeId)) return undefined
    const slot = { nodeId, onLost }
    const held = this.#held.get(nodeId)
    if (held) held.push(slot)
    else this.#held.set(nodeId, [slot])
    this.#count++
    return slot
  }

  /** Idempotent; also for a slot that was lost. */
  release(slot: Slot): void {
    const held = this.#held.get(slot.nodeId) ?? []
    const at = held.findIndex((each) => each === slot)
    if (at >= 0) this.#remove(held, at)
  }

  #evictFor(nodeId: string): boolean {
    let largest: HeldSlot[] = []
    for (const held of this.#held.values()) if (held.length > largest.length) largest = held
    const own = this.#held.get(nodeId)?.length ?? 0
    if (largest.length <= own + 1) return false
    this.#remove(largest, largest.length - 1)?.onLost()
    return true
  }

  #remove(held: HeldSlot[], at: number): HeldSlot | undefined {
    const [slot] = held.splice(at, 1)
    if (!slot) return undefined
    this.#count--
    if (held.length === 0) this.#held.delete(slot.nodeId)
    return slot
  }
}
