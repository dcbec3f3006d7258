/**
 * The read index of a standby, as ReadIndex in Raft: the newest row of the active server, which a read must include. Requests that arrive
 * while one is in flight share the next one, which is sent after all of them have arrived: the row includes everything that was
 * acknowledged before any of them.
 */
import type { ActiveRows } from '../../ha/active-rows.ts'

export interface ConfirmedRows extends ActiveRows {
  /** When they were requested, by the monotonic clock. */
  readonly requestedAtMs: number
}

export class ReadIndex {
  /** Resolves to undefined if no active server answers. Must not reject. */
  readonly #requestRows: () => Promise<ActiveRows | undefined>
  #inFlight: Promise<ConfirmedRows | undefined> | undefined
  /** The request after the one in flight. */
  #next: Promise<ConfirmedRows | undefined> | undefined

  constructor(requestRows: () => Promise<ActiveRows | undefined>) {
    this.#requestRows = requestRows
  }

  request(): Promise<ConfirmedRows | undefined> {
    if (!this.#inFlight) return (this.#inFlight = this.#send())
    this.#next ??= this.#inFlight.then(() => {
      this.#next = undefined
      return (this.#inFlight = this.#send())
    })
    return this.#next
  }

  async #send(): Promise<ConfirmedRows | undefined> {
    const requestedAtMs = performance.now()
    const rows = await this.#requestRows()
    // Before any caller continues: its next read needs a new request.
    if (!this.#next) this.#inFlight = undefined
    return rows && { ...rows, requestedAtMs }
  }
}
