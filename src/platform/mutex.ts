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
