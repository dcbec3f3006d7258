/**
 * Revocable views of the barrier. An engine or a store of the core accesses the entries below its prefix through a `Storage`, which belongs
 * to a `ViewScope`.
 *
 * A scope is revoked when the core is sealed or steps down, or when a snapshot was restored; the scope of a mount also when the mount is
 * disabled. After that, reads and commits through its views throw: code that still runs with cached state would write it over entries
 * that it has not seen. Batches that were queued before are not affected.
 */
import { Fault, Refusal } from '../../platform/errors.ts'
import type { Batch, Put } from '../sqlite/batch.ts'
import type { History, PageOptions } from '../store/store.ts'
import type { Barrier } from './barrier.ts'

export type { Batch, History, PageOptions, Put }

/** The part of the barrier that a storage uses. */
export type EntryAccess = Pick<Barrier, 'getShared' | 'pendingShared' | 'list' | 'paths' | 'history' | 'commit'>

/** Entries that one commit of `removeAll` deletes: a few milliseconds of the writer's time. */
const REMOVED_PER_COMMIT = 500

const NOT_ACTING =
  'this server may no longer be the active one of its cluster, so it does not call external systems: try again'

/** The validity of views, for the code that revokes them. */
export class ViewScope {
  /** Revoking the parent revokes this scope, too. */
  readonly #parent: ViewScope | undefined
  #revocation: (() => Error) | undefined
  #feedEnd: (() => Error) | undefined
  #commits = 0
  readonly #idle = new Set<() => void>()
  readonly #listeners = new Set<() => void>()
  readonly #mayAct: () => boolean

  /** `mayAct`: false while another server of the cluster may be active. */
  constructor(parent?: ViewScope, mayAct: () => boolean = () => true) {
    this.#parent = parent
    this.#mayAct = mayAct
  }

