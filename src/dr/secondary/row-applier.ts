/**
 * Applies rows of the primary's log in transactions, batching what arrived meanwhile. Bounded: beyond a limit of queued bytes the
 * stream is paused.
 */
import type { LogRow, CommitPosition, ReplicaStore } from '../../storage/store/replica.ts'

/** Overhead of a row in memory. */
const ROW_BYTES = 256
/** Per transaction. */
const TRANSACTION_BYTES = 4 << 20
const TRANSACTION_ROWS = 1024

export interface FlowControl {
  pause(): unknown
  resume(): unknown
}

export class RowApplier {
  readonly #store: ReplicaStore
  readonly #flow: FlowControl
  readonly #bytesMax: number
  readonly #onApplied: (position: CommitPosition) => Promise<void>
  readonly #onFailure: (error: unknown) => void
  #rows: LogRow[] = []
  /** Rows of the transaction in progress. */
  #applying = 0
  #bytes = 0
  #isRunning = false
  #isStopped = false
  #running: Promise<void> = Promise.resolve()

  constructor(
    store: ReplicaStore,
    flow: FlowControl,
    bytesMax: number,
    callbacks: {
      readonly onApplied: (position: CommitPosition) => Promise<void>
      readonly onFailure: (error: unknown) => void
    },
  ) {
    this.#store = store
    this.#flow = flow
    this.#bytesMax = bytesMax
    this.#onApplied = callbacks.onApplied
    this.#onFailure = callbacks.onFailure
  }

  /** Received rows that are not applied yet. */
  get waiting(): number {
    return this.#rows.length + this.#applying
  }

  enqueue(rows: readonly LogRow[]): void {
    if (this.#isStopped) return
    for (const row of rows) {
      this.#rows.push(row)
      this.#bytes += row.batch.length + ROW_BYTES
    }
    if (this.#bytes > this.#bytesMax) this.#flow.pause()
    if (!this.#isRunning) this.#running = this.#run()
  }

  /** Applies the queued rows, then stops. Resolves when the store is no longer written. */
  async drain(): Promise<void> {
    await this.#running
    this.#isStopped = true
  }

  /** Discards the queued rows. Resolves when the store is no longer written. */
  stop(): Promise<void> {
    this.#isStopped = true
    this.#rows = []
    return this.#running
  }

  async #run(): Promise<void> {
    this.#isRunning = true
    try {
      while (this.#rows.length > 0) {
        const rows = this.#next()
        this.#applying = rows.length
        await this.#onApplied(await this.#store.applyRows(rows))
        this.#applying = 0
        if (this.#bytes <= this.#bytesMax / 2) this.#flow.resume()
      }
    } catch (error) {
      this.#isStopped = true
      this.#rows = []
      this.#onFailure(error)
    } finally {
      this.#applying = 0
      this.#isRunning = false
    }
  }

  #next(): LogRow[] {
    let [count, bytes] = [0, 0]
    for (const { batch } of this.#rows) {
      if (count > 0 && (bytes + batch.length > TRANSACTION_BYTES || count >= TRANSACTION_ROWS)) break
      count++
      bytes += batch.length + ROW_BYTES
    }
    this.#bytes -= bytes
    return this.#rows.splice(0, count)
  }
}
