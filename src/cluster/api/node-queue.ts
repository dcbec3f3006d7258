/**
 * A bounded queue per node, served by deficit round-robin: many producers, one consumer. Each turn of a node is worth
 * `QUANTUM_BYTES`; a node that sends a larger chunk skips turns until it has paid for it. So the share of a node depends neither on
 * the number of its producers nor on the size of its chunks.
 *
 * `put` queues its chunk at once. It resolves at once while the queue is within its bounds, and when the consumer takes that
 * chunk otherwise. A producer therefore waits only for a chunk that is in the queue: there is no admission that could be
 * lost, and the consumer never finds an empty queue while a producer waits.
 *
 * Promises: the chunks of one node come out in the order in which they were put. Memory is bounded by `TOTAL_BYTES_MAX` (of one
 * node: `NODE_BYTES_MAX`) and one chunk for each producer. Assumes that a producer puts its next chunk only after `put`
 * has resolved.
 */

/** Bytes that may be queued without back-pressure: of one node and of all of them. */
export const NODE_BYTES_MAX: number = 256 * 1024
export const TOTAL_BYTES_MAX: number = 1 << 20
/** About one frame of a log. */
const QUANTUM_BYTES = 64 * 1024

interface Entry {
  readonly chunk: Buffer
  /** Present while its producer waits. */
  readonly resolve: ((wasTaken: boolean) => void) | undefined
}

interface NodeQueue {
  readonly entries: Entry[]
  bytes: number
  /** Bytes that the node may send in this turn; negative when it has sent more. */
  deficit: number
}

export class RoundRobinQueue {
  /** In rotation order: the first is served next. A node without entries stays until its deficit is paid. */
  readonly #nodes = new Map<string, NodeQueue>()
  #length = 0
  #bytes = 0
  #isClosed = false

  /** Queued chunks. */
  get length(): number {
    return this.#length
  }

  /** Queued bytes. */
  get bytes(): number {
    return this.#bytes
  }

  /** Resolves to true when the next chunk may be put, to false when the queue is closed. Empty chunks are dropped. */
  put(nodeId: string, chunk: Buffer): Promise<boolean> {
    if (this.#isClosed || chunk.length === 0) return Promise.resolve(!this.#isClosed)
    const queue = this.#nodes.get(nodeId) ?? { entries: [], bytes: 0, deficit: QUANTUM_BYTES }
    this.#nodes.set(nodeId, queue)
    queue.bytes += chunk.length
    this.#bytes += chunk.length
    this.#length++
    const isFull = queue.bytes > NODE_BYTES_MAX || this.#bytes > TOTAL_BYTES_MAX
    if (!isFull) {
      queue.entries.push({ chunk, resolve: undefined })
      return Promise.resolve(true)
    }
    return new Promise((resolve) => queue.entries.push({ chunk, resolve }))
  }

  /** The next chunk; undefined when the queue is empty. */
  take(): Buffer | undefined {
    if (this.#length === 0) return undefined
    for (;;) {
      const [first] = this.#nodes
      if (!first) return undefined
      const [nodeId, queue] = first
      const entry = queue.deficit > 0 ? queue.entries.shift() : undefined
      if (entry) {
        this.#dequeued(queue, entry)
        if (queue.deficit <= 0) this.#endTurn(nodeId, queue)
        else if (queue.entries.length === 0) this.#nodes.delete(nodeId)
        entry.resolve?.(true)
        return entry.chunk
      }
      this.#endTurn(nodeId, queue)
    }
  }

  #dequeued(queue: NodeQueue, { chunk }: Entry): void {
    queue.bytes -= chunk.length
    queue.deficit -= chunk.length
    this.#bytes -= chunk.length
    this.#length--
  }

  /** To the end of the rotation. */
  #endTurn(nodeId: string, queue: NodeQueue): void {
    this.#nodes.delete(nodeId)
    queue.deficit += QUANTUM_BYTES
    if (queue.entries.length > 0 || queue.deficit < QUANTUM_BYTES) this.#nodes.set(nodeId, queue)
  }

  /** Drops what is queued; producers that wait get false. */
  close(): void {
    this.#isClosed = true
    for (const { entries } of this.#nodes.values()) for (const { resolve } of entries) resolve?.(false)
    this.#nodes.clear()
    this.#length = 0
    this.#bytes = 0
  }
}
