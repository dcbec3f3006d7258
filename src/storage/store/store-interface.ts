/** The store as the barrier uses it. */
import type { Batch } from '../sqlite/batch.ts'
import type { PageOptions, StoredEntry } from '../sqlite/entry-reader.ts'
import type { History } from './log-reader.ts'
import { standbyError } from '../sqlite/store-error.ts'

/** A store of secrets, as the barrier uses it. */
export interface Store {
  /** The durable entry. Only durable state may be returned to clients. */
  get(path: string): StoredEntry | undefined
  /**
   * The value after all queued batches: the basis of decisions about writes. If a queued batch fails, all batches after it fail, so no
   * durable state depends on a failed batch.
   */
  pending(path: string): Pick<StoredEntry, 'value'> | undefined
  /**
   * Names directly below `prefix` (which ends in `/`, or is empty for the root), in byte order, folders with a trailing `/`. At most
   * `limit` names after `after`.
   */
  list(prefix: string, options?: PageOptions): string[]
  /** Full paths at any depth below `prefix`, in byte order. At most `limit` paths after `after`. */
  paths(prefix: string, options?: PageOptions): string[]
  /** The last 16 bytes of the values (all of a shorter one), in byte order of their paths. At most `limit` entries after `after`. */
  tails?(after: string, limit: number): { readonly path: string; readonly tail: Uint8Array }[]
  /**
   * Queues the batch synchronously, after all others. Resolves to its sequence once it is durable. Rejects with a StoreError: then
   * nothing has changed, and the batches queued after it fail too. Throws for a batch that cannot be queued (MalformedBatch,
   * BatchTooLarge, StoreError `busy` or `closed`), without effect on other batches.
   */
  commit(batch: Batch): Promise<number>
  /** Queued batches, in order. The first ones may be durable already. */
  queued?(): readonly Batch[]
  /** Resolves when all queued batches are durable, and rejects with a StoreError if one of them fails; undefined if none is queued. */
  settled?(): Promise<unknown> | undefined
  /** Commits after a sequence, in order, from at most `limit` rows of the log. Absent for a store without a log. */
  history?(after: number, limit: number): History
  /**
   * Calls the listener when queued commits have failed, before their promises reject, so that state derived from them can be dropped in
   * time. The listener must not throw. Returns a function that removes it.
   */
  onFailure(listener: () => void): () => void
}

/** Read access to a store whose changes come from another server. Every commit is refused. */
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
