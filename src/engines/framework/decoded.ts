import { KnownOf } from '../../platform/passing.ts'

/** Entries that are read often and change seldom are decoded once: as long as one is the same buffer, it is the same value. */

/** Turns entries into values and back. Values are shared: nobody may change one. */
export class Decoded<T extends object> {
  readonly #known = new KnownOf<Buffer, T>()
  readonly #decode: (bytes: Buffer) => T
  readonly #encode: (value: T) => Buffer

  /** `decode` is not asked about a buffer that is known. */
  constructor(decode: (bytes: Buffer) => T, encode: (value: T) => Buffer) {
    this.#decode = decode
    this.#encode = encode
  }

  of(bytes: Buffer): T {
    let value = this.#known.get(bytes)
    if (value === undefined) this.#known.keep(bytes, (value = this.#decode(bytes)))
    return value
  }

  /** The value as an entry: who is given the same buffer back soon needs not decode it. */
  bytes(value: T): Buffer {
    const bytes = this.#encode(value)
    this.#known.note(bytes, value)
    return bytes
  }
}
