/** How many requests are at a mount. */
export class Traffic {
  #underWay = 0
  readonly #waiting = new Set<() => void>()

  /** Counts one in; what it returns counts it out. */
  enter(): () => void {
    this.#underWay++
    return () => {
      this.#underWay--
      if (this.#underWay === 0) for (const resume of this.#waiting) resume()
    }
  }

  /** Resolves with true when nobody is there, with false when somebody still is after this time. */
  async idle(timeoutMs: number): Promise<boolean> {
    if (this.#underWay === 0) return true
    return new Promise((resolve) => {
      const done = (isIdle: boolean) => {
        clearTimeout(timer)
        this.#waiting.delete(resume)
        resolve(isIdle)
      }
      const resume = () => done(true)
      const timer = setTimeout(() => done(false), timeoutMs)
      this.#waiting.add(resume)
    })
  }
}
