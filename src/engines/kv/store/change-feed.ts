/**
 * Change feed of a KV mount, read from the log of the store: a client that was disconnected resumes without losing events,
 * also across restarts, while the log retains them. The newest events are cached in memory, so the log is read once for all
 * subscribers. Without subscribers nothing is read.
 */
import type { Storage } from '../../../storage/barrier/storage.ts'
import { type MountFacts, Rejection } from '../../framework/engine.ts'
import { type ChangeKind, records } from './record.ts'
import { hashedName } from './names.ts'
import { RECORDS_PREFIX, REMOVED_PATH } from './secrets.ts'

export interface KvEvent {
  readonly sequence: number
  readonly path: string
  readonly change: ChangeKind | 'remove'
  /** The newest version; 0 if there is none. */
  readonly version: number
  /** Resumes the feed after this event. The last event of a commit has the cursor of the commit. */
  readonly cursor: string
}

type KvChange = Omit<KvEvent, 'sequence' | 'cursor'>

/** A position in the log of the core. */
export interface FeedPosition {
  /** Epoch of the store. A restore begins a new one, in which sequences are reused. */
  readonly epoch: number
  readonly sequence: number
}

export function cursorText({ epoch, sequence }: FeedPosition): string {
  return `${epoch}-${sequence}`
}

export interface ChangePage {
  readonly epoch: number
  readonly events: readonly KvEvent[]
  /** The page ends with this sequence. */
  readonly upTo: number
  /** The log no longer has all events since the cursor, or the cursor is of another epoch. */
  readonly isGap: boolean
}

/** Commits of the core that are read in one turn. */
const ROWS_PER_PAGE = 500
const CACHED_EVENTS_MAX = 4096
const SUBSCRIBERS_MAX = 5000
/** Interval at which waiting subscribers learn that the core was sealed, which is not a commit. */
const POLL_INTERVAL_MS = 1000

interface ChangeWaiter {
  readonly isRelevant: (path: string) => boolean
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

/** Index of the first event after a sequence. */
function firstAfter(events: readonly KvEvent[], sequence: number): number {
  let [low, high] = [0, events.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((events[middle]?.sequence ?? 0) > sequence) high = middle
    else low = middle + 1
  }
  return low
}

function isKvChange(path: string): boolean {
  return path === REMOVED_PATH || (path.startsWith(RECORDS_PREFIX) && !path.includes('/', RECORDS_PREFIX.length))
}

export class ChangeFeed {
  readonly #storage: Storage
  readonly #facts: MountFacts
  /** Events after `#from` up to `#to`. */
  #cached: KvEvent[] = []
  #from = -1
  #to = -1
  #epoch = 0
  /** By watched folder or secret. */
  readonly #waiters = new Map<string, Set<ChangeWaiter>>()
  #subscribers = 0
  #unfollow: (() => void) | undefined
  #timer: NodeJS.Timeout | undefined
  #isNotifyScheduled = false

  constructor(storage: Storage, facts: MountFacts) {
    this.#storage = storage
    this.#facts = facts
  }

  /** The newest commit of the core. */
  get newest(): FeedPosition {
    const { epoch, newest } = this.#storage.history(Number.MAX_SAFE_INTEGER, 1, () => false)
    return { epoch, sequence: newest }
  }

