/**
 * Places of which there are so many, shared among nodes: for the logs of a job that are followed at once, for calls under way. How
 * many a node asks for, it says itself: one that asks for thousands must take none from the others. So while there is room everybody
 * gets in, up to a limit for each, and when there is none, a node that has fewer places than another gets one of that
 * one's. Nodes with no more than an equal share lose nothing.
 */

/** One place. */
export interface Place {
  readonly nodeId: string
}

interface HeldPlace extends Place {
  readonly lose: () => void
}

export class NodeShares {
  readonly #most: number
  readonly #mostOfNode: number
  /** Of each node, in the order in which they were taken. */
  readonly #held = new Map<string, HeldPlace[]>()
  #count = 0

  constructor({ most, mostOfNode = most }: { readonly most: number; readonly mostOfNode?: number }) {
    this.#most = most
    this.#mostOfNode = mostOfNode
  }

  /** Undefined when there is no place for this node. `lose` is called when another node has got it; it must not throw. */
  enter(nodeId: string, lose: () => void): Place | undefined {
    if ((this.#held.get(nodeId)?.length ?? 0) >= this.#mostOfNode) return undefined
    if (this.#count >= this.#most && !this.#makeRoom(nodeId)) return undefined
    const place = { nodeId, lose }
    const held = this.#held.get(nodeId)
    if (held) held.push(place)
    else this.#held.set(nodeId, [place])
    this.#count++
    return place
  }

  /** May be called more than once, and for a place that was lost. */
  leave(place: Place): void {
    const held = this.#held.get(place.nodeId) ?? []
    const at = held.findIndex((each) => each === place)
    if (at >= 0) this.#end(held, at)
  }

  #makeRoom(nodeId: string): boolean {
    let most: HeldPlace[] = []
    for (const held of this.#held.values()) if (held.length > most.length) most = held
    const own = this.#held.get(nodeId)?.length ?? 0
    if (most.length <= own + 1) return false
    this.#end(most, most.length - 1)?.lose()
    return true
  }

  #end(held: HeldPlace[], at: number): HeldPlace | undefined {
    const [place] = held.splice(at, 1)
    if (!place) return undefined
    this.#count--
    if (held.length === 0) this.#held.delete(place.nodeId)
    return place
  }
}
