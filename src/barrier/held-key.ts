/**
 * The root key of a server that *stands by*: it takes over the entries of another one as they are, and may have to serve
 * them at once. People, or the machine's key, have proven the root key; it is kept in memory, and the barrier stays
 * closed. So a secondary for disaster recovery can be promoted without its key holders, and has opened no entry before.
 *
 * The other server may change its root key (a rekey). Then the one that is held opens nothing any more: `fits` finds that,
 * and forgets it.
 */
import { createHmac, hkdfSync } from 'node:crypto'
import { Refusal, sealed } from '../kit/errors.ts'
import type { History, PageOptions, Store } from '../store/store.ts'
import { decrypt } from './cipher.ts'
import { KEY_BYTES, type Keyring } from './keyring.ts'
import { KEYRING_PATH, openRing, WrongKey } from './ring-entry.ts'

const NO_SET_KEY =
  'the keyring of the primary has no key for its set of entries yet: it was written by an older version; unseal the primary with this one'

export class HeldKey {
  readonly #store: Store
  #key: Buffer | undefined
  /** The keyring that the key was last seen to open. */
  #opens: Uint8Array | undefined

  constructor(store: Store) {
    this.#store = store
  }

  get isHeld(): boolean {
    return this.#key !== undefined
  }

  /** Keeps a copy of the key. Throws WrongKey for one that does not open the keyring. */
  hold(rootKey: Buffer): void {
    const value = this.#store.get(KEYRING_PATH)?.value
    const ring = value && openRing(value, rootKey)
    if (!ring) throw new WrongKey('the root key does not open the barrier')
    ring.close()
    this.forget()
    this.#key = Buffer.from(rootKey)
    this.#opens = value
  }

  /** Whether it opens the keyring that is there now; one that does not is forgotten. True where none is held. */
  fits(): boolean {
    const value = this.#store.get(KEYRING_PATH)?.value
    if (!this.#key || value === this.#opens) return true
    const ring = value && openRing(value, this.#key)
    if (!ring) {
      this.forget()
      return false
    }
    ring.close()
    this.#opens = value
    return true
  }

  /** For the caller to overwrite. Throws a Refusal (503) where none is held. */
  copy(): Buffer {
    if (!this.#key) throw sealed()
    return Buffer.from(this.#key)
  }

  /** One entry of the barrier, opened. Throws a Refusal (503) where no key is held that opens it. */
  read(path: string): Buffer | undefined {
    return this.#with((ring) => {
      const value = this.#store.get(path)?.value
      return value && decrypt(path, value, (term) => ring.key(term))
    })
  }

  /** A code of `text` that cannot be made without the keys of this barrier, also not by a writer of the database. */
  codeOf(purpose: string, text: string): Buffer {
    return this.#with(({ setKey }) => {
      // A code under a key that is known to all would be none.
      if (!setKey) throw new Refusal('unavailable', NO_SET_KEY)
      const key = Buffer.from(hkdfSync('sha256', setKey, '', purpose, KEY_BYTES))
      const code = createHmac('sha256', key).update(text).digest()
      key.fill(0)
      return code
    })
  }

  /** The entries to be looked at, each opened as it is asked for; nothing can be committed through them. */
  entries() {
    const read = (path: string) => this.read(path)
    return {
      shown: read,
      pendingShown: read,
      list: (prefix?: string, options?: PageOptions) => this.#store.list(prefix ?? '', options),
      paths: (prefix: string, options?: PageOptions) => this.#store.paths(prefix, options),
      history: (): History => ({ epoch: 0, oldest: 0, newest: 0, rows: [] }),
      commit: (): Promise<number> => Promise.reject(sealed()),
    }
  }

  forget(): void {
    this.#key?.fill(0)
    this.#key = undefined
    this.#opens = undefined
  }

  #with<T>(use: (ring: Keyring) => T): T {
    const value = this.#store.get(KEYRING_PATH)?.value
    const ring = value && this.#key && openRing(value, this.#key)
    if (!ring) throw sealed()
    try {
      return use(ring)
    } finally {
      ring.close()
    }
  }
}
