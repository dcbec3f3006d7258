/**
 * The read index of a standby, as ReadIndex in Raft: the newest row of the active server, which a read must include. Requests that arrive
 * while one is in flight share the next one, which is sent after all of them have arrived: the row includes everything that was
 * acknowledged before any of them.
 */
export interface ConfirmedRow {
  readonly row: number
  /** When it was requested, by the monotonic clock. */
  readonly requestedAtMs: number
}

export class ReadIndex {
  /** Resolves to undefined if no active server answers. Must not reject. */
  readonly #requestRow: () => Promise<number | undefined>
  #inFlight: Promise<ConfirmedRow | undefined> | undefined
  /** The request after the one in flight. */
  #next: Promise<ConfirmedRow | undefined> | undefined

  constructor(requestRow: () => Promise<number | undefined>) {
    this.#requestRow = requestRow
  }

  request(): Promise<ConfirmedRow | undefined> {
    if (!this.#inFlight) return (this.#inFlight = this.#send())
    this.#next ??= this.#inFlight.then(() => {
      this.#next = undefined
      return (this.#inFlight = this.#send())
    })
    return this.#next
  }

  async #send(): Promise<ConfirmedRow | undefined> {
    const requestedAtMs = performance.now()
    const row = await this.#requestRow()
    // Before any caller continues: its next read needs a new request.
    if (!this.#next) this.#inFlight = undefined
    return row === undefined ? undefined : { row, requestedAtMs }
  }
}
