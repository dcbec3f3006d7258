/**
 * The ciphertext of an entry: AES-256-GCM with a random nonce and the path of the entry as associated data, so that a ciphertext that was
 * moved to another path cannot be decrypted there.
 *
 *     1 byte format · 4 bytes term · 12 bytes nonce · ciphertext · 16 bytes tag
 */
import { createCipheriv, createDecipheriv, type KeyObject, randomFillSync } from 'node:crypto'
import { Fault } from '../../platform/errors.ts'

const FORMAT = 1
const HEAD_BYTES = 5
const NONCE_BYTES = 12
const TAG_BYTES = 16
const OVERHEAD_BYTES = HEAD_BYTES + NONCE_BYTES + TAG_BYTES

/** A KeyObject is faster; a Buffer can be overwritten at once. */
export type CipherKey = KeyObject | Buffer

export interface TermKey {
  readonly term: number
  readonly key: CipherKey
}

/** For a key that is not a KeyObject, Node throws and catches an error; capturing its stack trace costs more than the encryption. */
function withoutStacks<T>(key: CipherKey, make: () => T): T {
  if (!Buffer.isBuffer(key)) return make()
  const limit = Error.stackTraceLimit
  Error.stackTraceLimit = 0
  try {
    return make()
  } finally {
    Error.stackTraceLimit = limit
  }
}

export function encrypt(path: string, plaintext: Uint8Array, { term, key }: TermKey): Buffer<ArrayBuffer> {
  // Not from the pool: a cached value would keep a whole slab of the pool in memory. Every byte is written below.
  const out = Buffer.allocUnsafeSlow(OVERHEAD_BYTES + plaintext.length)
  out[0] = FORMAT
  out.writeUInt32BE(term, 1)
  const nonce = freshNonce()
  out.set(nonce, HEAD_BYTES)
  const cipher = withoutStacks(key, () => createCipheriv('aes-256-gcm', key, nonce))
  cipher.setAAD(Buffer.from(path))
  out.set(cipher.update(plaintext), HEAD_BYTES + NONCE_BYTES)
  cipher.final()
  out.set(cipher.getAuthTag(), out.length - TAG_BYTES)
  return out
}

/** Generated in bulk: a call per nonce would cost as much as the encryption. Nonces are not secret; each is used once. */
const nonces = Buffer.alloc(NONCE_BYTES * 256)
let used = nonces.length

export function freshNonce(): Buffer {
  if (used === nonces.length) {
    randomFillSync(nonces)
    used = 0
  }
  used += NONCE_BYTES
  return nonces.subarray(used - NONCE_BYTES, used)
}

/** Throws a Fault for a ciphertext that was changed, moved or encrypted with another key, without details. */
export function decrypt(path: string, ciphertext: Uint8Array, keyOf: (term: number) => CipherKey | undefined): Buffer {
  const bytes = Buffer.from(ciphertext.buffer, ciphertext.byteOffset, ciphertext.length)
  if (bytes.length < OVERHEAD_BYTES || bytes[0] !== FORMAT) throw damaged(path)
  const key = keyOf(bytes.readUInt32BE(1))
  if (!key) throw damaged(path)
  const nonce = bytes.subarray(HEAD_BYTES, HEAD_BYTES + NONCE_BYTES)
  const decipher = withoutStacks(key, () => createDecipheriv('aes-256-gcm', key, nonce))
  decipher.setAAD(Buffer.from(path))
  decipher.setAuthTag(bytes.subarray(-TAG_BYTES))
  const plaintext = decipher.update(bytes.subarray(HEAD_BYTES + NONCE_BYTES, -TAG_BYTES))
  try {
    decipher.final()
  } catch (error) {
    plaintext.fill(0)
    throw damaged(path, error)
  }
  return plaintext
}

function damaged(path: string, cause?: unknown): Fault {
  return new Fault(`the entry ${path} cannot be decrypted: it is damaged, or belongs to another store`, { cause })
}
