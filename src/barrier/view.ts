/** What one engine or one part of the core sees of the barrier: the entries below its own prefix, and no others. */
import { Fault } from '../kit/errors.ts'
import type { Batch, Put } from '../store/batch.ts'
import type { Barrier } from './barrier.ts'

export type { Batch, Put }

export class View {
  readonly #barrier: Barrier
  readonly #prefix: string

  /** `prefix` ends with a slash. */
  constructor(barrier: Barrier, prefix: string) {
    if (!prefix.endsWith('/')) throw new Fault('the prefix of a view ends with a slash')
    this.#barrier = barrier
    this.#prefix = prefix
  }

  /** The view of a part of this one. */
  below(prefix: string): View {
    return new View(this.#barrier, this.#prefix + prefix)
  }

  get(path: string): Buffer | undefined {
    return this.#barrier.get(this.#prefix + path)
  }

  pending(path: string): Buffer | undefined {
    return this.#barrier.pending(this.#prefix + path)
  }

  /** Names directly below a prefix (empty, or ending with a slash), folders with a trailing slash. */
  list(prefix = '', options: { after?: string; limit?: number } = {}): string[] {
    return this.#barrier.list(this.#prefix + prefix, options)
  }

  commit({ puts, deletes }: Batch): Promise<number> {
    return this.#barrier.commit({
      puts: puts.map(({ path, value }) => ({ path: this.#prefix + path, value })),
      deletes: deletes.map((path) => this.#prefix + path),
    })
  }
}
