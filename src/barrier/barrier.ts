/**
 * The barrier room: plaintext above, ciphertext below.
 *
 * A *barrier* is sealed or open. Open, it holds the keyring; each entry is encrypted with the ring's active key under its
 * own path (`cipher.ts`) before the store sees it. The ring is an entry too, encrypted with the *root key*, which is kept
 * nowhere by this room: whoever unseals brings it (`seal.ts` says how it is kept).
 *
 * Promises. No plaintext and no key goes below: not into the store, its log, an error or a log line. An entry that was
 * changed, cut, or moved to another path is refused, never returned. Sealing overwrites every key in memory. A key
 * encrypts far fewer than 2^32 entries (NIST SP 800-38D): before that the barrier rotates by itself.
 *
 * Assumes that the store keeps what it says it keeps, and that whoever can read this process's memory may have it all.
 *
 * What can go wrong. A wrong root key: refused, the barrier stays sealed. A damaged keyring: the same, and it is said; a
 * snapshot is the way back. A damaged entry: a fault that names its path.
 */
import { Fault } from '../kit/errors.ts'
import type { Batch, Put } from '../store/batch.ts'
import type { Store } from '../store/store.ts'
import { decrypt, encrypt } from './cipher.ts'
import { KEY_BYTES, Keyring } from './keyring.ts'

const KEYRING_PATH = 'core/keyring'
/** Of the root key, which is not of the ring. */
const ROOT_TERM = 0
/** NIST allows 2^32 with random nonces; rotating early costs nothing. */
const ENCRYPTIONS_MAX = 2 ** 31
/** Where the count of encryptions stands is written down this far ahead, so that a crash never counts too few. */
const COUNTED_AHEAD = 2 ** 20
const COUNT_PATH = 'core/encryptions'

/** What is asked of a barrier that is sealed. */
export class Sealed extends Fault {}

/** The key does not open this barrier. Says nothing more. */
export class WrongKey extends Fault {}

/** What is to be written in the same batch as a change of the keys. */
export interface Beside {
  /** Stored as they are: what must be readable while it is sealed, or is encrypted with another key. */
  readonly raw?: readonly Put[]
  /** Encrypted as any entry. */
  readonly puts?: readonly Put[]
  readonly deletes?: readonly string[]
}

export class Barrier {
  readonly #store: Store
  readonly #now: () => number
  #ring: Keyring | undefined
  /** Kept while it is open, for the rotations that the barrier does by itself. */
  #rootKey: Buffer | undefined
  #encryptions = 0
  #countedTo = 0
  /** Changes of the ring and of the root key are made one after another: each writes what the one before has made. */
  #changes: Promise<unknown> = Promise.resolve()

  constructor(store: Store, now: () => number = Date.now) {
    this.#store = store
    this.#now = now
  }

  /** True once there is a keyring, opened or not. */
  get isInitialised(): boolean {
    return this.#store.get(KEYRING_PATH) !== undefined
  }

  get isSealed(): boolean {
    return this.#ring === undefined
  }

  /** Term of the active key and when it was installed. */
  get status(): { readonly term: number; readonly installedAtMs: number; readonly encryptions: number } {
    const { term, installedAtMs } = this.#open().active
    return { term, installedAtMs, encryptions: this.#encryptions }
  }

  /** Makes a keyring under a root key of `KEY_BYTES` bytes; the barrier is sealed afterwards. Throws where there is one. */
  initialise(rootKey: Buffer, beside: Beside = {}): Promise<void> {
    return this.#inTurn(async () => {
      if (this.isInitialised) throw new Fault('the barrier is initialised already')
      const ring = Keyring.fresh(this.#now())
      try {
        await this.#store.commit(together(ring, rootKey, beside))
      } finally {
        ring.close()
      }
    })
  }

  /** Opens it. Throws WrongKey for a key that is not this barrier's. */
  unseal(rootKey: Buffer): void {
    const entry = this.#store.get(KEYRING_PATH)
    if (!entry) throw new Fault('the barrier is not initialised')
    if (rootKey.length !== KEY_BYTES) throw new WrongKey('the root key does not open the barrier')
    let plaintext: Buffer
    try {
      plaintext = decrypt(KEYRING_PATH, entry.value, (term) => (term === ROOT_TERM ? rootKey : undefined))
    } catch {
      throw new WrongKey('the root key does not open the barrier')
    }
    this.#ring = Keyring.decode(plaintext)
    plaintext.fill(0)
    this.#rootKey = Buffer.from(rootKey)
    this.#encryptions = this.#countedTo = Number(this.get(COUNT_PATH)?.toString() ?? 0)
  }

