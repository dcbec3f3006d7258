/** The batch of one request while it is being put together: what was changed already is what is read. */
import type { Batch, Storage } from '../../storage/barrier/storage.ts'

export class Changes {
  readonly #storage: Storage
  /** Undefined: removed. */
  readonly #changed = new Map<string, Buffer | undefined>()

  constructor(storage: Storage) {
    this.#storage = storage
  }

  /** The entry as it will be once this batch, and everything that is queued before it, is durable. */
  get(path: string): Buffer | undefined {
    return this.#changed.get(path) ?? (this.#changed.has(path) ? undefined : this.#storage.pending(path))
  }

  put(path: string, value: Buffer): void {
    this.#changed.set(path, value)
  }

  delete(path: string): void {
    this.#changed.set(path, undefined)
  }

  get batch(): Batch {
    const puts: { path: string; value: Buffer }[] = []
    const deletes: string[] = []
    for (const [path, value] of this.#changed) {
      if (value) puts.push({ path, value })
      else deletes.push(path)
    }
    return { puts, deletes }
  }
}
