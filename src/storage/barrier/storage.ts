/**
 * What an engine, a store of the core or any other part above the barrier has of its entries: those below its own prefix,
 * for as long as its *tenure* lasts.
 *
 * A tenure ends when the core is sealed, steps down or has other entries below it (a snapshot was restored), and that of
 * a mount also when the mount is disabled. After that nobody reads or queues anything through a storage that belongs to it:
 * a part that still works on what it remembers would write that into entries which it never saw. What was queued before
 * goes its way.
 */
import { Fault } from '../../platform/errors.ts'
import type { Batch, Put } from '../sqlite/batch.ts'
import type { History, PageOptions } from '../store/store.ts'
import type { Barrier } from './barrier.ts'

export type { Batch, History, PageOptions, Put }

/** What a storage needs of the barrier. */
export type Entries = Pick<Barrier, 'shown' | 'pendingShown' | 'list' | 'paths' | 'history' | 'commit'>

/** Entries of one commit: a few milliseconds of the writer's time. */
const REMOVED_AT_ONCE = 500

/** How long a storage may be used, for the part that ends it. */
export class Tenure {
  /** With which this one ends, too. */
  readonly #within: Tenure | undefined
  #end: (() => Error) | undefined
  #retirement: (() => Error) | undefined
  #commits = 0
  readonly #idle = new Set<() => void>()
  readonly #listeners = new Set<() => void>()

  constructor(within?: Tenure) {
    this.#within = within
  }

  /** Throws once it has ended. */
  check(): void {
    if (this.#end) throw this.#end()
    this.#within?.check()
  }

  /** Throws once nothing is told any more of what happens. */
  checkFollowing(): void {
    this.check()
    if (this.#retirement) throw this.#retirement()
  }

  /** Callers that wait for something to happen are woken, and are told of nothing any more but `why`. */
  retire(why: () => Error): void {
    this.#retirement = why
    this.#tell()
  }

  /** Nothing can be read or queued from now on, but `why` is thrown; resolves when what was queued is durable or has failed. */
  async end(why: () => Error): Promise<void> {
    this.#end = why
    if (this.#commits > 0) await new Promise<void>((resolve) => this.#idle.add(resolve))
  }

  /** Counts a commit in; throws once it has ended. */
  enter(): void {
    this.check()
    this.#commits++
  }

  /** Counts a commit out: it is durable or has failed. */
  leave(): void {
    this.#commits--
    this.#tell()
    if (this.#commits === 0) for (const resolve of this.#idle) resolve()
  }

  /** Calls back when something was committed, or nothing will be told any more; returns what ends it. */
  onCommit(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  #tell(): void {
    for (const listener of this.#listeners) listener()
  }
}

/** What one storage has in a commit of several. */
export interface Part {
  readonly storage: Storage
  readonly batch: Batch
  /** As of `Storage.commit`. */
  readonly raw?: readonly Put[]
}

export class Storage {
  readonly #entries: Entries
  readonly #tenure: Tenure
  readonly #prefix: string

  /** `prefix` is empty for all of the barrier, or ends with a slash. */
  constructor(entries: Entries, tenure: Tenure = new Tenure(), prefix = '') {
    if (prefix !== '' && !prefix.endsWith('/')) throw new Fault('the prefix of a storage ends with a slash')
    this.#entries = entries
    this.#tenure = tenure
    this.#prefix = prefix
  }

  /** A part of this one, which ends with it. */
  below(prefix: string): Storage {
    return new Storage(this.#entries, this.#tenure, this.#prefix + prefix)
  }

  /** A part of this one with a tenure of its own, which ends with that or with this one. */
  lend(prefix = ''): { readonly storage: Storage; readonly tenure: Tenure } {
    const tenure = new Tenure(this.#tenure)
    return { storage: new Storage(this.#entries, tenure, this.#prefix + prefix), tenure }
  }

  /** What is durable. The buffer is shared with others who read the same entry, so it is never written to. */
  get(path: string): Buffer | undefined {
    this.#tenure.check()
    return this.#entries.shown(this.#prefix + path)
  }

  /** As `get`, once all that is queued is durable: what a decision about a write is made upon, see `Store.pending`. */
  pending(path: string): Buffer | undefined {
    this.#tenure.check()
    return this.#entries.pendingShown(this.#prefix + path)
  }

  /** Names directly below a prefix (empty, or ending with a slash), in order, folders with a trailing slash. */
  list(prefix = '', options: PageOptions = {}): string[] {
    this.#tenure.check()
    return this.#entries.list(this.#prefix + prefix, options)
  }

  /** Paths anywhere below a prefix, those behind the path `after`, at most `limit`. */
  paths(prefix = '', { after = '', limit }: PageOptions = {}): string[] {
    this.#tenure.check()
    const options = { ...(after !== '' && { after: this.#prefix + after }), ...(limit !== undefined && { limit }) }
    return this.#entries.paths(this.#prefix + prefix, options).map((path) => path.slice(this.#prefix.length))
  }

  /**
   * What was committed behind a sequence, from at most `limit` commits of all of the core: as `Barrier.history`, of what
   * lies below the prefix.
   */
  history(after: number, limit: number, isWanted: (path: string) => boolean): History {
    this.#tenure.checkFollowing()
    return this.#entries.history(this.#prefix, after, limit, isWanted)
  }

  /** Calls back when something was committed in this tenure; returns what ends it. */
  onCommit(listener: () => void): () => void {
    return this.#tenure.onCommit(listener)
  }

  /**
   * Queues the batch before it returns, and resolves with its sequence once it is durable. Its values are read as they are
   * from now on: nobody may change them. `raw` goes with it and is not encrypted: for entries whose path says everything.
   */
  async commit(batch: Batch, raw: readonly Put[] = []): Promise<number> {
    this.#tenure.enter()
    try {
      const isWhole = this.#prefix === ''
      const own = isWhole ? batch : { puts: this.#placed(batch.puts), deletes: this.#whole(batch.deletes) }
      return await this.#entries.commit(own, isWhole ? raw : this.#placed(raw), true)
    } finally {
      this.#tenure.leave()
    }
  }

  /**
   * Queues what several storages of one barrier are to commit, as one: all of it becomes durable, or none. Otherwise as
   * `commit`.
   */
  static async commitAll(parts: readonly Part[]): Promise<number> {
    const [first] = parts
    if (!first) throw new Fault('nothing is to be committed')
    if (parts.length === 1) return first.storage.commit(first.batch, first.raw)
    const entered: Tenure[] = []
    try {
      for (const { storage } of parts) {
        storage.#tenure.enter()
        entered.push(storage.#tenure)
      }
      const puts = parts.flatMap(({ batch, storage }) => storage.#placed(batch.puts))
      const deletes = parts.flatMap(({ batch, storage }) => storage.#whole(batch.deletes))
      const raw = parts.flatMap(({ raw: each = [], storage }) => storage.#placed(each))
      return await first.storage.#entries.commit({ puts, deletes }, raw, true)
    } finally {
      for (const tenure of entered) tenure.leave()
    }
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

  #placed(puts: readonly Put[]): Put[] {
    return puts.map(({ path, value }) => ({ path: this.#prefix + path, value }))
  }

  #whole(paths: readonly string[]): string[] {
    return paths.map((path) => this.#prefix + path)
  }
}
