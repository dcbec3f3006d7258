/**
 * A look at all entries in the background, some at a time, from their first path to the last: whether each is in the state that the
 * entry set has of it, and whether any is missing. A read finds out about the entry that it reads; this finds what no
 * read asks for, and what a listing lacks.
 *
 * Entries change meanwhile. What is queued for a path, in the database or not yet, is counted as the set has it; an entry that
 * comes or goes behind the place that has been reached is counted up or down.
 */
import type { Store } from '../store/store.ts'
import { tailsOf } from './entry-set-load.ts'
import { type EntrySet, isBound, RolledBack } from './entry-set.ts'

/** About a millisecond's work. */
const ENTRIES_AT_ONCE = 200
const PAUSE_MS = 5

export interface Found {
  readonly changed: readonly RolledBack[]
  /** How many entries are missing. */
  readonly missing: number
}

/** Of those that are told one by one. */
const CHANGED_MAX = 20

export class EntryPass {
  readonly #store: Store
  readonly #set: EntrySet
  readonly #onEnd: (found: Found) => void
  readonly #changed: RolledBack[] = []
  #timer: NodeJS.Timeout | undefined
  /** Everything up to this path was looked at. */
  #reached: Buffer = Buffer.alloc(0)
  #after = ''
  #seen = 0

  constructor(store: Store, set: EntrySet, onEnd: (found: Found) => void) {
    this.#store = store
    this.#set = set
    this.#onEnd = onEnd
    set.watcher = (path, step) => {
      if (Buffer.compare(Buffer.from(path), this.#reached) <= 0) this.#seen += step
    }
    this.#wait()
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#set.watcher = undefined
  }

  #wait(): void {
    this.#timer = setTimeout(() => this.#step(), PAUSE_MS)
    this.#timer.unref()
  }

  #step(): void {
    let isOver: boolean
    try {
      isOver = this.#look()
    } catch {
      // The database cannot be read, or is closed: whoever asks for an entry is told.
      return this.stop()
    }
    if (!isOver) return this.#wait()
    this.stop()
    this.#onEnd({ changed: this.#changed, missing: Math.max(0, this.#set.size - this.#seen) })
  }

  /** True when it has come to the end. */
  #look(): boolean {
    const tails = tailsOf(this.#store, this.#after, ENTRIES_AT_ONCE)
    const last = tails.length < ENTRIES_AT_ONCE ? undefined : tails.at(-1)?.path
    const queued = new Set(this.#set.queuedPaths)
    for (const { path, tail } of tails) if (isBound(path) && !queued.has(path)) this.#compare(path, tail)
    const before = this.#reached
    this.#after = last ?? this.#after
    this.#reached = last === undefined ? LAST : Buffer.from(last)
    for (const path of queued) {
      const bytes = Buffer.from(path)
      const isHere = Buffer.compare(bytes, before) > 0 && Buffer.compare(bytes, this.#reached) <= 0
      if (isHere && this.#set.has(path)) this.#seen++
    }
    return last === undefined
  }

  #compare(path: string, tail: Uint8Array): void {
    try {
      this.#set.check(path, tail)
      this.#seen++
    } catch (error) {
      if (!(error instanceof RolledBack)) throw error
      if (error.kind === 'replaced') this.#seen++
      if (this.#changed.length < CHANGED_MAX) this.#changed.push(error)
    }
  }
}

/** Behind every path: no byte of UTF-8 is so high. */
const LAST = Buffer.from([0xff])
