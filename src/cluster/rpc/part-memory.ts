/**
 * Memory for answers that are handed on in one piece. Asked for anew each time it would be a matter for the large
 * collections of garbage, because it lives as long as its caller takes to read: these cost a third of the work for parts
 * of files.
 */
import { FIRST_BYTES } from './window.ts'

/** So many callers at once find what others have used; it is what this holds at most, in pieces of `FIRST_BYTES`. */
const KEPT_MAX = 32
/** Below this Node cuts buffers out of larger ones, which is quick. */
const LENT_BYTES_MIN = 4096

export class PartMemory {
  readonly #free: Buffer[] = []

  /** Room for so many bytes, `FIRST_BYTES` at most; undefined for what is too little to be lent. */
  lend(bytes: number): Buffer | undefined {
    if (bytes < LENT_BYTES_MIN || bytes > FIRST_BYTES) return undefined
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(FIRST_BYTES)
  }

  /** Nobody looks at it any more. */
  giveBack(memory: Buffer): void {
    if (this.#free.length < KEPT_MAX) this.#free.push(memory)
  }
}
