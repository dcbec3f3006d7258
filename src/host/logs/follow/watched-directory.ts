/**
 * Change notifications for the files of one directory.
 *
 * An event only triggers a check; the source of truth is fstat and the content. Modes:
 *
 * - *watching*: one inotify watch, shared by all followers in the directory. A change of a quiet log is noticed at once.
 * - *hot*: with more than `HOT_CHANGES` changes in `HOT_WINDOW_MS`, handling each costs more than it is worth. So the watch is
 *   closed and the files are checked every `HOT_MS`, or sooner if they grow so fast that more than `HOT_BYTES` would
 *   accumulate. After three checks without growth the watch is restored.
 * - *unwatched*: no watch is available; a poll that is fast enough for a tail with a latency well below a second.
 *
 * Because inotify may overflow silently and does not see remote writers, everything is checked every `SAFETY_POLL_MS` in every
 * mode.
 *
 * `generation` increases whenever names may have changed; caches of listings compare it.
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
const HOT_QUIET_CHECKS = 3
/** Delay of the retry after a watch failed. */
const WATCH_RETRY_MS = 5000
/** Names may change again within this time without a new mtime, because kernels count it in ticks. */
const RECENT_MS = 50

export type WatchMode = 'watching' | 'hot' | 'unwatched'

/** A file that is checked after changes. */
export interface WatchedFile {
  /** Base name in the directory. */
  readonly name: string
  /** Its content may have changed. */
  contentChanged(): void
  /** Names in the directory may have changed. */
  namesChanged(): void
  /** Called every `SAFETY_POLL_MS`: checks name and content. */
  poll(): void
  /** Checks the content; returns the change of the size in bytes. */
  check(): number
  /** Minimum interval between two checks, which grows with the number of followers. */
  readonly fanoutIntervalMs: number
}

/** All watched directories, shared by path. */
export class DirectoryWatches {
  readonly #directories = new Map<string, WatchedDirectory>()
  readonly #logger: Logger
  #fallbackLogged = false

  constructor(logger: Logger) {
    this.#logger = logger
  }

  /** The watch of a directory (its resolved host path), started on first use. Pair with `release`. */
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

  /** Number of directories by mode. */
  modes(): Readonly<Record<WatchMode, number>> {
    const modes = { watching: 0, hot: 0, unwatched: 0 }
    for (const directory of this.#directories.values()) modes[directory.mode]++
    return modes
  }

  #fallback(code: string): void {
    if (this.#fallbackLogged) return
    this.#fallbackLogged = true
    const isLimit = code === 'ENOSPC' || code === 'EMFILE' || code === 'ENFILE'
    this.#logger.warn(isLimit ? 'inotify watch limit reached, polling instead' : 'file watch failed, polling instead', {
      error: code,
      pollMs: UNWATCHED_POLL_MS,
      ...(isLimit ? { remedy: 'raise fs.inotify.max_user_watches or fs.inotify.max_user_instances' } : {}),
    })
  }
}

export class WatchedDirectory {
  readonly path: string
  refs = 0
  /** Increases whenever names in the directory may have changed. */
  generation = 0
  #listing: { readonly generation: number; readonly names: readonly string[] } | undefined
  readonly #files = new Map<string, Set<WatchedFile>>()
  readonly #onFallback: (code: string) => void
  #watch: FSWatcher | undefined
  #watchRetryAtMs = 0
  #timer: NodeJS.Timeout | undefined
  #hotTimer: NodeJS.Timeout | undefined
  #quietChecks = 0
  /** Times of the latest changes, the oldest at `#changeAt`. */
  readonly #changesMs: number[] = Array.from({ length: HOT_CHANGES }, () => Number.NEGATIVE_INFINITY)
  #changeAt = 0
  /** State of the names at the last check. */
  #names: { readonly key: string; readonly inode: bigint; readonly recent: boolean }

  constructor(path: string, onFallback: (code: string) => void) {
    this.path = path
    this.#onFallback = onFallback
    this.#names = this.#readNames()
    this.#startWatching()
  }

  get mode(): WatchMode {
    if (this.#watch) return 'watching'
    return this.#hotTimer ? 'hot' : 'unwatched'
  }

  add(file: WatchedFile): void {
    const same = this.#files.get(file.name) ?? new Set()
    same.add(file)
    this.#files.set(file.name, same)
  }

  remove(file: WatchedFile): void {
    const same = this.#files.get(file.name)
    same?.delete(file)
    if (same?.size === 0) this.#files.delete(file.name)
  }

  /** The directory's names, listed once per generation: after a rotation every follower needs them. */
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
    // If the directory was removed, the poll finds its files deleted. Other errors are logged.
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
    this.#quietChecks = 0
    this.#scheduleHotCheck(HOT_MS)
  }

  #scheduleHotCheck(waitMs: number): void {
    this.#hotTimer = setTimeout(() => this.#hotCheck(), waitMs).unref()
  }

  #hotCheck(): void {
    let grown = 0
    let fanoutIntervalMs = HOT_MS
    for (const file of this.#all()) {
      grown = Math.max(grown, file.check())
      fanoutIntervalMs = Math.max(fanoutIntervalMs, file.fanoutIntervalMs)
    }
    const renamed = this.#checkNames()
    this.#quietChecks = grown === 0 && !renamed ? this.#quietChecks + 1 : 0
    if (this.#quietChecks < HOT_QUIET_CHECKS) {
      const waitMs = grown > HOT_BYTES ? (fanoutIntervalMs * HOT_BYTES) / grown : fanoutIntervalMs
      return this.#scheduleHotCheck(Math.max(waitMs, HOT_MS_MIN))
    }
    this.#hotTimer = undefined
    this.#changesMs.fill(Number.NEGATIVE_INFINITY)
    this.#startWatching()
    // Changes between the last check and the watch had no event.
    this.#poll()
  }

  *#all(): Generator<WatchedFile> {
    for (const same of this.#files.values()) yield* same
  }

  #namesChanged(): void {
    this.generation++
    for (const file of this.#all()) file.namesChanged()
  }

  /** True if names may have changed since the last check. */
  #checkNames(): boolean {
    const before = this.#names
    this.#names = this.#readNames()
    // Another directory has this path now: the watch is on the old one.
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

  #readNames(): { key: string; inode: bigint; recent: boolean } {
    try {
      const { dev, ino, mtimeNs } = statSync(this.path, { bigint: true })
      const recent = Math.abs(Date.now() - Number(mtimeNs) / 1e6) < RECENT_MS
      return { key: `${dev}:${ino}:${mtimeNs}`, inode: ino, recent }
    } catch {
      return { key: 'gone', inode: -1n, recent: false } // or unreadable, which counts as a change
    }
  }
}
