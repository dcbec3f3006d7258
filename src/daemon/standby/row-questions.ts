/**
 * Asks the active server for its newest row. A question is sent after all requests that share its answer have arrived, so the row includes
 * everything that was acknowledged before any of them.
 */
export interface RowAnswer {
  readonly row: number
  /** When it was asked, by the monotonic clock. */
  readonly askedAtMs: number
}

export class RowQuestions {
  /** Resolves to undefined if no active server answers. Must not reject. */
  readonly #ask: () => Promise<number | undefined>
  #asking: Promise<RowAnswer | undefined> | undefined
  /** The question after the one in progress. */
  #next: Promise<RowAnswer | undefined> | undefined

  constructor(ask: () => Promise<number | undefined>) {
    this.#ask = ask
  }

  ask(): Promise<RowAnswer | undefined> {
    if (!this.#asking) return (this.#asking = this.#send())
    this.#next ??= this.#asking.then(() => {
      this.#next = undefined
      return (this.#asking = this.#send())
    })
    return this.#next
  }

  async #send(): Promise<RowAnswer | undefined> {
    const askedAtMs = performance.now()
    const row = await this.#ask()
    // Before anyone else continues: the next request starts the next question.
    if (!this.#next) this.#asking = undefined
    return row === undefined ? undefined : { row, askedAtMs }
  }
}
