/**
 * The keys that entries are encrypted with. There is one active key, of the highest *term*; older ones only decrypt, so a
 * rotation touches no entry. The ring itself is kept encrypted with the root key.
 */
import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto'
import * as v from 'valibot'
import { Fault } from '../../platform/errors.ts'

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
  /** Of the entry set (`entry-set.ts`); absent in rings of before there was one. */
  setKey: v.optional(v.pipe(v.string(), v.base64())),
})

export interface RingKey {
  readonly term: number
  /** `KEY_BYTES` bytes. Filled with zeros when the ring is closed. */
  readonly key: Buffer
  readonly installedAtMs: number
}

/** A key in the form that encrypts quickest. Its memory is overwritten when it is freed, see `freed-memory.ts`. */
export interface ReadyKey {
  readonly term: number
  readonly key: KeyObject
}

function readied({ key, term }: RingKey): ReadyKey {
  return { term, key: createSecretKey(key) }
}

export class Keyring {
  readonly #keys: ReadonlyMap<number, RingKey>
  /** Those that were asked for. */
  readonly #ready = new Map<number, ReadyKey>()
  readonly active: RingKey
  /** Of the entry set; it stays when the active key is rotated. Filled with zeros when the ring is closed. */
  readonly setKey: Buffer | undefined
  #isClosed = false

  private constructor(keys: readonly RingKey[], setKey: Buffer | undefined) {
    const active = keys.reduce((a, b) => (a.term > b.term ? a : b))
    this.#keys = new Map(keys.map((key) => [key.term, key]))
    this.active = active
    this.setKey = setKey
  }

  /** A ring with one fresh key. */
  static fresh(nowMs: number): Keyring {
    return new Keyring([{ term: 1, key: randomBytes(KEY_BYTES), installedAtMs: nowMs }], randomBytes(KEY_BYTES))
  }

  /** The same ring with a key for an entry set, which it lacks. */
  withSetKey(): Keyring {
    return new Keyring([...this.#keys.values()], randomBytes(KEY_BYTES))
  }

  /** The same ring with a fresh key of the next term, which is the active one. */
  rotated(nowMs: number): Keyring {
    const next = { term: this.active.term + 1, key: randomBytes(KEY_BYTES), installedAtMs: nowMs }
    return new Keyring([...this.#keys.values(), next], this.setKey)
  }

  /** The key of a term, to decrypt with. */
  key(term: number): KeyObject | undefined {
    return this.#readyKey(this.#keys.get(term))?.key
  }

  /** What to encrypt with. Throws once the ring is closed. */
  get activeKey(): ReadyKey {
    const key = this.#readyKey(this.active)
    if (!key) throw new Fault('the keyring is closed')
    return key
  }

  #readyKey(key: RingKey | undefined): ReadyKey | undefined {
    if (!key || this.#isClosed) return undefined
    let ready = this.#ready.get(key.term)
    if (!ready) this.#ready.set(key.term, (ready = readied(key)))
    return ready
  }

  /** Plaintext: to be encrypted at once, and zeroed by the caller. */
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
    // What is wrong with it would be a piece of it.
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
