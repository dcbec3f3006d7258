/** Serializes work: runs one after the other, in the order of the calls. */
export class Mutex {
  #last: Promise<unknown> = Promise.resolve()

  /** Resolves or rejects as `work` does. A failure concerns this caller only. */
  runExclusive<T>(work: () => Promise<T>): Promise<T> {
    const own = this.#last.then(work)
    this.#last = own.catch(() => undefined)
    return own
  }

  /** Resolves when the work that was started before has ended. */
  async whenIdle(): Promise<void> {
    await this.#last
  }
}

/** A mutex for each key: work with the same key runs one after the other, in the order of the calls. */
export class KeyedMutex {
  readonly #last = new Map<string, Promise<unknown>>()

  isLocked(key: string): boolean {
    return this.#last.has(key)
  }

  /** Resolves or rejects as `work` does. */
  async runExclusive<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key) ?? Promise.resolve()
    const own = before.then(work, work)
    this.#last.set(key, own)
    try {
      return await own
    } finally {
      if (this.#last.get(key) === own) this.#last.delete(key)
    }
  }
}

/** A condition variable: callers wait until they are notified. A notification while none waits is lost. */
export class Condition {
  readonly #waiters = new Set<() => void>()

  /** Resolves to true when notified, to false after `timeoutMs`. */
  wait(timeoutMs?: number): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = timeoutMs === undefined ? undefined : setTimeout(() => end(false), timeoutMs)
      const notified = () => end(true)
      const end = (isNotified: boolean) => {
        clearTimeout(timer)
        this.#waiters.delete(notified)
        resolve(isNotified)
      }
      this.#waiters.add(notified)
    })
  }

  notifyAll(): void {
    for (const notify of this.#waiters) notify()
  }
}
