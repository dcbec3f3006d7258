/**
 * File watches of the registry: chokidar on the allocation directory and on the first `WATCHED_MAX` allocations in it.
 *
 * Each takes one kernel watch: the watch of an allocation's directory reports its manifest too, and nothing below is
 * watched, because tasks write there without limit. Only the names of chokidar's `raw` events are used; the registry
 * scans the directory itself. chokidar needs about 20 KB per directory, so allocations beyond `WATCHED_MAX` are polled, at
 * three microseconds a poll: see `isWatched`.
 *
 * When the kernel has no watches left (ENOSPC, EMFILE), everything is polled, and a warning is logged once.
 */
import { basename, dirname } from 'node:path'
import { watch } from 'chokidar'
import { errnoOf, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { isUuid } from '../../platform/schema.ts'

export const WATCHED_MAX = 500
/** Time after which a new watch is certainly active; until then the directory is also polled. */
const SETTLING_MS = 2000

/** The used part of chokidar; a test replaces it to exhaust the watches. */
export interface ChokidarWatcher {
  add(path: string): unknown
  unwatch(path: string): unknown
  close(): Promise<void>
  on(event: 'raw', listener: (event: string, path: string, details: unknown) => void): unknown
  on(event: 'error', listener: (error: unknown) => void): unknown
  on(event: 'ready', listener: () => void): unknown
}

export type OpenChokidar = (allocDir: string) => ChokidarWatcher

const openChokidar: OpenChokidar = (allocDir) =>
  watch(allocDir, {
    depth: 0,
    ignoreInitial: true,
    followSymlinks: false,
    atomic: false,
    ignorePermissionErrors: true,
    // The directory and the allocations in it, nothing below them.
    ignored: (path) => path !== allocDir && (dirname(path) !== allocDir || !isUuid(basename(path))),
  })

export class AllocationWatch {
  readonly #allocDir: string
  readonly #log: Logger
  readonly #wake: (id: string | undefined) => void
  readonly #watcher: ChokidarWatcher
  /** ID → monotonic time from which its watch is active. */
  readonly #watched = new Map<string, number>()
  #ready = false
  #failed = false

  /**
   * `wake` is called with the ID of a changed allocation, or with undefined if any may have changed. `allocDir` contains no
   * symlinks.
   */
  constructor(options: {
    allocDir: string
    log: Logger
    wake: (id: string | undefined) => void
    open?: OpenChokidar
  }) {
    this.#allocDir = options.allocDir
    this.#log = options.log
    this.#wake = options.wake
    this.#watcher = (options.open ?? openChokidar)(options.allocDir)
    this.#watcher.on('error', (error) => this.#onError(error))
    this.#watcher.on('raw', (_event, path, details) => this.#onRaw(path, details))
    this.#watcher.on('ready', () => {
      this.#ready = true
      this.#wake(undefined)
    })
  }

  /** False while new allocations are found by polling. */
  get isActive(): boolean {
    return this.#ready && !this.#failed
  }

  /** False while the allocation must be polled. */
  isWatched(id: string): boolean {
    const since = this.#watched.get(id)
    return !this.#failed && since !== undefined && performance.now() >= since
  }

  follow(id: string): void {
    if (this.#failed || this.#watched.has(id) || this.#watched.size >= WATCHED_MAX) return
    this.#watched.set(id, performance.now() + SETTLING_MS)
    this.#watcher.add(`${this.#allocDir}/${id}`)
  }

  unfollow(id: string): void {
    if (!this.#watched.delete(id) || this.#failed) return
    this.#watcher.unwatch(`${this.#allocDir}/${id}`)
  }

  async stop(): Promise<void> {
    this.#failed = true
    await this.#watcher.close()
  }

  #onRaw(path: string, details: unknown): void {
    if (this.#failed) return
    const id = idOf(this.#allocDir, path, details)
    if (id !== '') this.#wake(id)
  }

  #onError(error: unknown): void {
    if (this.#failed) return
    const code = errnoOf(error)
    if (code !== 'ENOSPC' && code !== 'EMFILE' && code !== 'ENFILE') {
      this.#log.warn('allocation watch failed', { error: messageOf(error) })
      this.#wake(undefined)
      return
    }
    this.#failed = true
    this.#watched.clear()
    this.#log.warn('inotify watch limit reached, polling allocations instead', {
      code,
      remedy: 'raise fs.inotify.max_user_watches',
    })
    void this.#watcher.close()
    this.#wake(undefined)
  }
}

/** The allocation of an event: undefined if unknown, empty if the event concerns no allocation. */
function idOf(allocDir: string, path: string, details: unknown): string | undefined {
  const watched = typeof details === 'object' && details !== null && 'watchedPath' in details ? details.watchedPath : ''
  if (typeof watched !== 'string' || typeof path !== 'string') return undefined
  const name = watched === allocDir ? basename(path) : basename(watched)
  if (isUuid(name)) return name
  return watched === allocDir ? '' : undefined
}