  /** The events after a sequence: one page. */
  pageAfter(sequence: number): ChangePage {
    if (this.#from >= 0 && this.#subscribers > 0 && sequence >= this.#from) {
      // Reads new rows once, for this subscriber and all that wait.
      if (this.#notify() && sequence <= this.#to) {
        const events = this.#cached.slice(firstAfter(this.#cached, sequence))
        return { epoch: this.#epoch, events, upTo: this.#to, isGap: false }
      }
    }
    return this.#read(sequence)
  }

  #read(sequence: number): ChangePage {
    const { epoch, newest, oldest, rows } = this.#storage.history(sequence, ROWS_PER_PAGE, isKvChange)
    this.#epoch = epoch
    if (sequence < oldest || sequence > newest) return { epoch, events: [], upTo: newest, isGap: true }
    const events = rows.flatMap(({ batch, sequence: at }) => this.#eventsOf({ epoch, sequence: at }, batch))
    return { epoch, events, upTo: rows.at(-1)?.sequence ?? sequence, isGap: false }
  }

  #eventsOf(
    position: FeedPosition,
    { deletes, puts }: { deletes: readonly string[]; puts: readonly { path: string; value: Uint8Array }[] },
  ): KvEvent[] {
    const events: KvChange[] = []
    for (const { path, value } of puts) {
      const bytes = Buffer.from(value.buffer, value.byteOffset, value.length)
      if (path !== REMOVED_PATH) {
        const { current, lastChange, name } = records.of(bytes)
        events.push({ path: name, change: lastChange, version: current })
        continue
      }
      // Written only by `SecretWriter` and authenticated by the barrier.
      for (const name of JSON.parse(bytes.toString('utf8')) as string[]) {
        const isGone = deletes.includes(RECORDS_PREFIX + hashedName(this.#facts.secret, 'key', name))
        if (isGone) events.push({ path: name, change: 'remove', version: 0 })
      }
    }
    // The log is immutable, so the order of events is too.
    const cursor = cursorText(position)
    const cursorOf = (at: number) => (at + 1 < events.length ? `${cursor}.${at + 1}` : cursor)
    return events.map((event, at) => ({ sequence: position.sequence, ...event, cursor: cursorOf(at) }))
  }

  /** Reads new commits into the cache. Returns their events. */
  #advance(): readonly KvEvent[] {
    const fresh: KvEvent[] = []
    for (;;) {
      const { events, isGap, upTo } = this.#read(this.#to)
      if (isGap) {
        ;[this.#cached, this.#from, this.#to] = [[], upTo, upTo]
        for (const waiter of this.#allWaiters()) waiter.resolve()
        return fresh
      }
      if (upTo === this.#to) break
      this.#to = upTo
      fresh.push(...events)
    }
    this.#cached.push(...fresh)
    const excess = this.#cached.length - CACHED_EVENTS_MAX
    if (excess > 0) {
      this.#from = this.#cached[excess - 1]?.sequence ?? this.#from
      this.#cached = this.#cached.filter(({ sequence }) => sequence > this.#from)
    }
    return fresh
  }

  /** Keeps the newest events in memory until the returned function is called. Throws a Rejection (429) for too many subscribers. */
  subscribe(): () => void {
    if (this.isFull) throw tooManyWatchers()
    if (this.#subscribers++ === 0) {
      this.#unfollow = this.#storage.onCommit(() => this.#scheduleNotify())
      this.#timer = setInterval(() => this.#notify(), POLL_INTERVAL_MS)
      this.#timer.unref()
    }
    return () => this.#unsubscribe()
  }

  get isFull(): boolean {
    return this.#subscribers >= SUBSCRIBERS_MAX
  }

  #unsubscribe(): void {
    if (--this.#subscribers > 0) return
    this.#unfollow?.()
    clearInterval(this.#timer)
    this.#forget()
  }

  #forget(): void {
    ;[this.#cached, this.#from, this.#to] = [[], -1, -1]
  }

  /**
   * Resolves on a change after `sequence` of a secret that `isRelevant`, at one of `paths` (names, and folders with a trailing
   * slash), or after `waitMs`, or when a signal aborts. For subscribers.
   */
  async wait(
    sequence: number,
    { isRelevant, paths }: { readonly isRelevant: (path: string) => boolean; readonly paths: readonly string[] },
    waitMs: number,
    signals: readonly AbortSignal[],
  ): Promise<void> {
    if (signals.some(({ aborted }) => aborted)) return
    if (this.#from < 0) [this.#from, this.#to] = [sequence, sequence]
    const { promise, reject, resolve } = Promise.withResolvers<void>()
    const waiter = { isRelevant, resolve, reject }
    const timer = setTimeout(resolve, waitMs)
    const onAbort = () => resolve()
    for (const signal of signals) signal.addEventListener('abort', onAbort)
    for (const path of paths) {
      const waiters = this.#waiters.get(path) ?? new Set()
      this.#waiters.set(path, waiters.add(waiter))
    }
    try {
      await promise
    } finally {
      clearTimeout(timer)
      for (const signal of signals) signal.removeEventListener('abort', onAbort)
      for (const path of paths) {
        const waiters = this.#waiters.get(path)
        waiters?.delete(waiter)
        if (waiters?.size === 0) this.#waiters.delete(path)
      }
    }
  }

  /** Coalesces the commits of one turn. */
  #scheduleNotify(): void {
    if (this.#isNotifyScheduled) return
    this.#isNotifyScheduled = true
    setImmediate(() => {
      this.#isNotifyScheduled = false
      this.#notify()
    })
  }

  /** Returns false if the log cannot be read: the core is sealed, or the mount disabled. */
  #notify(): boolean {
    if (this.#from < 0) return true
    try {
      for (const { path } of this.#advance()) {
        for (const watched of watchedPathsOf(path)) {
          for (const waiter of this.#waiters.get(watched) ?? []) if (waiter.isRelevant(path)) waiter.resolve()
        }
      }
      return true
    } catch (error) {
      this.#forget()
      for (const waiter of this.#allWaiters()) waiter.reject(error)
      return false
    }
  }

  #allWaiters(): ChangeWaiter[] {
    return [...this.#waiters.values()].flatMap((waiters) => [...waiters])
  }
}

export function tooManyWatchers(): Rejection {
  return new Rejection(429, 'too many watchers of this mount, try again later')
}

/** The name and all folders above it. */
function watchedPathsOf(name: string): string[] {
  const paths = ['', name]
  for (let at = name.indexOf('/'); at >= 0; at = name.indexOf('/', at + 1)) paths.push(name.slice(0, at + 1))
  return paths
}
