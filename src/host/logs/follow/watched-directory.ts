/**
 * Wake-ups for the files of one directory.
 *
 * An event only says "look"; the truth is always fstat and the bytes. Three ways of being woken:
 *
 * - *watching*: one inotify watch, shared by all followers in the directory. A quiet log is heard of at once.
 * - *hot*: when changes come faster than `HOT_CHANGES` in `HOT_WINDOW_MS`, waking for each of them costs more than the
 *   lines are worth, so the watch is closed and the files are looked at every `HOT_MS`, or sooner when they grow so fast
 *   that more than `HOT_BYTES` would pile up meanwhile. Three looks without growth, and the watch is back.
 * - *unwatched*: there is no watch to be had; a poll that is quick enough to tail well within a second.
 *
 * Because inotify can overflow silently and misses remote writers, a safety poll looks at everything every
 * `SAFETY_POLL_MS` whatever the mode.
 *
 * `generation` grows whenever names may have changed: who caches a listing compares it.
 */
import { type FSWatcher, statSync, watch } from 'node:fs'
import { errnoOf } from '../../../platform/errors.ts'
import type { Logger } from '../../../platform/log.ts'

const SAFETY_POLL_MS = 250
const UNWATCHED_POLL_MS = 25
const HOT_CHANGES = 20
const HOT_WINDOW_MS = 160
const HOT_MS = 50
const HOT_MS_MIN = 1
const HOT_BYTES = 1 << 20
const HOT_QUIET_LOOKS = 3
/** How long after a failure a watch is tried for again. */
const WATCH_RETRY_MS = 5000
/** Names that changed so recently may change again without a new time of change: kernels count it in ticks. */
const RECENT_MS = 50

export type WatchMode = 'watching' | 'hot' | 'unwatched'

/** A file that wants to be looked at when something happened to it. */
export interface Watcher {
  /** Base name in the directory. */
  readonly name: string
  /** Its content changed, perhaps. */
  contentChanged(): void
  /** Names in the directory changed, perhaps its own. */
  namesChanged(): void
  /** Look at everything; every `SAFETY_POLL_MS`. */
  poll(): void
  /** Look at the content; the bytes by which it has changed since the last look. */
  look(): number
  /** How long it would rather not be looked at again, because many followers hear of it each time. */
  readonly fanoutIntervalMs: number
}

/** All watched directories of a process, shared by path. */
export class DirectoryWatches {
  readonly #directories = new Map<string, WatchedDirectory>()
  readonly #logger: Logger
  #saidFallback = false

  constructor(logger: Logger) {
    this.#logger = logger
  }

  /** The watch of a directory (its resolved host path), started if it is the first. Pair with `release`. */
  acquire(path: string): WatchedDirectory {
    const found = this.#directories.get(path) ?? new WatchedDirectory(path, (code) => this.#fallback(code))
    this.#directories.set(path, found)
    found.refs++
    return found
  }

  release(directory: WatchedDirectory): void {
    if (--directory.refs > 0) return
    this.#directories.delete(directory.path)
    directory.stop()
  }

  get size(): number {
    return this.#directories.size
  }

  /** How many directories are in each mode. */
  modes(): Readonly<Record<WatchMode, number>> {
    const modes = { watching: 0, hot: 0, unwatched: 0 }
    for (const directory of this.#directories.values()) modes[directory.mode]++
    return modes
  }

  #fallback(code: string): void {
    if (this.#saidFallback) return
    this.#saidFallback = true
    this.#logger.warn('no file watch to be had, polling instead: followers see new data a little later', {
      error: code,
      pollMs: UNWATCHED_POLL_MS,
      remedy: 'raise fs.inotify.max_user_watches or fs.inotify.max_user_instances',
    })
  }
}

export class WatchedDirectory {
  readonly path: string
  refs = 0
  /** Grows whenever names in the directory may have changed. */
  generation = 0
  #listing: { readonly generation: number; readonly names: readonly string[] } | undefined
  readonly #files = new Map<string, Set<Watcher>>()
  readonly #onFallback: (code: string) => void
  #watch: FSWatcher | undefined
  #watchRetryAtMs = 0
  #timer: NodeJS.Timeout | undefined
  #hotTimer: NodeJS.Timeout | undefined
  #quietLooks = 0
  /** Times of the latest changes, the oldest at `#changeAt`. */
  readonly #changesMs: number[] = Array.from({ length: HOT_CHANGES }, () => Number.NEGATIVE_INFINITY)
  #changeAt = 0
  /** What told, at the last look, whether names have changed since. */
  #names: { readonly key: string; readonly inode: bigint; readonly recent: boolean }

  constructor(path: string, onFallback: (code: string) => void) {
    this.path = path
    this.#onFallback = onFallback
    this.#names = this.#lookAtNames()
    this.#startWatching()
  }

