/** Read access to a store whose changes come from another server. Every commit is refused. */
import { standbyError } from '../sqlite/store-error.ts'
import type { Batch } from '../sqlite/batch.ts'
import type { PageOptions, StoredEntry } from '../sqlite/entry-reader.ts'
import type { History } from './log-reader.ts'
import type { Store } from './store-interface.ts'

export class ReadOnlyStore implements Store {
  readonly #store: Store

  constructor(store: Store) {
    this.#store = store
  }

  get(path: string): StoredEntry | undefined {
    return this.#store.get(path)
  }

  /** Nothing is queued here. */
  pending(path: string): StoredEntry | undefined {
    return this.#store.get(path)
  }

  list(prefix: string, options?: PageOptions): string[] {
    return this.#store.list(prefix, options)
  }

  paths(prefix: string, options?: PageOptions): string[] {
    return this.#store.paths(prefix, options)
  }

  tails(after: string, limit: number): { readonly path: string; readonly tail: Uint8Array }[] {
    return this.#store.tails?.(after, limit) ?? []
  }

  history(after: number, limit: number): History {
    return this.#store.history?.(after, limit) ?? { epoch: 0, oldest: 0, newest: 0, rows: [] }
  }

  commit(_batch: Batch): Promise<number> {
    return Promise.reject(standbyError())
  }

  onFailure(): () => void {
    return () => undefined
  }
}
