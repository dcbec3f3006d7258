/** The order in which groups and orders are sent to the writer, while some of them wait for the commit log. */
export class SendOrder {
  /** Resolves when all so far were sent; undefined when none waits. */
  #sending: Promise<void> | undefined

  /** Runs `send` at once, or after what waits for the commit log. It must not throw or reject. */
  run(send: () => Promise<void> | void): void {
    const sending = this.#sending ? this.#sending.then(send) : send()
    if (!sending) return
    this.#sending = sending
    void sending.finally(() => {
      if (this.#sending === sending) this.#sending = undefined
    })
  }
}
