/**
 * Synchronous replication: a commit is answered once every secondary has it on its disk, for at most so long. When that time is
 * over commits go on without, `degraded`, and everything says so until all of them have caught up again. A secondary counts
 * from the moment at which its first copy is whole: no commit waits for that.
 */
import type { Logger } from '../../platform/log.ts'
import type { ReplicaStore } from '../../storage/store/replica.ts'

export type SyncState = 'off' | 'on' | 'degraded'

/** What the secondaries have together. */
export interface Together {
  /** Up to here all of them have it. */
  readonly acknowledged: number
  /** All of them are connected and have everything, or had it a moment ago. */
  readonly isCaughtUp: boolean
}

interface Waiter {
  readonly sequence: number
  readonly resolve: () => void
  readonly reject: (error: Error) => void
}

export class Sync {
  readonly #store: ReplicaStore
  readonly #logger: Logger
  readonly #timeoutMs: number
  /** Of the secondaries that have been whole once; undefined when there is none. */
  readonly #together: () => Together | undefined
  #state: SyncState = 'off'
  /** In the order of their sequences. */
  readonly #waiting: Waiter[] = []

  constructor(store: ReplicaStore, logger: Logger, timeoutMs: number, together: () => Together | undefined) {
    this.#store = store
    this.#logger = logger
    this.#timeoutMs = timeoutMs
    this.#together = together
  }

  get state(): SyncState {
    return this.#state
  }

  /** Commits that are durable here and wait for a secondary. */
  get waiting(): number {
    return this.#waiting.length
  }

  /** Commits wait from now on; those that come before secondaries are there wait for their time, once. */
  start(): void {
    this.#state = this.#together() ? 'on' : 'degraded'
    this.#store.acknowledgement = (sequence) => this.#wait(sequence)
  }

  /** `lost`: what commits fail with that still wait; without it they are answered as durable here. */
  stop(lost?: Error): void {
    this.#store.acknowledgement = undefined
    this.#state = 'off'
    if (lost) for (const waiter of this.#waiting.splice(0)) waiter.reject(lost)
    this.#release(Number.POSITIVE_INFINITY)
  }

  #wait(sequence: number): Promise<void> | undefined {
    if (this.#state !== 'on') return undefined
    const together = this.#together()
    if (!together) {
      this.#degrade('there is no secondary')
      return undefined
    }
    if (together.acknowledged >= sequence) return undefined
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#degrade(`no acknowledgement within ${this.#timeoutMs} ms`), this.#timeoutMs)
      this.#waiting.push({
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

  /** Secondaries have come, gone or got further. */
  look(): void {
    if (this.#state === 'off') return
    const together = this.#together()
    if (together) this.#release(together.acknowledged)
    if (this.#state !== 'degraded' || !together?.isCaughtUp) return
    this.#state = 'on'
    this.#logger.info('the secondaries have caught up: commits wait for them again')
  }

  #degrade(why: string): void {
    if (this.#state !== 'on') return
    this.#state = 'degraded'
    this.#logger.warn('commits do not wait for secondaries until these have caught up: a failover could lose some', {
      why,
    })
    this.#release(Number.POSITIVE_INFINITY)
  }

  #release(acknowledged: number): void {
    let first = this.#waiting[0]
    while (first && first.sequence <= acknowledged) {
      this.#waiting.shift()
      first.resolve()
      first = this.#waiting[0]
    }
  }
}
