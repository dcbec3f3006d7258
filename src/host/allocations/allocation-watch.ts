/**
 * Who wakes the registry: chokidar on the allocation directory and on the first `WATCHED_MAX` allocations in it.
 *
 * One kernel watch each: a watch on an allocation's own directory reports its manifest too, and nothing below it is
 * ever watched (tasks write there as much as they like). Only chokidar's `raw` events are used; what they say beyond
 * the name is not believed, the registry looks for itself. chokidar keeps about 20 KB for each directory, so past
 * `WATCHED_MAX` allocations are polled instead, at three microseconds a poll: see `isWatched`.
 *
 * When the kernel has no watches left (ENOSPC, EMFILE) everything is polled, and that is said once.
 */
import { basename, dirname } from 'node:path'
import { watch } from 'chokidar'
import { errnoOf, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { isUuid } from '../../platform/schema.ts'

export const WATCHED_MAX = 500
/** A new watch is in force soon after it was asked for; until then the directory is polled as well. */
const SETTLING_MS = 2000

/** What is needed of chokidar, so that a test can run out of watches. */
export interface Watcher {
  add(path: string): unknown
  unwatch(path: string): unknown
  close(): Promise<void>
  on(event: 'raw', listener: (event: string, path: string, details: unknown) => void): unknown
  on(event: 'error', listener: (error: unknown) => void): unknown
  on(event: 'ready', listener: () => void): unknown
}

export type OpenWatcher = (allocDir: string) => Watcher

const openChokidar: OpenWatcher = (allocDir) =>
  watch(allocDir, {
    depth: 0,
    ignoreInitial: true,
    followSymlinks: false,
    atomic: false,
    ignorePermissionErrors: true,
    // The directory itself and the allocations in it; never what is inside those.
    ignored: (path) => path !== allocDir && (dirname(path) !== allocDir || !isUuid(basename(path))),
  })

export class AllocationWatch {
  readonly #allocDir: string
  readonly #log: Logger
  readonly #wake: (id: string | undefined) => void
  readonly #watcher: Watcher
  /** ID → monotonic time from which its watch can be relied on. */
  readonly #watched = new Map<string, number>()
  #ready = false
  #failed = false

  /**
   * `wake` gets the ID of the allocation where something happened, or undefined for "anything may have". `allocDir` has
   * no symlinks in it.
   */
  constructor(options: {
    allocDir: string
    log: Logger
    wake: (id: string | undefined) => void
    open?: OpenWatcher
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

  /** False while new allocations must be looked for. */
  get works(): boolean {
    return this.#ready && !this.#failed
  }

  /** False while this allocation must be polled. */
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
      this.#log.warn('watching allocations', { error: messageOf(error) })
      this.#wake(undefined)
      return
    }
    this.#failed = true
    this.#watched.clear()
    this.#log.warn('no watches left on this host: allocations are polled from now on', {
      code,
      remedy: 'raise fs.inotify.max_user_watches',
    })
    void this.#watcher.close()
    this.#wake(undefined)
  }
}

/** The allocation an event is about: undefined when that cannot be told, empty when it is about none. */
function idOf(allocDir: string, path: string, details: unknown): string | undefined {
  const watched = typeof details === 'object' && details !== null && 'watchedPath' in details ? details.watchedPath : ''
  if (typeof watched !== 'string' || typeof path !== 'string') return undefined
  const name = watched === allocDir ? basename(path) : basename(watched)
  if (isUuid(name)) return name
  return watched === allocDir ? '' : undefined
}
