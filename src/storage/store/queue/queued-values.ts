/** The overlay of `writer-queue.ts`: the newest queued value of each path. */
import { TransientMap } from '../../../platform/transient-map.ts'
import type { Batch } from '../../sqlite/batch.ts'

/** The queued value of a path; undefined for a deletion. */
export interface QueuedValue {
  readonly value: Uint8Array | undefined
}

export class QueuedValues {
  /** With the ID of the batch. */
  readonly #values = new TransientMap<string, QueuedValue & { readonly id: number }>()

  get(path: string): QueuedValue | undefined {
    return this.#values.get(path)
  }

  add({ puts, deletes }: Batch, id: number): void {
    for (const { path, value } of puts) this.#values.set(path, { value, id })
    for (const path of deletes) this.#values.set(path, { value: undefined, id })
  }

  /** Removes the values that no later batch has replaced. */
  remove({ puts, deletes }: Batch, id: number): void {
    for (const { path } of puts) this.#removePath(path, id)
    for (const path of deletes) this.#removePath(path, id)
  }

  #removePath(path: string, id: number): void {
    if (this.#values.get(path)?.id === id) this.#values.delete(path)
  }

  clear(): void {
    this.#values.clear()
  }
}
