/** Messages of the commit stream that NATS sent to a follower. */
import { Condition } from '../../platform/mutex.ts'

/** Maximum number of buffered messages. The follower reads further ones from the stream. */
const ARRIVED_MAX = 1000
/** Time without a delay after a reader has waited for messages: others often follow. */
const NO_DELAY_MS = 100

export interface StoredMessage {
  readonly sequence: number
  readonly payload: Uint8Array
  /** Messages after this one, as far as NATS knew. */
  readonly pending: number
}

/** Messages in the order of their arrival. */
export class ArrivedMessages {
  #messages: StoredMessage[] = []
  #isCut = false
  readonly #arrival = new Condition()
  readonly #noDelay = new Condition()
  #noDelayUntilMs = Number.NEGATIVE_INFINITY

  add(message: StoredMessage): void {
    // A follower that is slow reads the rest from the stream.
    if (this.#messages.length >= ARRIVED_MAX) this.#isCut = true
    else this.#messages.push(message)
    this.wake()
  }

  /** The messages from `next` on that have arrived without a gap. */
  take(next: number): StoredMessage[] {
    const taken: StoredMessage[] = []
    const rest = this.#messages.filter(({ sequence }) => sequence >= next)
    for (const message of rest) {
      if (message.sequence !== next + taken.length) break
      taken.push(message)
    }
    this.#messages = rest.slice(taken.length)
    return taken.map((message, at) => ({ ...message, pending: taken.length - 1 - at }))
  }

  /** Whether `next` is missing before messages that have arrived. Messages in the gap are dropped: they are read from the stream. */
  hasGap(next: number): boolean {
    const hasGap = this.#isCut || this.#messages.some(({ sequence }) => sequence > next)
    if (hasGap) this.#messages = []
    this.#isCut = false
    return hasGap
  }

  /** Resolves to false when a message arrives, to true after `ms`. */
  async wait(ms: number): Promise<boolean> {
    if (this.#messages.length > 0) return false
    return !(await this.#arrival.wait(ms))
  }

  /** Resolves after `ms`, in which more messages may arrive, or at once while a reader waits for them. */
  async delayBatch(ms: number): Promise<void> {
    if (performance.now() < this.#noDelayUntilMs) return
    await this.#noDelay.wait(ms)
  }

  /** A reader waits for messages that have arrived or soon will. */
  skipBatchDelay(): void {
    this.#noDelayUntilMs = performance.now() + NO_DELAY_MS
    this.#noDelay.notifyAll()
  }

  wake(): void {
    this.#arrival.notifyAll()
  }
}
