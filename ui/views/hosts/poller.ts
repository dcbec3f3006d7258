/**
 * Reads a value of each of many hosts: those on the screen again and again, and all others once if requested. Few reads run at a time: a
 * browser has six connections to a server.
 */

export interface PollerOptions<T> {
  readonly read: (id: string, signal: AbortSignal) => Promise<T>
  /** Called soon after values have changed, at most once in `CHANGE_MS`. */
  readonly onChange: () => void
  /** Age at which a value on the screen is read again. */
  readonly refreshMs: number
  readonly isPaused?: () => boolean
  /** An error that a further read repeats, such as a refusal. The value of that host is not read again. */
  readonly isFinal?: (error: Error) => boolean
}

export interface Reading<T> {
  /** The last value; undefined if no read has succeeded. */
  readonly value: T | undefined
  readonly error: Error | undefined
  readonly atMs: number
}

export interface SweepProgress {
  readonly done: number
  readonly total: number
}

const CONCURRENT = 5
const CHANGE_MS = 250
const TICK_MS = 1000
/** Hosts that scroll by are not read: rows count as visible when the list has stopped. */
const REST_MS = 150

export class Poller<T> {
  readonly #options: PollerOptions<T>
  readonly #readings = new Map<string, Reading<T>>()
  readonly #underway = new Set<string>()
  readonly #abort = new AbortController()
  readonly #timer: ReturnType<typeof setInterval>
  #visible: readonly string[] = []
  #shownAtMs = -Infinity
  #rest: ReturnType<typeof setTimeout> | undefined
  #sweep: readonly string[] | undefined
  #swept = 0
  #change: ReturnType<typeof setTimeout> | undefined

  constructor(options: PollerOptions<T>) {
    this.#options = options
    this.#timer = setInterval(() => this.#pump(), TICK_MS)
  }

  reading(id: string): Reading<T> | undefined {
    return this.#readings.get(id)
  }

  /** Of the last sweep; undefined if there was none. */
  get progress(): SweepProgress | undefined {
    if (this.#sweep === undefined) return undefined
    const total = this.#sweep.length
    return { done: this.#swept < total ? Math.max(0, this.#swept - this.#underway.size) : total, total }
  }

  show(ids: readonly string[]): void {
    const nowMs = performance.now()
    const isMoving = nowMs - this.#shownAtMs < REST_MS
    this.#shownAtMs = nowMs
    clearTimeout(this.#rest)
    this.#visible = isMoving ? [] : ids
    if (isMoving) this.#rest = setTimeout(() => this.#look(ids), REST_MS)
    else this.#pump()
  }

  #look(ids: readonly string[]): void {
    this.#visible = ids
    this.#pump()
  }

  /** Reads all of these once. Replaces an earlier sweep. */
  sweep(ids: readonly string[]): void {
    this.#sweep = ids
    this.#swept = 0
    this.#pump()
    this.#options.onChange()
  }

  close(): void {
    this.#abort.abort()
    clearInterval(this.#timer)
    clearTimeout(this.#change)
    clearTimeout(this.#rest)
  }

  #pump(): void {
    if (this.#abort.signal.aborted || this.#options.isPaused?.()) return
    while (this.#underway.size < CONCURRENT) {
      const id = this.#next()
      if (id === undefined) return
      void this.#read(id)
    }
  }

  #next(): string | undefined {
    const due = performance.now() - this.#options.refreshMs
    const isDue = (id: string) => {
      const { atMs = -Infinity, error } = this.#readings.get(id) ?? {}
      return !this.#underway.has(id) && atMs <= due && !(error && this.#options.isFinal?.(error))
    }
    const visible = this.#visible.find(isDue)
    if (visible !== undefined) return visible
    const sweep = this.#sweep ?? []
    while (this.#swept < sweep.length) {
      const id = sweep[this.#swept++]
      if (id !== undefined && isDue(id)) return id
    }
    return undefined
  }

  async #read(id: string): Promise<void> {
    this.#underway.add(id)
    let reading: Reading<T>
    try {
      const value = await this.#options.read(id, this.#abort.signal)
      reading = { value, error: undefined, atMs: performance.now() }
    } catch (error) {
      const failure = error instanceof Error ? error : new Error(String(error))
      reading = { value: this.#readings.get(id)?.value, error: failure, atMs: performance.now() }
    }
    this.#underway.delete(id)
    if (this.#abort.signal.aborted) return
    this.#readings.set(id, reading)
    this.#changed()
    this.#pump()
  }

  #changed(): void {
    this.#change ??= setTimeout(() => {
      this.#change = undefined
      this.#options.onChange()
    }, CHANGE_MS)
  }
}
