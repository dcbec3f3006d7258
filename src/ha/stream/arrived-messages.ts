/** Messages of the commit stream that NATS sent to a follower. */

/** More are not kept: the follower reads them from the stream. */
const ARRIVED_MAX = 1000
/** A reader that waits for messages is often followed by others. */
const HURRIED_MS = 100

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
  #wake: (() => void) | undefined
  #endGathering: (() => void) | undefined
  #hurriedUntilMs = Number.NEGATIVE_INFINITY

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
  wait(ms: number): Promise<boolean> {
    if (this.#messages.length > 0) return Promise.resolve(false)
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.#wake = undefined
        resolve(true)
      }, ms)
      this.#wake = () => {
        clearTimeout(timer)
        this.#wake = undefined
        resolve(false)
      }
    })
  }

  /** Resolves after `ms`, in which more messages may arrive, or at once while a reader waits for them. */
  async gather(ms: number): Promise<void> {
    if (performance.now() < this.#hurriedUntilMs) return
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.#endGathering = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  /** A reader waits for messages that have arrived or soon will. */
  hurry(): void {
    this.#hurriedUntilMs = performance.now() + HURRIED_MS
    this.#endGathering?.()
  }

  wake(): void {
    this.#wake?.()
  }
}
