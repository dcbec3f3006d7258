/** So many different things are remembered; beyond, something new is taken for said. */
const SAID_MAX = 50

/** What has been said since something changed, so that the log says each thing once. */
export class Once {
  readonly #said = new Set<string>()

  /** True the first time. */
  first(what: string): boolean {
    if (this.#said.has(what) || this.#said.size >= SAID_MAX) return false
    this.#said.add(what)
    return true
  }

  clear(): void {
    this.#said.clear()
  }
}
