/**
 * Synchronous replication: a commit is answered once every secondary has it on disk. After `sync_timeout` commits no longer wait
 * and the state is `degraded`, until all secondaries have caught up. A secondary counts from the end of its initial sync.
 */
import type { Logger } from '../../platform/log.ts'
import type { ReplicaStore } from '../../storage/store/replica.ts'

export type SyncState = 'off' | 'on' | 'degraded'

/** Progress of all secondaries together. */
export interface SyncProgress {
  /** All secondaries have the log up to here. */
  readonly acknowledged: number
  /** All secondaries are connected and caught up. */
  readonly isCaughtUp: boolean
}

interface Waiter {
  readonly sequence: number
  readonly resolve: () => void
  readonly reject: (error: Error) => void
}

export class SyncReplication {
  readonly #store: ReplicaStore
  readonly #logger: Logger
  readonly #timeoutMs: number
  /** Of the secondaries that have completed their initial sync; undefined when there are none. */
  readonly #progress: () => SyncProgress | undefined
  #state: SyncState = 'off'
  /** Ordered by sequence. */
  readonly #waiters: Waiter[] = []

  constructor(store: ReplicaStore, logger: Logger, timeoutMs: number, progress: () => SyncProgress | undefined) {
    this.#store = store
    this.#logger = logger
    this.#timeoutMs = timeoutMs
    this.#progress = progress
  }

  get state(): SyncState {
    return this.#state
  }

  /** Commits that are durable here and wait for a secondary. */
  get waiting(): number {
    return this.#waiters.length
  }

  /** Commits wait from now on; until a secondary connects they wait for the timeout, once. */
  start(): void {
    this.#state = this.#progress() ? 'on' : 'degraded'
    this.#store.acknowledgement = (sequence) => this.#awaitAcknowledgement(sequence)
  }

  /** Waiting commits fail with `lost`; without it they succeed as durable on this cluster. */
  stop(lost?: Error): void {
    this.#store.acknowledgement = undefined
    this.#state = 'off'
    if (lost) for (const waiter of this.#waiters.splice(0)) waiter.reject(lost)
    this.#release(Number.POSITIVE_INFINITY)
  }

  #awaitAcknowledgement(sequence: number): Promise<void> | undefined {
    if (this.#state !== 'on') return undefined
    const progress = this.#progress()
    if (!progress) {
      this.#degrade('there is no secondary')
      return undefined
    }
    if (progress.acknowledged >= sequence) return undefined
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#degrade(`no acknowledgement within ${this.#timeoutMs} ms`), this.#timeoutMs)
      this.#waiters.push({
        sequence,
        resolve: () => {
          clearTimeout(timer)
          resolve()
        },
        reject: (error) => {
          clearTimeout(timer)
          reject(error)
        },
      })
    })
  }

  /** Called when a secondary connects, disconnects, acknowledges or is revoked. */
  update(): void {
    if (this.#state === 'off') return
    const progress = this.#progress()
    if (!progress) return this.#degrade('there is no secondary')
    this.#release(progress.acknowledged)
    if (this.#state !== 'degraded' || !progress.isCaughtUp) return
    this.#state = 'on'
    this.#logger.info('synchronous replication restored')
  }

  #degrade(why: string): void {
    if (this.#state !== 'on') return
    this.#state = 'degraded'
    this.#logger.warn('synchronous replication degraded', {
      why,
    })
    this.#release(Number.POSITIVE_INFINITY)
  }

  #release(acknowledged: number): void {
    let first = this.#waiters[0]
    while (first && first.sequence <= acknowledged) {
      this.#waiters.shift()
      first.resolve()
      first = this.#waiters[0]
    }
  }
}
