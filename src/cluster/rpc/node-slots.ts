/**
 * A fixed number of slots that nodes share: for logs of a job that are followed, and for concurrent calls of hosts. A node
 * chooses how many slots it requests, so one that requests thousands must not exclude the others. While slots are free, a
 * node gets what it requests, up to a limit for each node. Then a node that holds fewer slots than another one gets a slot of the
 * node that holds most. A node that holds no more than an equal share loses none.
 */

export interface NodeSlot {
  readonly nodeId: string
}

interface HeldSlot extends NodeSlot {
  readonly onLost: () => void
}

export class NodeSlots {
  readonly #slots: number
  readonly #slotsPerNode: number
  /** Slots of each node, in the order of acquisition. */
  readonly #held = new Map<string, HeldSlot[]>()
  #count = 0

  constructor({ slots, slotsPerNode = slots }: { readonly slots: number; readonly slotsPerNode?: number }) {
    this.#slots = slots
    this.#slotsPerNode = slotsPerNode
  }

  /** Undefined if there is no slot for this node. `onLost` is called when another node gets the slot; it must not throw. */
  acquire(nodeId: string, onLost: () => void): NodeSlot | undefined {
    if ((this.#held.get(nodeId)?.length ?? 0) >= this.#slotsPerNode) return undefined
    if (this.#count >= this.#slots && !this.#evictFor(nodeId)) return undefined
    const slot = { nodeId, onLost }
    const held = this.#held.get(nodeId)
    if (held) held.push(slot)
    else this.#held.set(nodeId, [slot])
    this.#count++
    return slot
  }

  /** Idempotent, also for a slot that was lost. */
  release(slot: NodeSlot): void {
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
