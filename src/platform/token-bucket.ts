/** How much each of many senders may send: a sum that fills up at a steady rate, up to a limit (token bucket). */
export class TokenBuckets {
  readonly #perSecond: number
  readonly #most: number
  readonly #now: () => number
  readonly #senders = new Map<string, { left: number; atMs: number }>()

  /** `most` may be sent at once; `now` is a monotonic clock in milliseconds. */
  constructor(options: { readonly perSecond: number; readonly most: number; readonly now: () => number }) {
    this.#perSecond = options.perSecond
    this.#most = options.most
    this.#now = options.now
  }

  /** Takes so much from what the sender has left; false where that is less. */
  take(sender: string, amount: number): boolean {
    const nowMs = this.#now()
    const state = this.#senders.get(sender) ?? { left: this.#most, atMs: nowMs }
    this.#senders.set(sender, state)
    state.left = this.#leftOf(state, nowMs)
    state.atMs = nowMs
    if (state.left < amount) return false
    state.left -= amount
    return true
  }

  #leftOf({ left, atMs }: { left: number; atMs: number }, nowMs: number): number {
    return Math.min(this.#most, left + ((nowMs - atMs) / 1000) * this.#perSecond)
  }

  /** Forgets senders that have everything left. */
  sweep(): void {
    const nowMs = this.#now()
    for (const [sender, state] of this.#senders) {
      if (this.#leftOf(state, nowMs) >= this.#most) this.#senders.delete(sender)
    }
  }
}