  /** Closes it and overwrites its keys. */
  seal(): void {
    this.#ring?.close()
    this.#rootKey?.fill(0)
    this.#ring = undefined
    this.#rootKey = undefined
  }

  get(path: string): Buffer | undefined {
    const ring = this.#open()
    const entry = this.#store.get(path)
    return entry && decrypt(path, entry.value, (term) => ring.key(term))
  }

  /** What `get` will give once everything that is queued is durable. */
  pending(path: string): Buffer | undefined {
    return this.get(path)
  }

  /** As `Store.list`; names are not secret below the barrier. */
  list(prefix = '', options: { after?: string; limit?: number } = {}): string[] {
    this.#open()
    return this.#store.list(prefix, options)
  }

  /** Encrypts and commits; resolves with the sequence once it is durable. `raw` goes with it as it is. */
  async commit(batch: Batch, raw: readonly Put[] = []): Promise<number> {
    if (this.#encryptions + batch.puts.length > ENCRYPTIONS_MAX) await this.rotate()
    const ring = this.#open()
    const puts = batch.puts.map(({ path, value }) => ({ path, value: encrypt(path, value, ring.active) }))
    const counted = this.#count(puts.length, ring)
    return this.#store.commit({ puts: [...puts, ...(counted ? [counted] : []), ...raw], deletes: batch.deletes })
  }

  /** Counts; gives what is to be written about it, when that is due. */
  #count(encryptions: number, ring: Keyring): Put | undefined {
    this.#encryptions += encryptions + 1
    if (this.#encryptions <= this.#countedTo) return undefined
    this.#countedTo = this.#encryptions + COUNTED_AHEAD
    return { path: COUNT_PATH, value: encrypt(COUNT_PATH, Buffer.from(String(this.#countedTo)), ring.active) }
  }

  /** Goes over to a fresh key; older entries stay readable. Resolves with its term. */
  rotate(): Promise<number> {
    return this.#inTurn(async () => {
      const next = this.#open().rotated(this.#now())
      const count = { path: COUNT_PATH, value: encrypt(COUNT_PATH, Buffer.from('0'), next.active) }
      await this.#store.commit(together(next, this.#root(), { raw: [count] }))
      const { term } = next.active
      // Sealed meanwhile: it stays so, the next one who unseals finds the new key.
      if (this.isSealed) next.close()
      else {
        this.#ring = next
        this.#encryptions = this.#countedTo = 0
      }
      return term
    })
  }

  /** From now on another root key opens it. */
  rekey(rootKey: Buffer, beside: Beside = {}): Promise<void> {
    return this.#inTurn(async () => {
      await this.#store.commit(together(this.#open(), rootKey, beside))
      if (this.isSealed) return
      this.#rootKey?.fill(0)
      this.#rootKey = Buffer.from(rootKey)
    })
  }

  #inTurn<T>(change: () => Promise<T>): Promise<T> {
    const done = this.#changes.then(change)
    this.#changes = done.catch(() => undefined)
    return done
  }

  #root(): Buffer {
    if (!this.#rootKey) throw new Sealed('the barrier is sealed')
    return this.#rootKey
  }

  #open(): Keyring {
    if (!this.#ring) throw new Sealed('the barrier is sealed')
    return this.#ring
  }
}

/** One batch: the ring under a root key, and what goes with it. */
function together(ring: Keyring, rootKey: Buffer, { raw = [], puts = [], deletes = [] }: Beside): Batch {
  const encrypted = puts.map(({ path, value }) => ({ path, value: encrypt(path, value, ring.active) }))
  return { puts: [ringEntry(ring, rootKey), ...raw, ...encrypted], deletes }
}

function ringEntry(ring: Keyring, rootKey: Buffer): Put {
  if (rootKey.length !== KEY_BYTES) throw new Fault('a root key has 32 bytes')
  const plaintext = ring.encode()
  const value = encrypt(KEYRING_PATH, plaintext, { term: ROOT_TERM, key: rootKey })
  plaintext.fill(0)
  return { path: KEYRING_PATH, value }
}
