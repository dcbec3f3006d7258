/**
 * Codes of texts under keys that are derived from the keyring's set key, one key for each purpose. A key is derived once for
 * as long as the same set key is in use, because deriving it costs more than the code.
 */
import { createHmac, hkdfSync } from 'node:crypto'
import { KEY_BYTES } from './keyring.ts'

/** HKDF-SHA-256 of the set key; for the caller to overwrite. */
export function derivedKey(setKey: Buffer, purpose: string): Buffer {
  return Buffer.from(hkdfSync('sha256', setKey, '', purpose, KEY_BYTES))
}

export class PurposeCodes {
  readonly #keys = new Map<string, Buffer>()
  /** What the keys were derived from: another object means another set key. */
  #source: object | undefined

  /** HMAC-SHA-256, 32 bytes. `source` identifies the set key; `derive` is called only where a key must be derived. */
  codeOf(source: object, derive: () => Buffer, purpose: string, text: string): Buffer {
    if (this.#source !== source) this.clear()
    this.#source = source
    let key = this.#keys.get(purpose)
    if (!key) this.#keys.set(purpose, (key = derive()))
    return createHmac('sha256', key).update(text).digest()
  }

  /** Overwrites the keys. */
  clear(): void {
    for (const key of this.#keys.values()) key.fill(0)
    this.#keys.clear()
    this.#source = undefined
  }
}
