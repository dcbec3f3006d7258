/** What one engine or one part of the core sees of the barrier: the entries below its own prefix, and no others. */
import { Fault } from '../kit/errors.ts'
import type { Batch, Put } from '../store/batch.ts'
import type { History, PageOptions } from '../store/store.ts'
import type { BarrierEntries } from './tenure.ts'

export type { Batch, History, Put }

/** Entries of one commit: a few milliseconds of the writer's time. */
const REMOVED_AT_ONCE = 500

export class View {
  readonly #barrier: BarrierEntries
  readonly #prefix: string

  /** `prefix` ends with a slash. */
  constructor(barrier: BarrierEntries, prefix: string) {
    if (!prefix.endsWith('/')) throw new Fault('the prefix of a view ends with a slash')
    this.#barrier = barrier
    this.#prefix = prefix
  }

  /** The view of a part of this one. */
  below(prefix: string): View {
    return new View(this.#barrier, this.#prefix + prefix)
  }

  /** What is durable. The buffer is others' too, and nobody may change it. */
  get(path: string): Buffer | undefined {
    return this.#barrier.shown(this.#prefix + path)
  }

  /** As `get`, once all that is queued is durable: what a decision about a write is made upon, see `Store.pending`. */
  pending(path: string): Buffer | undefined {
    return this.#barrier.pendingShown(this.#prefix + path)
  }

  /** Names directly below a prefix (empty, or ending with a slash), folders with a trailing slash. */
  list(prefix = '', options: PageOptions = {}): string[] {
    return this.#barrier.list(this.#prefix + prefix, options)
  }

  /** Paths anywhere below a prefix, those behind the path `after`, at most `limit`. */
  paths(prefix = '', { after = '', limit }: PageOptions = {}): string[] {
    const options = { ...(after !== '' && { after: this.#prefix + after }), ...(limit !== undefined && { limit }) }
    return this.#barrier.paths(this.#prefix + prefix, options).map((path) => path.slice(this.#prefix.length))
  }

  /**
   * Removes everything below a prefix, in commits of a bounded size, and resolves with how many entries that were. It is
   * for what nobody writes to any more (a mount that was disabled, durably): what is queued while it runs may survive.
   * One that was interrupted goes on when it is called again.
   */
  async removeAll(prefix = ''): Promise<number> {
    let removed = 0
    for (;;) {
      const deletes = this.paths(prefix, { limit: REMOVED_AT_ONCE })
      if (deletes.length === 0) return removed
      await this.commit({ puts: [], deletes })
      removed += deletes.length
    }
  }

  /** As `Barrier.history`, of what lies below the prefix. */
  history(after: number, limit: number, isWanted: (path: string) => boolean): History {
    return this.#barrier.history(this.#prefix, after, limit, isWanted)
  }

  /**
   * Queues the batch before it returns, and resolves with its sequence once it is durable. Its values are read as they are
   * from now on: nobody may change them.
   */
  commit({ puts, deletes }: Batch): Promise<number> {
    const batch = {
      puts: puts.map(({ path, value }) => ({ path: this.#prefix + path, value })),
      deletes: deletes.map((path) => this.#prefix + path),
    }
    return this.#barrier.commit(batch, [], true)
  }
}
