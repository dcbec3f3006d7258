/**
 * Merges the streams of many nodes into one. Chunks of one stream keep their order; between nodes the round-robin queue
 * decides. A slow consumer slows the producers down, and a quiet producer costs nothing.
 */
import { RoundRobinQueue } from './node-queue.ts'

export class MergedStreams {
  readonly #queue = new RoundRobinQueue()
  #running = 0
  #wake: (() => void) | undefined

  /** True while a producer runs or a chunk is queued. */
  get isActive(): boolean {
    return this.#running > 0 || this.#queue.length > 0
  }

  /** Starts a producer, which calls `put` and reports its own errors. */
  run(producer: () => Promise<void>): void {
    this.#running++
    const end = () => {
      this.#running--
      this.wake()
    }
    void producer().then(end, end)
  }

  /** Resolves to true when the producer may go on, to false when the consumer has gone. */
  put(chunk: Buffer, nodeId: string): Promise<boolean> {
    const accepted = this.#queue.put(nodeId, chunk)
    if (chunk.length > 0) this.wake()
    return accepted
  }

  /** The next chunk; undefined when none comes within the time, or after `wake`. */
  async next(withinMs: number): Promise<Buffer | undefined> {
    if (this.#queue.length === 0) await this.#wait(withinMs)
    return this.#queue.take()
  }

  /** Ends the wait of `next`. */
  wake(): void {
    this.#wake?.()
  }

  #wait(withinMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, withinMs).unref()
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  /** The consumer has gone: producers get false. */
  close(): void {
    this.#queue.close()
  }
}
