/**
 * What happens to the secrets of a mount, in order, read from the log of the store: so whoever was away learns what it
 * missed, across restarts, for as long as the log goes back. The newest events are kept in memory, read once for all who
 * wait; nothing is read while nobody does.
 */
import type { Storage } from '../../../storage/barrier/storage.ts'
import { type MountFacts, Rejection } from '../../framework/engine.ts'
import { type ChangeKind, records } from './record.ts'
import { hidden } from './names.ts'
import { RECORDS_PREFIX, REMOVED_PATH } from './secrets.ts'

export interface KvEvent {
  readonly sequence: number
  readonly path: string
  readonly change: ChangeKind | 'remove'
  /** The newest version; 0 for none. */
  readonly version: number
  /** With which to go on behind it. Each event of a commit has its own; that of the last one is the commit's. */
  readonly cursor: string
}

type Happened = Omit<KvEvent, 'sequence' | 'cursor'>

/** A place in the history of the core. */
export interface Place {
  /** Of the store: a restore begins another one, in which sequences are given out again. */
  readonly epoch: number
  readonly sequence: number
}

export function cursorText({ epoch, sequence }: Place): string {
  return `${epoch}-${sequence}`
}

export interface Slice {
  readonly epoch: number
  readonly events: readonly KvEvent[]
  /** Everything up to here has been looked at. */
  readonly upTo: number
  /** Something between the cursor and now is not known any more, or the cursor is of another history. */
  readonly isGap: boolean
}

/** Commits of the core that are looked at in one turn. */
const ROWS_AT_ONCE = 500
const KEPT_MAX = 4096
const WAITING_MAX = 5000
/** How long a core that was sealed keeps those waiting who did not hear of it. */
const LOOKED_EVERY_MS = 1000

interface Waiting {
  readonly isMeant: (path: string) => boolean
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

/** The first of them behind a sequence: they are in order. */
function firstBehind(events: readonly KvEvent[], sequence: number): number {
  let [low, high] = [0, events.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((events[middle]?.sequence ?? 0) > sequence) high = middle
    else low = middle + 1
  }
  return low
}

function isWanted(path: string): boolean {
  return path === REMOVED_PATH || (path.startsWith(RECORDS_PREFIX) && !path.includes('/', RECORDS_PREFIX.length))
}

export class Journal {
  readonly #storage: Storage
  readonly #facts: MountFacts
  /** Events behind `#from`, up to `#to`. */
  #kept: KvEvent[] = []
  #from = -1
  #to = -1
  #epoch = 0
  /** Who waits, by the folder or secret that is waited for. */
  readonly #waiting = new Map<string, Set<Waiting>>()
  /** Those who attend. */
  #count = 0
  #unfollow: (() => void) | undefined
  #timer: NodeJS.Timeout | undefined
  #isDue = false

  constructor(storage: Storage, facts: MountFacts) {
    this.#storage = storage
    this.#facts = facts
  }

  /** The newest commit of the core. */
  get newest(): Place {
    const { epoch, newest } = this.#storage.history(Number.MAX_SAFE_INTEGER, 1, () => false)
    return { epoch, sequence: newest }
  }

