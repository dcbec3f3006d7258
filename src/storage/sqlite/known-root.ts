/**
 * The root of the tree of hashes, for those who ask again and again: the thread that writes is asked only when something has
 * changed since its last answer, by one at a time, and not more often than so many times a second. Who asks gets a root
 * that is no older than the question.
 */
import { sleep } from '../../platform/clock.ts'

/** Between two questions to the thread that writes. */
const PAUSE_MS = 50

export class KnownRoot {
  readonly #ask: () => Promise<Buffer>
  readonly #version: () => string
  #known: { readonly version: string; readonly root: Buffer } | undefined
  /** What those get who ask now; it has not gone to the writer yet. */
  #next: Promise<Buffer> | undefined
  #asked: Promise<unknown> = Promise.resolve()
  #answeredAtMs = Number.NEGATIVE_INFINITY

  /** `version`: another one after each change of the tree that this thread was told of. */
  constructor(ask: () => Promise<Buffer>, version: () => string) {
    this.#ask = ask
    this.#version = version
  }

  /** Rejects with what the question does. */
  get(): Promise<Buffer> {
    if (this.#known?.version === this.#version()) return Promise.resolve(this.#known.root)
    return (this.#next ??= this.#answer())
  }

  async #answer(): Promise<Buffer> {
    await this.#asked
    const waitMs = this.#answeredAtMs + PAUSE_MS - performance.now()
    if (waitMs > 0) await sleep(waitMs)
    this.#next = undefined
    const version = this.#version()
    const asked = this.#ask()
    this.#asked = asked.catch(() => undefined)
    try {
      const root = await asked
      // What was changed meanwhile may be in it or not.
      if (version === this.#version()) this.#known = { version, root }
      return root
    } finally {
      this.#answeredAtMs = performance.now()
    }
  }
}
