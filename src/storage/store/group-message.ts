/** Batches that were queued while the writer was busy. They are sent as one message in one buffer: a message costs more than a small batch. */
import { type Batch, type BatchScope, decodeBatch, writeBatch } from '../sqlite/batch.ts'

/** The message to the writer: concatenated batches and their lengths. */
export interface EncodedGroup {
  /** ID of the first batch; the others have consecutive IDs. */
  readonly id: number
  readonly bytes: ArrayBuffer
  readonly lengths: readonly number[]
  /** Epoch in which they were queued. The writer refuses any other epoch than the store's. */
  readonly epoch: number
  /** Generation in which they were queued, see `queue/writer-queue.ts`. */
  readonly generation: number
}

/** Limits of one group; a single batch may be larger. */
const GROUP_MAX = 256
const GROUP_BYTES_MAX = 4 << 20

/** The batches of a group have the same scope. */
export class WriteGroup {
  readonly id: number
  readonly epoch: number
  readonly generation: number
  readonly scope: BatchScope
  readonly #batches: Batch[] = []
  #bytes = 0

  constructor({ id, epoch, generation, scope }: Pick<WriteGroup, 'id' | 'epoch' | 'generation' | 'scope'>) {
    this.id = id
    this.epoch = epoch
    this.generation = generation
    this.scope = scope
  }

  /** `bytesMax`: the result of `checkBatch`. */
  add(batch: Batch, bytesMax: number): void {
    this.#batches.push(batch)
    this.#bytes += bytesMax
  }

  get isFull(): boolean {
    return this.#batches.length >= GROUP_MAX || this.#bytes >= GROUP_BYTES_MAX
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

/** The batches of a group, as views of its buffer. */
export function* batchesIn({ bytes, lengths }: Pick<EncodedGroup, 'bytes' | 'lengths'>): Generator<Uint8Array> {
  let at = 0
  for (const length of lengths) {
    yield new Uint8Array(bytes, at, length)
    at += length
  }
}

/** All batches of the groups, in order. Throws MalformedBatch. */
export function decodedBatches(groups: readonly Pick<EncodedGroup, 'bytes' | 'lengths'>[]): Batch[] {
  return groups.flatMap((group) => Array.from(batchesIn(group), decodeBatch))
}
