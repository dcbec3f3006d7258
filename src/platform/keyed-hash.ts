/**
 * HMAC-SHA-256 (RFC 2104) for names: of entries, of tokens, of secrets in the access log. Built of two one-shot hashes
 * because Node's `createHmac` costs several times as much, and each request needs a few of them (bench/secrets.ts).
 */
import { hash } from 'node:crypto'

const BLOCK_BYTES = 64
const DIGEST_BYTES = 32
const [INNER, OUTER] = [0x36, 0x5c]
/** Texts of up to this size are hashed in a reused buffer. */
const REUSED_BYTES = 1024
/** Maximum number of cached digests; the full cache is cleared. */
const NAMES_MAX = 2048
const NAME_LENGTH_MAX = 256

export class KeyedHash {
  /** The padded key, followed by space for a text. */
  readonly #inner: Buffer
  /** Views of the beginning of `#inner`, by length. */
  readonly #views: (Buffer | undefined)[] = []
  /** The padded key, followed by space for the inner hash. */
  readonly #outer: Buffer
  readonly #names = new Map<string, string>()

  /** `key` has at most 64 bytes; it is copied. */
  constructor(key: Buffer) {
    if (key.length > BLOCK_BYTES) throw new RangeError('the key of a keyed hash can have at most 64 bytes')
    this.#inner = Buffer.alloc(BLOCK_BYTES + REUSED_BYTES, 0)
    this.#outer = Buffer.alloc(BLOCK_BYTES + DIGEST_BYTES, 0)
    for (let at = 0; at < BLOCK_BYTES; at++) {
      this.#inner[at] = (key[at] ?? 0) ^ INNER
      this.#outer[at] = (key[at] ?? 0) ^ OUTER
    }
  }

  /** The digest in base64url, cached for repeated texts. */
  name(text: string): string {
    let name = this.#names.get(text)
    if (name !== undefined) return name
    name = this.digest(text, 'base64url')
    if (text.length > NAME_LENGTH_MAX) return name
    if (this.#names.size >= NAMES_MAX) this.#names.clear()
    this.#names.set(text, name)
    return name
  }

  digest(text: string, encoding: 'hex' | 'base64url'): string {
    // A string, because allocating a buffer costs more than the hash.
    this.#outer.write(hash('sha256', this.#block(text), 'binary'), BLOCK_BYTES, 'latin1')
    return hash('sha256', this.#outer, encoding)
  }

  #block(text: string): Buffer {
    // A character has at most three bytes of UTF-8.
    if (text.length * 3 <= REUSED_BYTES) {
      const length = BLOCK_BYTES + this.#inner.write(text, BLOCK_BYTES)
      // Most texts have one of a few lengths, and creating a view costs a sixth of the hash.
      return (this.#views[length] ??= this.#inner.subarray(0, length))
    }
    return Buffer.concat([this.#inner.subarray(0, BLOCK_BYTES), Buffer.from(text)])
  }

  /** Overwrites the key, and what was hashed last. */
  close(): void {
    this.#names.clear()
    this.#inner.fill(0)
    this.#outer.fill(0)
  }
}
