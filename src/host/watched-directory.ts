/**
 * Wake-ups for the files of one directory.
 *
 * An event only says "look"; the truth is always fstat and the bytes. Events come from one inotify watch per directory,
 * shared by all its followers. Because inotify can overflow silently, miss remote writers, or be refused when the host
 * has no watches left, a safety poll looks at everything every `SAFETY_POLL_MS` anyway. Without a watch the poll is
 * quicker, so that a host short of watches still tails well within a second.
 *
 * `generation` grows whenever names may have changed: who caches a listing compares it.
 */
import { type FSWatcher, statSync, watch } from 'node:fs'
import { errnoOf } from '../kit/errors.ts'
import type { Logger } from '../kit/log.ts'

export const SAFETY_POLL_MS = 250
const UNWATCHED_POLL_MS = 25

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
  readonly #files = new Map<string, Set<Watcher>>()
  readonly #onFallback: (code: string) => void
  #watch: FSWatcher | undefined
  readonly #timer: NodeJS.Timeout
  #modifiedNs: bigint | undefined

  constructor(path: string, onFallback: (code: string) => void) {
    this.path = path
    this.#onFallback = onFallback
    this.#modifiedNs = this.#modified()
    this.#start()
    this.#timer = setInterval(() => this.#poll(), this.#watch ? SAFETY_POLL_MS : UNWATCHED_POLL_MS).unref()
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

  stop(): void {
    clearInterval(this.#timer)
    this.#watch?.close()
    this.#watch = undefined
  }

  #start(): void {
    try {
      this.#watch = watch(this.path, { persistent: false }, (event, name) => this.#event(event, name))
      this.#watch.on('error', (error) => {
        this.stop()
        this.#onFallback(errnoOf(error) ?? 'unknown')
      })
    } catch (error) {
      // The directory itself may be gone: the poll will find its files deleted. Any other reason is worth a word.
      const code = errnoOf(error) ?? 'unknown'
      if (code !== 'ENOENT') this.#onFallback(code)
    }
  }

  #event(event: string, name: string | null): void {
    if (event === 'rename' || name === null) {
      this.#namesChanged()
      return
    }
    for (const file of this.#files.get(name) ?? []) file.contentChanged()
  }

  #namesChanged(): void {
    this.generation++
    for (const same of this.#files.values()) for (const file of same) file.namesChanged()
  }

  #poll(): void {
    const modifiedNs = this.#modified()
    if (modifiedNs !== this.#modifiedNs) {
      this.#modifiedNs = modifiedNs
      this.#namesChanged()
    }
    for (const same of this.#files.values()) for (const file of same) file.poll()
  }

  #modified(): bigint | undefined {
    try {
      return statSync(this.path, { bigint: true }).mtimeNs
    } catch {
      return undefined // gone or unreadable: a change like any other
    }
  }
}
