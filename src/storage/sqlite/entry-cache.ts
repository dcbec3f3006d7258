/**
 * Entries that were asked for lately, as the database has them: what is read again and again costs no look into it. Also
 * that there is none is remembered.
 *
 * What is kept here is durable. It changes when a commit is known to have succeeded, before its author is told, and all of
 * it is forgotten when one has failed or another state has taken the place of this one: then only the disk knows.
 */
import { LRUCache } from 'lru-cache'
import type { Batch } from './batch.ts'

export interface Entry {
  readonly value: Uint8Array
  /** Of the log row that wrote it; for one of this machine's own, of the row before it. */
  readonly sequence: number
}

/** Of values and paths: of some four thousand secrets of 1 KiB. */
const BYTES_MAX = 8 << 20
/** Larger ones would take the place of many. */
const ENTRY_BYTES_MAX = 64 << 10
/** Of an entry beside its value and its path, about. */
const OVERHEAD_BYTES = 128

const NOTHING = Symbol('no entry')

export class EntryCache {
  readonly #kept = new LRUCache<string, Entry | typeof NOTHING>({
    maxSize: BYTES_MAX,
    maxEntrySize: ENTRY_BYTES_MAX,
    sizeCalculation: (kept, path) => OVERHEAD_BYTES + path.length + (kept === NOTHING ? 0 : kept.value.length),
  })

  /** What `read` gives, which is asked only where nothing is known. */
  get(path: string, read: () => Entry | undefined): Entry | undefined {
    const known = this.#kept.get(path)
    if (known !== undefined) return known === NOTHING ? undefined : known
    const kept = read()
    this.#kept.set(path, kept ?? NOTHING)
    return kept
  }

  /** What was found in the database; what is kept here already where that is the same. */
  known(path: string, found: Entry | undefined): Entry | undefined {
    const known = this.#kept.peek(path)
    return known && known !== NOTHING && known.sequence === found?.sequence ? known : found
  }

  /**
   * A batch is known to be durable. Only what is asked for comes in here, so that writing much does not drive out what is
   * read. What was read may be of a later batch, of which nobody knows yet: nothing goes back to before it.
   */
  written({ puts, deletes }: Batch, sequence: number): void {
    for (const { path, value } of puts) {
      const known = this.#kept.peek(path)
      if (known === undefined) continue
      if (known !== NOTHING && known.sequence < sequence) this.#kept.set(path, { value, sequence })
      else this.#askAgain(path, known, sequence)
    }
    for (const path of deletes) {
      const known = this.#kept.peek(path)
      if (known !== undefined) this.#askAgain(path, known, sequence)
    }
  }

  #askAgain(path: string, known: Entry | typeof NOTHING, sequence: number): void {
    if (known === NOTHING || known.sequence <= sequence) this.#kept.delete(path)
  }

  forget(): void {
    this.#kept.clear()
  }
}