  /** Throws once it is revoked. */
  check(): void {
    if (this.#revocation) throw this.#revocation()
    this.#parent?.check()
  }

  /** Throws if another server may act on the same entries: to be called directly before each effect outside of them. */
  checkActing(): void {
    this.check()
    this.#parent?.checkActing()
    if (!this.#mayAct()) throw new Refusal('unavailable', NOT_ACTING)
  }

  get isRevoked(): boolean {
    return this.#revocation !== undefined || this.#parent?.isRevoked === true
  }

  /** Throws once the change feed has ended. */
  checkFeed(): void {
    this.check()
    if (this.#feedEnd) throw this.#feedEnd()
  }

  /** Ends the change feed with the error `why`, and wakes the callers that wait for changes. */
  endFeed(why: () => Error): void {
    this.#feedEnd = why
    this.#notify()
  }

  /** Reads and commits throw `why` from now on. Resolves once all queued batches are durable or have failed. */
  async revoke(why: () => Error): Promise<void> {
    this.#revocation = why
    if (this.#commits > 0) await new Promise<void>((resolve) => this.#idle.add(resolve))
  }

  /** Counts a pending commit. Throws once the scope is revoked. */
  beginCommit(): void {
    this.check()
    this.#commits++
  }

  /** The commit is durable or has failed. */
  endCommit(): void {
    this.#commits--
    this.#notify()
    if (this.#commits === 0) for (const resolve of this.#idle) resolve()
  }

  /** Calls the listener after each commit and when the feed ends. Returns a function that removes it. */
  onCommit(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  #notify(): void {
    for (const listener of this.#listeners) listener()
  }
}

/** The batch of one storage in a commit of several. */
export interface CommitPart {
  readonly storage: Storage
  readonly batch: Batch
  /** As in `Storage.commit`. */
  readonly raw?: readonly Put[]
}

export class Storage {
  readonly #entries: EntryAccess
  readonly #scope: ViewScope
  readonly #prefix: string

  /** `prefix` is empty for the whole barrier, or ends with a slash. */
  constructor(entries: EntryAccess, scope: ViewScope = new ViewScope(), prefix = '') {
    if (prefix !== '' && !prefix.endsWith('/')) throw new Fault('the prefix of a storage must end with a slash')
    this.#entries = entries
    this.#scope = scope
    this.#prefix = prefix
  }

  /** A storage below this one, in the same scope. */
  below(prefix: string): Storage {
    return new Storage(this.#entries, this.#scope, this.#prefix + prefix)
  }

  /** A storage below this one in a new scope, whose parent is the scope of this one. */
  createView(prefix = ''): { readonly storage: Storage; readonly viewScope: ViewScope } {
    const viewScope = new ViewScope(this.#scope)
    return { storage: new Storage(this.#entries, viewScope, this.#prefix + prefix), viewScope }
  }

  /** See `ViewScope.checkActing`. */
  checkActing(): void {
    this.#scope.checkActing()
  }

  /** The durable entry. The buffer is shared with other readers: callers must not modify it. */
  get(path: string): Buffer | undefined {
    this.#scope.check()
    return this.#entries.getShared(this.#prefix + path)
  }

  /** The entry after all queued batches: the basis of decisions about writes, see `Store.pending`. */
  pending(path: string): Buffer | undefined {
    this.#scope.check()
    return this.#entries.pendingShared(this.#prefix + path)
  }

  /** Names directly below a prefix (empty, or ending with a slash), in order, folders with a trailing slash. */
  list(prefix = '', options: PageOptions = {}): string[] {
    this.#scope.check()
    return this.#entries.list(this.#prefix + prefix, options)
  }

  /** Paths at any depth below a prefix. At most `limit` paths after `after`. */
  paths(prefix = '', { after = '', limit }: PageOptions = {}): string[] {
    this.#scope.check()
    const options = { ...(after !== '' && { after: this.#prefix + after }), ...(limit !== undefined && { limit }) }
    return this.#entries.paths(this.#prefix + prefix, options).map((path) => path.slice(this.#prefix.length))
  }

  /** All paths at any depth below a prefix, in pages of at most `limit`. A page is read when it is requested. */
  *pages(prefix: string, limit: number): Generator<string[]> {
    let after = ''
    for (;;) {
      const page = this.paths(prefix, { after, limit })
      const last = page.at(-1)
      if (last === undefined) return
      yield page
      after = last
    }
  }

  /** Commits after a sequence, as `Barrier.history`, below the prefix. Reads at most `limit` commits of the whole core. */
  history(after: number, limit: number, isWanted: (path: string) => boolean): History {
    this.#scope.checkFeed()
    return this.#entries.history(this.#prefix, after, limit, isWanted)
  }

  /** See `ViewScope.onCommit`. */
  onCommit(listener: () => void): () => void {
    return this.#scope.onCommit(listener)
  }

  /**
   * Queues the batch synchronously, and resolves to its sequence once it is durable. Later reads return the same buffers, so the caller
   * must not modify its values. `raw` is stored without encryption: for entries without content.
   */
  async commit(batch: Batch, raw: readonly Put[] = []): Promise<number> {
    this.#scope.beginCommit()
    try {
      const isWhole = this.#prefix === ''
      const prefixed = isWhole ? batch : { puts: this.#withPrefix(batch.puts), deletes: this.#fullPaths(batch.deletes) }
      return await this.#entries.commit(prefixed, isWhole ? raw : this.#withPrefix(raw), true)
    } finally {
      this.#scope.endCommit()
    }
  }

  /** Commits the batches of several storages of one barrier atomically. Otherwise as `commit`. */
  static async commitAll(parts: readonly CommitPart[]): Promise<number> {
    const [first] = parts
    if (!first) throw new Fault('a commit needs at least one part')
    if (parts.length === 1) return first.storage.commit(first.batch, first.raw)
    const scopes: ViewScope[] = []
    try {
      for (const { storage } of parts) {
        storage.#scope.beginCommit()
        scopes.push(storage.#scope)
      }
      const puts = parts.flatMap(({ batch, storage }) => storage.#withPrefix(batch.puts))
      const deletes = parts.flatMap(({ batch, storage }) => storage.#fullPaths(batch.deletes))
      const raw = parts.flatMap(({ raw: each = [], storage }) => storage.#withPrefix(each))
      return await first.storage.#entries.commit({ puts, deletes }, raw, true)
    } finally {
      for (const scope of scopes) scope.endCommit()
    }
  }

  /**
   * Deletes everything below a prefix, in commits of a bounded size, and resolves to the number of entries. Entries that are written
   * meanwhile may survive, so it is for prefixes without writers (a disabled mount). After an interruption it can be called again.
   */
  async removeAll(prefix = ''): Promise<number> {
    let removed = 0
    for (;;) {
      const deletes = this.paths(prefix, { limit: REMOVED_PER_COMMIT })
      if (deletes.length === 0) return removed
      await this.commit({ puts: [], deletes })
      removed += deletes.length
    }
  }

  #withPrefix(puts: readonly Put[]): Put[] {
    return puts.map(({ path, value }) => ({ path: this.#prefix + path, value }))
  }

  #fullPaths(paths: readonly string[]): string[] {
    return paths.map((path) => this.#prefix + path)
  }
}
