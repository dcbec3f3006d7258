/**
 * Rows of the primary's log as they arrive, applied in transactions of as many as have come meanwhile. Bounded: what has come and
 * was not applied; beyond that the stream stands still.
 */
import type { LogRow, CommitPosition, ReplicaStore } from '../../storage/store/replica.ts'

/** Of a row beside its batch, in memory: a million rows without content are no less than some of content. */
const ROW_BYTES = 256
/** Of one transaction. */
const TRANSACTION_BYTES = 4 << 20
const TRANSACTION_ROWS = 1024

export interface Flow {
  pause(): unknown
  resume(): unknown
}

export class Applier {
  readonly #store: ReplicaStore
  readonly #flow: Flow
  readonly #bytesMax: number
  readonly #onApplied: (position: CommitPosition) => Promise<void>
  readonly #onFailure: (error: unknown) => void
  #rows: LogRow[] = []
  #bytes = 0
  #isRunning = false
  #isStopped = false
  #running: Promise<void> = Promise.resolve()

  constructor(
    store: ReplicaStore,
    flow: Flow,
    bytesMax: number,
    told: {
      readonly onApplied: (position: CommitPosition) => Promise<void>
      readonly onFailure: (error: unknown) => void
    },
  ) {
    this.#store = store
    this.#flow = flow
    this.#bytesMax = bytesMax
    this.#onApplied = told.onApplied
    this.#onFailure = told.onFailure
  }

  /** Rows that have arrived and were not applied. */
  get waiting(): number {
    return this.#rows.length
  }

  take(rows: readonly LogRow[]): void {
    if (this.#isStopped) return
    for (const row of rows) {
      this.#rows.push(row)
      this.#bytes += row.batch.length + ROW_BYTES
    }
    if (this.#bytes > this.#bytesMax) this.#flow.pause()
    if (!this.#isRunning) this.#running = this.#run()
  }

  /** Applies what has arrived, then nothing more. Resolves when the store is left alone. */
  async drain(): Promise<void> {
    await this.#running
    this.#isStopped = true
  }

  /** Nothing more is applied. Resolves when the store is left alone. */
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
        const position = await this.#store.applyRows(rows)
        await this.#onApplied(position)
        if (this.#bytes <= this.#bytesMax / 2) this.#flow.resume()
      }
    } catch (error) {
      this.#isStopped = true
      this.#rows = []
      this.#onFailure(error)
    } finally {
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
