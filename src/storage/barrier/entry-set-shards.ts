/**
 * Keeps copies of the entry set in the database, so that the next start need not look at every entry: `entry-set-load.ts` says
 * how they are used and why nothing depends on them. One shard after another is written as entries change, and all of
 * them when the barrier is sealed; what is lost with a process that is killed is in the log.
 */
import type { Put } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import { encrypt, type TermKey } from './cipher.ts'
import { shardPath } from './entry-set-load.ts'
import { type EntrySet, SHARDS } from './entry-set.ts'

/** A shard is written after as many changes, or after one of as many as there are entries to a change if that is more. */
const CHANGES_MIN = 256
const ENTRIES_A_CHANGE = 512
/** The log forgets what is older than a day: before that, all are written. */
const ALL_MS = 3_600_000
/** After one could not be written: on a full disk it would take others with it. */
const PAUSE_MS = 60_000
/** Of several in one commit. */
const COMMIT_BYTES = 2 << 20

export class ShardWriter {
  readonly #store: Store
  readonly #now: () => number
  #changes = 0
  #next = 0
  /** Something has changed since all of them were written. */
  #isDirty = false
  #allAtMs: number
  #pausedUntilMs = 0

  constructor(store: Store, now: () => number) {
    this.#store = store
    this.#now = now
    this.#allAtMs = now()
  }

  /** There are none, or none of use. */
  lost(): void {
    this.#isDirty = true
    this.#allAtMs = Number.NEGATIVE_INFINITY
  }

  /** So many entries have changed, in a batch that was queued. */
  changed(count: number, set: EntrySet, key: TermKey): void {
    this.#isDirty = true
    this.#changes += count
    const nowMs = this.#now()
    if (nowMs < this.#pausedUntilMs) return
    if (nowMs - this.#allAtMs > ALL_MS) return this.all(set, key)
    const due = Math.max(CHANGES_MIN, set.size / ENTRIES_A_CHANGE)
    const many = Math.min(SHARDS, Math.floor(this.#changes / due))
    if (many === 0) return
    this.#changes = 0
    const shards = Array.from({ length: many }, (_, at) => (this.#next + at) % SHARDS)
    this.#next = (this.#next + many) % SHARDS
    this.#write(shards, set, key)
  }

  /** Queues all of them, where anything has changed. */
  all(set: EntrySet, key: TermKey): void {
    if (!this.#isDirty || this.#now() < this.#pausedUntilMs) return
    this.#isDirty = false
    this.#allAtMs = this.#now()
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
