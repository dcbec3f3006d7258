/**
 * The keys that entries are encrypted with. There is one active key, of the highest *term*; older ones only decrypt, so a
 * rotation touches no entry. The ring itself is kept encrypted with the root key.
 */
import { randomBytes } from 'node:crypto'
import * as v from 'valibot'
import { Fault } from '../kit/errors.ts'

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
})

export interface RingKey {
  readonly term: number
  /** `KEY_BYTES` bytes. Filled with zeros when the ring is closed. */
  readonly key: Buffer
  readonly installedAtMs: number
}

export class Keyring {
  readonly #keys: ReadonlyMap<number, RingKey>
  readonly active: RingKey

  private constructor(keys: readonly RingKey[]) {
    const active = keys.reduce((a, b) => (a.term > b.term ? a : b))
    this.#keys = new Map(keys.map((key) => [key.term, key]))
    this.active = active
  }

  /** A ring with one fresh key. */
  static fresh(nowMs: number): Keyring {
    return new Keyring([{ term: 1, key: randomBytes(KEY_BYTES), installedAtMs: nowMs }])
  }

  /** The same ring with a fresh key of the next term, which is the active one. */
  rotated(nowMs: number): Keyring {
    const next = { term: this.active.term + 1, key: randomBytes(KEY_BYTES), installedAtMs: nowMs }
    return new Keyring([...this.#keys.values(), next])
  }

  key(term: number): Buffer | undefined {
    return this.#keys.get(term)?.key
  }

  /** Plaintext: to be encrypted at once, and zeroed by the caller. */
  encode(): Buffer {
    const keys = [...this.#keys.values()].map(({ term, key, installedAtMs }) => ({
      term,
      key: key.toString('base64'),
      installedAtMs,
    }))
    return Buffer.from(JSON.stringify({ format: 1, keys }))
  }

  static decode(plaintext: Buffer): Keyring {
    const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), ringSchema), plaintext.toString('utf8'))
    // What is wrong with it would be a piece of it.
    if (!parsed.success) throw new Fault('the keyring is damaged')
    const keys = parsed.output.keys.map(({ term, key, installedAtMs }) => {
      return { term, key: Buffer.from(key, 'base64'), installedAtMs }
    })
    if (keys.some(({ key }) => key.length !== KEY_BYTES)) throw new Fault('the keyring is damaged')
    return new Keyring(keys)
  }

  /** Overwrites all keys. */
  close(): void {
    for (const { key } of this.#keys.values()) key.fill(0)
  }
}