  /** What follows upon a sequence, as far as one turn looks. */
  after(sequence: number): Slice {
    if (this.#from >= 0 && this.#count > 0 && sequence >= this.#from) {
      // Whoever waits is told of what is read here, too: it is read once.
      if (this.#tell() && sequence <= this.#to) {
        const events = this.#kept.slice(firstBehind(this.#kept, sequence))
        return { epoch: this.#epoch, events, upTo: this.#to, isGap: false }
      }
    }
    return this.#read(sequence)
  }

  #read(sequence: number): Slice {
    const { epoch, newest, oldest, rows } = this.#storage.history(sequence, ROWS_AT_ONCE, isWanted)
    this.#epoch = epoch
    if (sequence < oldest || sequence > newest) return { epoch, events: [], upTo: newest, isGap: true }
    const events = rows.flatMap(({ batch, sequence: at }) => this.#eventsOf({ epoch, sequence: at }, batch))
    return { epoch, events, upTo: rows.at(-1)?.sequence ?? sequence, isGap: false }
  }

  #eventsOf(
    place: Place,
    { deletes, puts }: { deletes: readonly string[]; puts: readonly { path: string; value: Uint8Array }[] },
  ): KvEvent[] {
    const events: Happened[] = []
    for (const { path, value } of puts) {
      const bytes = Buffer.from(value.buffer, value.byteOffset, value.length)
      if (path !== REMOVED_PATH) {
        const { current, lastChange, name } = records.of(bytes)
        events.push({ path: name, change: lastChange, version: current })
        continue
      }
      // Written by `ChangingSecrets` and authenticated by the barrier.
      for (const name of JSON.parse(bytes.toString('utf8')) as string[]) {
        const isGone = deletes.includes(RECORDS_PREFIX + hidden(this.#facts.secret, 'key', name))
        if (isGone) events.push({ path: name, change: 'remove', version: 0 })
      }
    }
    // The log does not change, so neither does their order.
    const cursor = cursorText(place)
    const cursorOf = (at: number) => (at + 1 < events.length ? `${cursor}.${at + 1}` : cursor)
    return events.map((event, at) => ({ sequence: place.sequence, ...event, cursor: cursorOf(at) }))
  }

  /** Takes in what was committed since; returns what of it concerns secrets. */
  #advance(): readonly KvEvent[] {
    const fresh: KvEvent[] = []
    for (;;) {
      const { events, isGap, upTo } = this.#read(this.#to)
      if (isGap) {
        ;[this.#kept, this.#from, this.#to] = [[], upTo, upTo]
        for (const waiting of this.#everybody()) waiting.resolve()
        return fresh
      }
      if (upTo === this.#to) break
      this.#to = upTo
      fresh.push(...events)
    }
    this.#kept.push(...fresh)
    const excess = this.#kept.length - KEPT_MAX
    if (excess > 0) {
      this.#from = this.#kept[excess - 1]?.sequence ?? this.#from
      this.#kept = this.#kept.filter(({ sequence }) => sequence > this.#from)
    }
    return fresh
  }

  /**
   * Counts in somebody who reads on from here, and for whom the newest events are kept; what it returns counts out.
   * Throws a Rejection (429) where there are too many already.
   */
  attend(): () => void {
    if (this.isFull) throw tooMany()
    if (this.#count++ === 0) {
      this.#unfollow = this.#storage.onCommit(() => this.#look())
      this.#timer = setInterval(() => this.#tell(), LOOKED_EVERY_MS)
      this.#timer.unref()
    }
    return () => this.#leave()
  }

  get isFull(): boolean {
    return this.#count >= WAITING_MAX
  }

  #leave(): void {
    if (--this.#count > 0) return
    this.#unfollow?.()
    clearInterval(this.#timer)
    this.#forget()
  }

  #forget(): void {
    ;[this.#kept, this.#from, this.#to] = [[], -1, -1]
  }

  /**
   * Resolves when something happens behind `sequence` to a secret that `isMeant`, at one of `places` (folders with a slash
   * at their end, or names), or when the time has passed or one of the signals aborts. For who attends.
   */
  async wait(
    sequence: number,
    { isMeant, places }: { readonly isMeant: (path: string) => boolean; readonly places: readonly string[] },
    waitMs: number,
    signals: readonly AbortSignal[],
  ): Promise<void> {
    if (signals.some(({ aborted }) => aborted)) return
    if (this.#from < 0) [this.#from, this.#to] = [sequence, sequence]
    const { promise, reject, resolve } = Promise.withResolvers<void>()
    const waiting = { isMeant, resolve, reject }
    const over = setTimeout(resolve, waitMs)
    const aborted = () => resolve()
    for (const signal of signals) signal.addEventListener('abort', aborted)
    for (const place of places) {
      const those = this.#waiting.get(place) ?? new Set()
      this.#waiting.set(place, those.add(waiting))
    }
    try {
      await promise
    } finally {
      clearTimeout(over)
      for (const signal of signals) signal.removeEventListener('abort', aborted)
      for (const place of places) {
        const those = this.#waiting.get(place)
        those?.delete(waiting)
        if (those?.size === 0) this.#waiting.delete(place)
      }
    }
  }

  /** Once for everything that is committed in one turn. */
  #look(): void {
    if (this.#isDue) return
    this.#isDue = true
    setImmediate(() => {
      this.#isDue = false
      this.#tell()
    })
  }

  /** False where nothing can be known any more: sealed, or the mount is leaving. */
  #tell(): boolean {
    if (this.#from < 0) return true
    try {
      for (const { path } of this.#advance()) {
        for (const place of placesOf(path)) {
          for (const waiting of this.#waiting.get(place) ?? []) if (waiting.isMeant(path)) waiting.resolve()
        }
      }
      return true
    } catch (error) {
      this.#forget()
      for (const waiting of this.#everybody()) waiting.reject(error)
      return false
    }
  }

  #everybody(): Waiting[] {
    return [...this.#waiting.values()].flatMap((those) => [...those])
  }
}

/** The answer to who comes when the journal is full. */
export function tooMany(): Rejection {
  return new Rejection(429, 'too many watch this mount already: try again later')
}

/** A name and all folders above it: where somebody may wait for it. */
function placesOf(name: string): string[] {
  const places = ['', name]
  for (let at = name.indexOf('/'); at >= 0; at = name.indexOf('/', at + 1)) places.push(name.slice(0, at + 1))
  return places
}
