/**
 * Memory for messages that are on their way: what a link was given stays as it is until the other side has it. Then it is
 * used again, because memory that is asked for anew with every chunk costs more than all the rest of a call.
 */

/** Data that is put into messages at once. */
export const STAGED_BYTES_MAX = 256 * 1024
/** Below this the memory is not worth keeping. */
const KEPT_BYTES_MIN = 128 * 1024

interface Lent {
  readonly memory: Buffer
  /** Free when so many bytes of the stream have been taken. */
  readonly until: number
}

export class Staging {
  readonly #lent: Lent[] = []
  readonly #free: Buffer[] = []

  /** Memory for messages whose data ends at `until` in the stream. */
  lend(bytes: number, until: number): Buffer {
    if (bytes < KEPT_BYTES_MIN) return Buffer.allocUnsafeSlow(bytes)
    const kept = this.#free.pop()
    // Bursts are of one size nearly always; a smaller buffer is not worth looking for its like.
    const memory = kept && kept.length >= bytes ? kept : Buffer.allocUnsafeSlow(bytes)
    this.#lent.push({ memory, until })
    return memory
  }

  /** The other side has taken so many bytes of the stream. */
  release(taken: number): void {
    for (let [first] = this.#lent; first && first.until <= taken; [first] = this.#lent) {
      this.#lent.shift()
      this.#free.push(first.memory)
    }
  }
}
