/**
 * A deficit round-robin queue of byte chunks: many producers, one consumer, and a bounded queue for each node. A turn of a node is
 * worth `QUANTUM_BYTES`; a node with a larger chunk skips turns until the deficit is paid. So the share of a node depends neither on
 * the number of its producers nor on the size of its chunks.
 *
 * `put` queues its chunk at once. It resolves at once while the queue is within its limits, otherwise when the consumer takes this
 * chunk. So a producer waits only for a chunk that is in the queue, and the consumer never waits while a producer does.
 *
 * Promises: the chunks of a node keep their order. Memory is bounded by `TOTAL_BYTES_MAX` (of one node: `NODE_BYTES_MAX`) and one
 * chunk for each producer. Assumes that a producer puts its next chunk after `put` has resolved.
 */

/** Bytes that are queued without back-pressure: of one node and of all nodes. */
export const NODE_BYTES_MAX: number = 256 * 1024
export const TOTAL_BYTES_MAX: number = 1 << 20
/** About one frame of a log. */
const QUANTUM_BYTES = 64 * 1024

interface QueuedChunk {
  readonly chunk: Buffer
  /** Present while its producer waits. */
  readonly resolve: ((isOpen: boolean) => void) | undefined
}

interface NodeQueue {
  readonly chunks: QueuedChunk[]
  bytes: number
  /** Bytes that the node may send in this turn; negative if it has sent more. */
  deficit: number
}

export class DeficitRoundRobinQueue {
  /** In the order of their turns. A node without chunks stays until its deficit is paid. */
  readonly #nodes = new Map<string, NodeQueue>()
  #length = 0
  #bytes = 0
  #isClosed = false
  #wake: (() => void) | undefined

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
    const queue = this.#nodes.get(nodeId) ?? { chunks: [], bytes: 0, deficit: QUANTUM_BYTES }
    this.#nodes.set(nodeId, queue)
    queue.bytes += chunk.length
    this.#bytes += chunk.length
    this.#length++
    this.wake()
    const { promise, resolve } = Promise.withResolvers<boolean>()
    const isFull = queue.bytes > NODE_BYTES_MAX || this.#bytes > TOTAL_BYTES_MAX
    queue.chunks.push({ chunk, resolve: isFull ? resolve : undefined })
    return isFull ? promise : Promise.resolve(true)
  }

  /** The next chunk; undefined if the queue is empty. */
  take(): Buffer | undefined {
    if (this.#length === 0) return undefined
    for (;;) {
      const [first] = this.#nodes
      if (!first) return undefined
      const [nodeId, queue] = first
      const next = queue.deficit > 0 ? queue.chunks.shift() : undefined
      if (next) {
        const { length } = next.chunk
        queue.bytes -= length
        queue.deficit -= length
        this.#bytes -= length
        this.#length--
      }
      if (queue.deficit <= 0 || !next) this.#endTurn(nodeId, queue)
      else if (queue.chunks.length === 0) this.#nodes.delete(nodeId)
      if (!next) continue
      next.resolve?.(true)
      return next.chunk
    }
  }

  #endTurn(nodeId: string, queue: NodeQueue): void {
    this.#nodes.delete(nodeId)
    queue.deficit += QUANTUM_BYTES
    if (queue.chunks.length > 0 || queue.deficit < QUANTUM_BYTES) this.#nodes.set(nodeId, queue)
  }

  /** As `take`, but waits for a chunk until the timeout, or until `wake` is called. */
  async next(timeoutMs: number): Promise<Buffer | undefined> {
    if (this.#length === 0) {
      const { promise, resolve } = Promise.withResolvers<void>()
      const timer = setTimeout(resolve, timeoutMs).unref()
      this.#wake = resolve
      await promise
      clearTimeout(timer)
    }
    return this.take()
  }

  /** Ends the wait of `next`. */
  wake(): void {
    this.#wake?.()
  }

  /** Drops queued chunks; waiting producers get false. */
  close(): void {
    this.#isClosed = true
    for (const { chunks } of this.#nodes.values()) for (const { resolve } of chunks) resolve?.(false)
    this.#nodes.clear()
    this.#length = 0
    this.#bytes = 0
  }
}
