/** A condition variable: callers wait until they are notified. A notification while none waits is lost. */
export class Condition {
  readonly #waiters = new Set<() => void>()

  /** Resolves to true when notified, to false after `timeoutMs`. */
  wait(timeoutMs?: number): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = timeoutMs === undefined ? undefined : setTimeout(() => end(false), timeoutMs)
      const notified = () => end(true)
      const end = (isNotified: boolean) => {
        clearTimeout(timer)
        this.#waiters.delete(notified)
        resolve(isNotified)
      }
      this.#waiters.add(notified)
    })
  }

  notifyAll(): void {
    for (const notify of this.#waiters) notify()
  }
}
