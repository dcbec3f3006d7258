/**
 * Batches that were made while the writer was busy: they go to it as one message, in one piece of memory, because a
 * message costs more than a small batch does.
 */
import { type Batch, writeBatch } from '../sqlite/batch.ts'

/** What the writer gets: the batches one behind the other, and how long each of them is. */
export interface EncodedGroup {
  /** ID of the first; the others follow upon it. */
  readonly id: number
  readonly bytes: ArrayBuffer
  readonly lengths: readonly number[]
  /** The epoch that their authors believe in; another one than the store's is refused. */
  readonly epoch: number
  /** In which they were made, see `writer-queue.ts`. */
  readonly generation: number
}

export class WriteGroup {
  readonly id: number
  readonly epoch: number
  readonly generation: number
  readonly #batches: Batch[] = []
  #bytes = 0

  constructor(id: number, epoch: number, generation: number) {
    this.id = id
    this.epoch = epoch
    this.generation = generation
  }

  /** `bytesMax`: what `checkBatch` says of it. */
  add(batch: Batch, bytesMax: number): void {
    this.#batches.push(batch)
    this.#bytes += bytesMax
  }

  get length(): number {
    return this.#batches.length
  }

  get bytes(): number {
    return this.#bytes
  }

  encode(): EncodedGroup {
    const { epoch, generation, id } = this
    const bytes = new ArrayBuffer(this.#bytes)
    const out = Buffer.from(bytes)
    const lengths: number[] = []
    let at = 0
    for (const batch of this.#batches) {
      const end = writeBatch(batch, out, at)
      lengths.push(end - at)
      at = end
    }
    return { id, bytes, lengths, epoch, generation }
  }
}

/** The batches of a group, in it. */
export function* batchesIn({ bytes, lengths }: EncodedGroup): Generator<Uint8Array> {
  let at = 0
  for (const length of lengths) {
    yield new Uint8Array(bytes, at, length)
    at += length
  }
}
