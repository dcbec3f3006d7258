/**
 * How much is begun in one turn of the event loop while many requests are under way. Each takes a fraction of a
 * millisecond, but sixty at once would keep everybody else on this thread waiting, such as who follows a log, and a line
 * passes several turns on its way. What is beyond the time of a turn waits for the next one, in order.
 */
export class Pace {
  readonly #waiting: (() => void)[] = []
  readonly #turnMs: number
  readonly #now: () => number
  /** When the first one of this turn began. */
  #beganMs: number | undefined
  #isTurning = false

  /** `turnMs`: past that, none begins in the same turn; the first one always does. */
  constructor(turnMs: number, now: () => number = () => performance.now()) {
    this.#turnMs = turnMs
    this.#now = now
  }

  get hasWaiting(): boolean {
    return this.#waiting.length > 0
  }

  /** Undefined: go on. Otherwise resolves when it is this one's turn. */
  enter(): Promise<void> | undefined {
    if (this.#waiting.length === 0 && this.#hasTime()) {
      this.#turn()
      return undefined
    }
    return new Promise((resolve) => {
      this.#waiting.push(resolve)
      this.#turn()
    })
  }

  #hasTime(): boolean {
    const nowMs = this.#now()
    if (this.#beganMs !== undefined) return nowMs - this.#beganMs < this.#turnMs
    this.#beganMs = nowMs
    return true
  }

  #turn(): void {
    if (this.#isTurning) return
    this.#isTurning = true
    setImmediate(() => {
      this.#isTurning = false
      this.#beganMs = undefined
      if (this.#waiting.length > 0) this.#turn()
      this.#resumeNext()
    })
  }

  #resumeNext(): void {
    if (this.#waiting.length === 0 || !this.#hasTime()) return
    this.#waiting.shift()?.()
    // Behind what that one does first, so that its time counts.
    queueMicrotask(() => this.#resumeNext())
  }
}
