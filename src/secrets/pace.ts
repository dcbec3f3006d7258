/**
 * How many requests begin in one turn of the event loop while many are under way. Each takes a fraction of a millisecond,
 * but sixty at once would keep everybody else on this thread waiting, such as who follows a log, and a line passes several
 * turns on its way. What is beyond waits for the next turn, in order.
 */
export class Pace {
  readonly #waiting: (() => void)[] = []
  readonly #atOnce: number
  #begun = 0
  #isTurning = false

  constructor(atOnce: number) {
    this.#atOnce = atOnce
  }

  get hasWaiting(): boolean {
    return this.#waiting.length > 0
  }

  /** Undefined: go on. Otherwise resolves when it is this one's turn. */
  enter(): Promise<void> | undefined {
    if (this.#begun < this.#atOnce && this.#waiting.length === 0) {
      this.#begun++
      this.#turn()
      return undefined
    }
    return new Promise((resolve) => {
      this.#waiting.push(resolve)
      this.#turn()
    })
  }

  #turn(): void {
    if (this.#isTurning) return
    this.#isTurning = true
    setImmediate(() => {
      this.#isTurning = false
      const next = this.#waiting.splice(0, this.#atOnce)
      this.#begun = next.length
      if (next.length > 0) this.#turn()
      for (const resume of next) resume()
    })
  }
}
