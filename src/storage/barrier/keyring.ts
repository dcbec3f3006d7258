/**
 * The keyring: the keys that encrypt entries, its entry in the store, and keys derived from it. The active key has the highest *term*;
 * older keys only decrypt, so a rotation does not rewrite entries. The ring is stored encrypted with the root key.
 */
import { createHmac, createSecretKey, hkdfSync, type KeyObject, randomBytes } from 'node:crypto'
import * as v from 'valibot'
import { Fault } from '../../platform/errors.ts'
import type { Put } from '../sqlite/batch.ts'
import { decrypt, encrypt } from './cipher.ts'

export const KEY_BYTES = 32

const ringSchema = v.object({
  format: v.literal(1),
  keys: v.pipe(
    v.array(
      v.object({
        term: v.pipe(v.number(), v.safeInteger(), v.minValue(1), v.maxValue(0xff_ff_ff_ff)),
        key: v.pipe(v.string(), v.base64()),
        installedAtMs: v.number(),
      }),
    ),
    v.minLength(1),
  ),
  /** Key of the entry set (`entry-set.ts`); absent in rings of older versions. */
  setKey: v.optional(v.pipe(v.string(), v.base64())),
})

export interface RingKey {
  readonly term: number
  /** `KEY_BYTES` bytes. Filled with zeros when the ring is closed. */
  readonly key: Buffer
  readonly installedAtMs: number
}

/** A KeyObject is the fastest form. Its memory is overwritten when it is freed, see `forced-gc.ts`. */
export interface ReadyKey {
  readonly term: number
  readonly key: KeyObject
}

function readyKeyOf({ key, term }: RingKey): ReadyKey {
  return { term, key: createSecretKey(key) }
}

export class Keyring {
  readonly #keys: ReadonlyMap<number, RingKey>
  readonly #ready = new Map<number, ReadyKey>()
  readonly active: RingKey
  /** Key of the entry set, unchanged by a rotation. Filled with zeros when the ring is closed. */
  readonly setKey: Buffer | undefined
  #isClosed = false

  private constructor(keys: readonly RingKey[], setKey: Buffer | undefined) {
    const active = keys.reduce((a, b) => (a.term > b.term ? a : b))
    this.#keys = new Map(keys.map((key) => [key.term, key]))
    this.active = active
    this.setKey = setKey
  }

  /** A ring with one new key. */
  static fresh(nowMs: number): Keyring {
    return new Keyring([{ term: 1, key: randomBytes(KEY_BYTES), installedAtMs: nowMs }], randomBytes(KEY_BYTES))
  }

  /** The same keys with a new key for the entry set. */
  withSetKey(): Keyring {
    return new Keyring([...this.#keys.values()], randomBytes(KEY_BYTES))
  }

  /** The same keys and a new active key of the next term. */
  rotated(nowMs: number): Keyring {
    const next = { term: this.active.term + 1, key: randomBytes(KEY_BYTES), installedAtMs: nowMs }
    return new Keyring([...this.#keys.values(), next], this.setKey)
  }

  /** The decryption key of a term. */
  key(term: number): KeyObject | undefined {
    return this.#readyKey(this.#keys.get(term))?.key
  }

  /** The encryption key. Throws once the ring is closed. */
  get activeKey(): ReadyKey {
    const key = this.#readyKey(this.active)
    if (!key) throw new Fault('the keyring is closed')
    return key
  }

  #readyKey(key: RingKey | undefined): ReadyKey | undefined {
    if (!key || this.#isClosed) return undefined
    let ready = this.#ready.get(key.term)
    if (!ready) this.#ready.set(key.term, (ready = readyKeyOf(key)))
    return ready
  }

  /** Plaintext, which the caller encrypts and overwrites. */
  encode(): Buffer {
    const keys = [...this.#keys.values()].map(({ term, key, installedAtMs }) => ({
      term,
      key: key.toString('base64'),
      installedAtMs,
    }))
    return Buffer.from(JSON.stringify({ format: 1, keys, setKey: this.setKey?.toString('base64') }))
  }

  static decode(plaintext: Buffer): Keyring {
    const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), ringSchema), plaintext.toString('utf8'))
    // The details of a parse error would contain a part of the ring.
    if (!parsed.success) throw new Fault('the keyring is damaged')
    const keys = parsed.output.keys.map(({ term, key, installedAtMs }) => {
      return { term, key: Buffer.from(key, 'base64'), installedAtMs }
    })
    const setKey = parsed.output.setKey === undefined ? undefined : Buffer.from(parsed.output.setKey, 'base64')
    const isWhole = [...keys.map(({ key }) => key), ...(setKey ? [setKey] : [])].every(
      ({ length }) => length === KEY_BYTES,
    )
    if (!isWhole) throw new Fault('the keyring is damaged')
    return new Keyring(keys, setKey)
  }

  /** Overwrites all keys. */
  close(): void {
    this.#isClosed = true
    this.#ready.clear()
    for (const { key } of this.#keys.values()) key.fill(0)
    this.setKey?.fill(0)
  }
}

export const KEYRING_PATH = 'core/keyring'
/** Term of the root key in the ciphertext of the ring; ring keys start at 1. */
const ROOT_TERM = 0

/** The key does not open this barrier. Has no details. */
export class WrongKey extends Fault {}

/** Decrypts a ring; undefined for the wrong key. Throws a Fault for a ring that is damaged inside. */
export function openRing(value: Uint8Array, rootKey: Buffer): Keyring | undefined {
  if (rootKey.length !== KEY_BYTES) return undefined
  let plaintext: Buffer
  try {
    plaintext = decrypt(KEYRING_PATH, value, (term) => (term === ROOT_TERM ? rootKey : undefined))
  } catch {
    return undefined
  }
  const ring = Keyring.decode(plaintext)
  plaintext.fill(0)
  return ring
}

export function ringEntry(ring: Keyring, rootKey: Buffer): Put {
  if (rootKey.length !== KEY_BYTES) throw new Fault('a root key has 32 bytes')
  const plaintext = ring.encode()
  const value = encrypt(KEYRING_PATH, plaintext, { term: ROOT_TERM, key: rootKey })
  plaintext.fill(0)
  return { path: KEYRING_PATH, value }
}

/** HKDF-SHA-256 of the set key. The caller overwrites it. */
export function derivedKey(setKey: Buffer, purpose: string): Buffer {
  return Buffer.from(hkdfSync('sha256', setKey, '', purpose, KEY_BYTES))
}

/** MACs under keys that are derived from the set key, one for each purpose. The derived keys are cached: derivation costs more than a MAC. */
export class PurposeCodes {
  readonly #keys = new Map<string, Buffer>()
  /** Identity of the set key: another object means another set key. */
  #source: object | undefined

  /** HMAC-SHA-256, 32 bytes. `source` identifies the set key; `derive` is called for an uncached key. */
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
