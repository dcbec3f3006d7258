/**
 * Bounds the memory for unfinished chunks of frames. A caller collects a chunk until its end, which takes more than the window
 * of its call, so credit alone does not bound it: a node that ends no chunk could fill `CHUNK_BYTES_MAX` for each of its calls.
 *
 * What exceeds `UNCOUNTED_BYTES` of a chunk is reserved, per node. An honest host has 12 readers with chunks that large
 * (`host/files/buffers`), of less than 1 MiB each.
 */
/** Largest unfinished chunk that is not counted: two small reads of a host in base64. */
const UNCOUNTED_BYTES = 256 * 1024
/** Bytes of unfinished chunks of one node. */
const NODE_BYTES_MAX = 32 << 20

export class ChunkMemory {
  readonly #byNode = new Map<string, number>()

  /** Reserves memory for an unfinished chunk of `bytes` that holds `reserved` already. Returns what it holds then; undefined where the node has no more. */
  reserve(nodeId: string, bytes: number, reserved: number): number | undefined {
    const wanted = Math.max(reserved, bytes - UNCOUNTED_BYTES)
    if (wanted === reserved) return reserved
    const total = (this.#byNode.get(nodeId) ?? 0) + wanted - reserved
    if (total > NODE_BYTES_MAX) return undefined
    this.#byNode.set(nodeId, total)
    return wanted
  }

  release(nodeId: string, reserved: number): void {
    const left = (this.#byNode.get(nodeId) ?? 0) - reserved
    if (left > 0) this.#byNode.set(nodeId, left)
    else this.#byNode.delete(nodeId)
  }
}
