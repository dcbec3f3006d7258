/** Turns by name: what has the same one is done one after the other. */
export class Turns {
  readonly #last = new Map<string, Promise<unknown>>()

  isTaken(name: string): boolean {
    return this.#last.has(name)
  }

  /** Waits for its turn, and resolves or rejects as `work` does. */
  async take<T>(name: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(name) ?? Promise.resolve()
    const turn = before.then(work, work)
    this.#last.set(name, turn)
    try {
      return await turn
    } finally {
      if (this.#last.get(name) === turn) this.#last.delete(name)
    }
  }
}