  get mode(): WatchMode {
    if (this.#watch) return 'watching'
    return this.#hotTimer ? 'hot' : 'unwatched'
  }

  add(file: Watcher): void {
    const same = this.#files.get(file.name) ?? new Set()
    same.add(file)
    this.#files.set(file.name, same)
  }

  remove(file: Watcher): void {
    const same = this.#files.get(file.name)
    same?.delete(file)
    if (same?.size === 0) this.#files.delete(file.name)
  }

  /** The directory's names, listed once for all who ask in one generation: a rotation makes every follower ask. */
  names(list: () => readonly string[]): readonly string[] {
    if (this.#listing?.generation !== this.generation) this.#listing = { generation: this.generation, names: list() }
    return this.#listing.names
  }

  stop(): void {
    clearInterval(this.#timer)
    clearTimeout(this.#hotTimer)
    this.#stopWatching()
  }

  #startWatching(): void {
    try {
      this.#watch = watch(this.path, { persistent: false }, (event, name) => this.#event(event, name))
      this.#watch.on('error', (error) => this.#unwatched(error))
      this.#pollEvery(SAFETY_POLL_MS)
    } catch (error) {
      this.#unwatched(error)
    }
  }

  #unwatched(error: unknown): void {
    this.#stopWatching()
    this.#watchRetryAtMs = performance.now() + WATCH_RETRY_MS
    this.#pollEvery(UNWATCHED_POLL_MS)
    // The directory itself may be gone: the poll will find its files deleted. Any other reason is worth a word.
    const code = errnoOf(error) ?? 'unknown'
    if (code !== 'ENOENT') this.#onFallback(code)
  }

  #pollEvery(ms: number): void {
    clearInterval(this.#timer)
    this.#timer = setInterval(() => this.#poll(), ms).unref()
  }

  #stopWatching(): void {
    this.#watch?.close()
    this.#watch = undefined
  }

  #event(event: string, name: string | null): void {
    if (event === 'rename' || name === null) this.#namesChanged()
    else {
      const files = this.#files.get(name)
      if (!files) return
      for (const file of files) file.contentChanged()
    }
    const nowMs = performance.now()
    const firstMs = this.#changesMs[this.#changeAt] ?? 0
    this.#changesMs[this.#changeAt] = nowMs
    this.#changeAt = (this.#changeAt + 1) % HOT_CHANGES
    if (nowMs - firstMs < HOT_WINDOW_MS) this.#becomeHot()
  }

  #becomeHot(): void {
    this.#stopWatching()
    this.#quietLooks = 0
    this.#lookSoon(HOT_MS)
  }

  #lookSoon(waitMs: number): void {
    this.#hotTimer = setTimeout(() => this.#hotLook(), waitMs).unref()
  }

  #hotLook(): void {
    let grown = 0
    let fanoutIntervalMs = HOT_MS
    for (const file of this.#all()) {
      grown = Math.max(grown, file.look())
      fanoutIntervalMs = Math.max(fanoutIntervalMs, file.fanoutIntervalMs)
    }
    const renamed = this.#checkNames()
    this.#quietLooks = grown === 0 && !renamed ? this.#quietLooks + 1 : 0
    if (this.#quietLooks < HOT_QUIET_LOOKS) {
      const waitMs = grown > HOT_BYTES ? (fanoutIntervalMs * HOT_BYTES) / grown : fanoutIntervalMs
      return this.#lookSoon(Math.max(waitMs, HOT_MS_MIN))
    }
    this.#hotTimer = undefined
    this.#changesMs.fill(Number.NEGATIVE_INFINITY)
    this.#startWatching()
    // What happened between the last look and the watch was seen by nobody.
    this.#poll()
  }

  *#all(): Generator<Watcher> {
    for (const same of this.#files.values()) yield* same
  }

  #namesChanged(): void {
    this.generation++
    for (const file of this.#all()) file.namesChanged()
  }

  /** True when names have changed since the last look, or may have. */
  #checkNames(): boolean {
    const before = this.#names
    this.#names = this.#lookAtNames()
    // Another directory under our path: the watch is on the old one.
    if (this.#watch && this.#names.inode !== before.inode) {
      this.#stopWatching()
      this.#startWatching()
    }
    if (this.#names.key === before.key && !before.recent) return false
    this.#namesChanged()
    return true
  }

  #poll(): void {
    if (!this.#watch && !this.#hotTimer && performance.now() >= this.#watchRetryAtMs) this.#startWatching()
    this.#checkNames()
    for (const file of this.#all()) file.poll()
  }

  #lookAtNames(): { key: string; inode: bigint; recent: boolean } {
    try {
      const { dev, ino, mtimeNs } = statSync(this.path, { bigint: true })
      const recent = Math.abs(Date.now() - Number(mtimeNs) / 1e6) < RECENT_MS
      return { key: `${dev}:${ino}:${mtimeNs}`, inode: ino, recent }
    } catch {
      return { key: 'gone', inode: -1n, recent: false } // or unreadable: a change like any other
    }
  }
}
