/**
 * Places for the logs of a job that are followed at once, shared among its nodes. Which allocations a job has, its nodes say: one that
 * announces thousands must take no place from the others. So while there is room everybody gets in, and when there is none, a
 * node that has fewer places than another gets one of that one's. Nodes with no more than an equal share lose nothing.
 */

/** One place. */
export interface Place {
  readonly nodeId: string
  readonly allocationId: string
  /** Aborts when the place is lost or given back. */
  readonly signal: AbortSignal
  /** True once another node has got the place. */
  readonly isLost: boolean
}

class HeldPlace implements Place {
  readonly nodeId: string
  readonly allocationId: string
  isLost = false
  readonly #abort = new AbortController()

  constructor(nodeId: string, allocationId: string) {
    this.nodeId = nodeId
    this.allocationId = allocationId
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  end(): void {
    this.#abort.abort()
  }
}

export class NodeShares {
  readonly #max: number
  /** Of each node, in the order in which they were taken. */
  readonly #held = new Map<string, HeldPlace[]>()
  #count = 0

  constructor(max: number) {
    this.#max = max
  }

  /** Undefined when there is no place for this node. */
  enter(nodeId: string, allocationId: string): Place | undefined {
    if (this.#count >= this.#max && !this.#makeRoom(nodeId)) return undefined
    const place = new HeldPlace(nodeId, allocationId)
    const held = this.#held.get(nodeId)
    if (held) held.push(place)
    else this.#held.set(nodeId, [place])
    this.#count++
    return place
  }

  /** May be called more than once. */
  leave({ allocationId, nodeId }: Place): void {
    const held = this.#held.get(nodeId) ?? []
    const at = held.findIndex((each) => each.allocationId === allocationId)
    if (at >= 0) this.#end(held, at)
  }

  /** Ends all. */
  close(): void {
    for (const held of this.#held.values()) for (const place of held) place.end()
    this.#held.clear()
    this.#count = 0
  }

  #makeRoom(nodeId: string): boolean {
    let most: HeldPlace[] = []
    for (const held of this.#held.values()) if (held.length > most.length) most = held
    const own = this.#held.get(nodeId)?.length ?? 0
    const last = most.at(-1)
    if (!last || most.length <= own + 1) return false
    last.isLost = true
    this.#end(most, most.length - 1)
    return true
  }

  #end(held: HeldPlace[], at: number): void {
    const [place] = held.splice(at, 1)
    if (!place) return
    this.#count--
    if (held.length === 0) this.#held.delete(place.nodeId)
    place.end()
  }
}
