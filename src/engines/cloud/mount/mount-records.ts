/** Places for work that many may ask for: so many are in at a time, the others wait in order, and each caller has so many of both. */

export interface Place {
  /** Resolves when the work may begin. */
  readonly entered: Promise<void>
  /** The work is over. To be called once. */
  readonly done: () => void
}

export class Places {
  readonly #atOnce: number
  readonly #ofCaller: number
  readonly #callers = new Map<string, number>()
  readonly #waiting: (() => void)[] = []
  #running = 0

  constructor(atOnce: number, ofCaller: number) {
    this.#atOnce = atOnce
    this.#ofCaller = ofCaller
  }

  get isEmpty(): boolean {
    return this.#callers.size === 0
  }

  /** Undefined for a caller that has too many already. */
  enter(caller: string): Place | undefined {
    const count = this.#callers.get(caller) ?? 0
    if (count >= this.#ofCaller) return undefined
    this.#callers.set(caller, count + 1)
    const { promise: entered, resolve } = Promise.withResolvers<void>()
    if (this.#running < this.#atOnce) {
      this.#running++
      resolve()
    } else this.#waiting.push(resolve)
    return { entered, done: () => this.#leave(caller) }
  }

  #leave(caller: string): void {
    const count = (this.#callers.get(caller) ?? 1) - 1
    if (count > 0) this.#callers.set(caller, count)
    else this.#callers.delete(caller)
    const next = this.#waiting.shift()
    // It takes the place over.
    if (next) next()
    else this.#running--
  }
}
