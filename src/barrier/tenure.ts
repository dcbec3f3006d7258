/**
 * The barrier for as long as somebody's memory of it holds. When something else takes the place of all that is below (a
 * snapshot that is restored), whoever still works on what it remembers would write that into entries which it never saw:
 * a tenure that has ended lets nobody read or write any more, and what was not finished ends as if it was sealed.
 */
import type { Batch, Put } from '../store/batch.ts'
import type { History, PageOptions } from '../store/store.ts'
import { type Barrier, Sealed } from './barrier.ts'

/** What the parts of a core need of the barrier. */
export type BarrierEntries = Pick<
  Barrier,
  'get' | 'pending' | 'shown' | 'pendingShown' | 'list' | 'paths' | 'history' | 'commit'
>

export class Tenure implements BarrierEntries {
  readonly #barrier: BarrierEntries
  #isOver = false

  constructor(barrier: BarrierEntries) {
    this.#barrier = barrier
  }

  /** Nothing can be read or queued from now on; what is queued already goes its way. */
  end(): void {
    this.#isOver = true
  }

  get(path: string): Buffer | undefined {
    return this.#entries.get(path)
  }

  pending(path: string): Buffer | undefined {
    return this.#entries.pending(path)
  }

  shown(path: string): Buffer | undefined {
    return this.#entries.shown(path)
  }

  pendingShown(path: string): Buffer | undefined {
    return this.#entries.pendingShown(path)
  }

  list(prefix?: string, options?: PageOptions): string[] {
    return this.#entries.list(prefix, options)
  }

  paths(prefix: string, options?: PageOptions): string[] {
    return this.#entries.paths(prefix, options)
  }

  history(prefix: string, after: number, limit: number, isWanted: (path: string) => boolean): History {
    return this.#entries.history(prefix, after, limit, isWanted)
  }

  async commit(batch: Batch, raw?: readonly Put[], isShared?: boolean): Promise<number> {
    return this.#entries.commit(batch, raw, isShared)
  }

  get #entries(): BarrierEntries {
    if (this.#isOver) throw new Sealed('what was remembered of the barrier holds no more')
    return this.#barrier
  }
}
