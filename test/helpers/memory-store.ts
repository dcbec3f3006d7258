/**
 * A store in memory that fails on demand, with the guarantees of the real one: a failure fails all batches queued after
 * it. All commits of one turn of the event loop become durable together in the next turn.
 */
import { type Batch, encodeBatch } from '../../src/storage/sqlite/batch.ts'
import {
  type StoredEntry,
  type PageOptions,
  type Store,
  StoreError,
  type StoreErrorKind,
} from '../../src/storage/store/store.ts'

interface Queued {
  readonly batch: Batch
  readonly resolve: (sequence: number) => void
  readonly reject: (error: StoreError) => void
}

const compare = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b))

export class MemoryStore implements Store {
  #entries = new Map<string, StoredEntry>()
  #queue: Queued[] = []
  #sequence = 0
  readonly #listeners = new Set<() => void>()
  #failures: { readonly kind: StoreErrorKind; left: number; readonly fits: (batch: Batch) => boolean } | undefined
  /** While true no commit becomes durable. */
  #held = false

  /** Fails the next `count` matching batches. */
  failNext(kind: StoreErrorKind = 'failed', count = 1, fits: (batch: Batch) => boolean = () => true): void {
    this.#failures = { kind, left: count, fits }
  }

  /** Keeps all batches queued until `release`. */
  hold(): void {
    this.#held = true
  }

  release(): void {
    this.#held = false
    this.#flush()
  }

  get(path: string): StoredEntry | undefined {
    return this.#entries.get(path)
  }

  pending(path: string): Pick<StoredEntry, 'value'> | undefined {
    for (const { batch } of this.#queue.toReversed()) {
      if (batch.deletes.includes(path)) return undefined
      const put = batch.puts.find((one) => one.path === path)
      if (put) return { value: put.value }
    }
    return this.get(path)
  }

  queued(): readonly Batch[] {
    return this.#queue.map(({ batch }) => batch)
  }

  paths(prefix: string, { after = '', limit = Number.MAX_SAFE_INTEGER }: PageOptions = {}): string[] {
    const below = [...this.#entries.keys()].filter((path) => path.startsWith(prefix) && compare(path, after) > 0)
    return below.sort(compare).slice(0, limit)
  }

  list(prefix: string, { after = '', limit = Number.MAX_SAFE_INTEGER }: PageOptions = {}): string[] {
    const names = new Set(this.paths(prefix).map((path) => /^[^/]*\/?/.exec(path.slice(prefix.length))?.[0] ?? ''))
    const behind = [...names].filter((name) => compare(name, after) > 0)
    return behind.sort(compare).slice(0, limit)
  }

  commit(batch: Batch): Promise<number> {
    encodeBatch(batch)
    return new Promise((resolve, reject) => {
      this.#queue.push({ batch, resolve, reject })
      if (this.#queue.length === 1) setImmediate(() => this.#flush())
    })
  }

  onFailure(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  #flush(): void {
    if (this.#held) return
    const queue = this.#queue
    const failing = queue.findIndex(({ batch }) => this.#fails(batch))
    const fine = failing < 0 ? queue : queue.slice(0, failing)
    this.#queue = []
    for (const { batch, resolve } of fine) resolve(this.#apply(batch))
    if (failing < 0) return
    const error = new StoreError(this.#failures?.kind ?? 'failed', 'failed on demand')
    for (const listener of this.#listeners) listener()
    for (const { reject } of queue.slice(failing)) reject(error)
  }

  #fails(batch: Batch): boolean {
    const failures = this.#failures
    if (!failures || failures.left === 0 || !failures.fits(batch)) return false
    failures.left--
    return true
  }

  #apply({ puts, deletes }: Batch): number {
    this.#sequence++
    for (const { path, value } of puts) {
      this.#entries.set(path, { value: Uint8Array.from(value), sequence: this.#sequence })
    }
    for (const path of deletes) this.#entries.delete(path)
    return this.#sequence
  }
}
