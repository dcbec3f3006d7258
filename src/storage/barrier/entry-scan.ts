/**
 * Scans all entries in the background in the order of their paths, some at a time, and compares each with the entry set. A read checks
 * only the entry that it returns; the scan finds changed entries that are not read, and missing ones.
 *
 * Entries change during the scan. A path with a queued change counts as the set has it. An entry that is added or deleted before the
 * current position adjusts the count.
 */
import type { Store } from '../store/store.ts'
import { tailsOf } from './entry-set-load.ts'
import { type EntrySet, isBound, RollbackError } from './entry-set.ts'

/** Takes about a millisecond. */
const ENTRIES_PER_STEP = 200
const PAUSE_MS = 5

export interface EntryScanResult {
  readonly changed: readonly RollbackError[]
  readonly missing: number
}

/** Changed entries that are reported individually. */
const CHANGED_MAX = 20

export class EntryScan {
  readonly #store: Store
  readonly #set: EntrySet
  readonly #onEnd: (result: EntryScanResult) => void
  readonly #changed: RollbackError[] = []
  #timer: NodeJS.Timeout | undefined
  /** All paths up to this one were scanned. */
  #reached: Buffer = Buffer.alloc(0)
  #after = ''
  #seen = 0

  constructor(store: Store, set: EntrySet, onEnd: (result: EntryScanResult) => void) {
    this.#store = store
    this.#set = set
    this.#onEnd = onEnd
    set.watcher = (path, step) => {
      if (Buffer.compare(Buffer.from(path), this.#reached) <= 0) this.#seen += step
    }
    this.#scheduleStep()
  }

  stop(): void {
    clearTimeout(this.#timer)
    this.#set.watcher = undefined
  }

  #scheduleStep(): void {
    this.#timer = setTimeout(() => this.#step(), PAUSE_MS)
    this.#timer.unref()
  }

  #step(): void {
    let isOver: boolean
    try {
      isOver = this.#scanSome()
    } catch {
      // The database cannot be read, or is closed: reads report the error.
      return this.stop()
    }
    if (!isOver) return this.#scheduleStep()
    this.stop()
    this.#onEnd({ changed: this.#changed, missing: Math.max(0, this.#set.size - this.#seen) })
  }

  /** True at the end. */
  #scanSome(): boolean {
    const tails = tailsOf(this.#store, this.#after, ENTRIES_PER_STEP)
    const last = tails.length < ENTRIES_PER_STEP ? undefined : tails.at(-1)?.path
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
      if (!(error instanceof RollbackError)) throw error
      if (error.kind === 'replaced') this.#seen++
      if (this.#changed.length < CHANGED_MAX) this.#changed.push(error)
    }
  }
}

/** Sorts after every path: 0xff does not occur in UTF-8. */
const LAST = Buffer.from([0xff])
