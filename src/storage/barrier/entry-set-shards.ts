/**
 * Stores copies of the parts of the entry set, so that the next start does not read every entry (`entry-set-load.ts`). They are an
 * optimization and not trusted. One shard after another is written as entries change, and all shards when the barrier is sealed. Changes
 * since the last write are in the log.
 */
import type { Put } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import { encrypt, type TermKey } from './cipher.ts'
import { shardPath } from './entry-set-load.ts'
import { type EntrySet, SHARDS } from './entry-set.ts'

/** A shard is written after CHANGES_MIN changes or one change per ENTRIES_PER_CHANGE entries, whichever is more. */
const CHANGES_MIN = 256
const ENTRIES_PER_CHANGE = 512
/** Interval for writing all shards, well below the age limit of the log. */
const WRITE_ALL_MS = 3_600_000
/** Pause after a failed write: on a full disk another failure would fail commits with it. */
const PAUSE_MS = 60_000
/** Limit of several shards in one commit. */
const COMMIT_BYTES = 2 << 20

export class ShardWriter {
  readonly #store: Store
  readonly #now: () => number
  #changes = 0
  #next = 0
  /** Entries have changed since all shards were written. */
  #isDirty = false
  #allWrittenAtMs: number
  #pausedUntilMs = 0

  constructor(store: Store, now: () => number) {
    this.#store = store
    this.#now = now
    this.#allWrittenAtMs = now()
  }

  /** The stored shards are missing or invalid. */
  invalidate(): void {
    this.#isDirty = true
    this.#allWrittenAtMs = Number.NEGATIVE_INFINITY
  }

  /** Counts the changed entries of a queued batch, and queues the shards that are due. */
  countChanges(count: number, set: EntrySet, key: TermKey): void {
    this.#isDirty = true
    this.#changes += count
    const nowMs = this.#now()
    if (nowMs < this.#pausedUntilMs) return
    if (nowMs - this.#allWrittenAtMs > WRITE_ALL_MS) return this.writeAll(set, key)
    const due = Math.max(CHANGES_MIN, set.size / ENTRIES_PER_CHANGE)
    const many = Math.min(SHARDS, Math.floor(this.#changes / due))
    if (many === 0) return
    this.#changes = 0
    const shards = Array.from({ length: many }, (_, at) => (this.#next + at) % SHARDS)
    this.#next = (this.#next + many) % SHARDS
    this.#write(shards, set, key)
  }

  /** Queues all shards when entries have changed. */
  writeAll(set: EntrySet, key: TermKey): void {
    if (!this.#isDirty || this.#now() < this.#pausedUntilMs) return
    this.#isDirty = false
    this.#allWrittenAtMs = this.#now()
    this.#write(Array.from({ length: SHARDS }).keys(), set, key)
  }

  #write(shards: Iterable<number>, set: EntrySet, key: TermKey): void {
    let puts: Put[] = []
    let bytes = 0
    for (const at of shards) {
      const path = shardPath(at)
      const value = encrypt(path, set.encodeShard(at), key)
      puts.push({ path, value })
      bytes += value.length
      if (bytes < COMMIT_BYTES) continue
      this.#commit(puts)
      puts = []
      bytes = 0
    }
    if (puts.length > 0) this.#commit(puts)
  }

  #commit(puts: readonly Put[]): void {
    const failed = () => {
      this.#isDirty = true
      this.#pausedUntilMs = this.#now() + PAUSE_MS
    }
    try {
      this.#store.commit({ puts, deletes: [] }).catch(failed)
    } catch {
      failed()
    }
  }
}
