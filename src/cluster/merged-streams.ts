/**
 * Many streams as one, in the order in which their pieces come. Each is read only as fast as the one reader takes: what
 * waits for it is bounded, and beyond that every stream keeps one piece in its hand and is not asked for more.
 */

/** Bytes that may wait; one piece may go beyond. */
const WAITING_BYTES_MAX = 1 << 20

export class MergedStreams {
  readonly #waiting: Buffer[] = []
  #bytes = 0
  readonly #forRoom: (() => void)[] = []
  #wake: (() => void) | undefined
  #closed = false
  #running = 0

  /** Streams under way. */
  get running(): number {
    return this.#running
  }

  /** Runs a source, which puts its pieces here; it says itself what goes wrong. */
  run(source: () => Promise<void>): void {
    this.#running++
    const end = () => {
      this.#running--
      this.wake()
    }
    void source().then(end, end)
  }

  /** Resolves when there was room; false when nobody reads any more. */
  async put(piece: Buffer): Promise<boolean> {
    while (!this.#closed && this.#bytes >= WAITING_BYTES_MAX) {
      await new Promise<void>((resolve) => {
        this.#forRoom.push(resolve)
      })
    }
    if (this.#closed) return false
    if (piece.length > 0) this.#waiting.push(piece)
    this.#bytes += piece.length
    this.wake()
    return true
  }

  /** The next piece; undefined when there is none within the time, or when `wake` was called. */
  async next(withinMs: number): Promise<Buffer | undefined> {
    if (this.#waiting.length === 0) await this.#wait(withinMs)
    const piece = this.#waiting.shift()
    if (!piece) return undefined
    this.#bytes -= piece.length
    if (this.#bytes < WAITING_BYTES_MAX) this.#forRoom.shift()?.()
    return piece
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0
  }

  /** Lets the reader look again. */
  wake(): void {
    this.#wake?.()
  }

  #wait(withinMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, withinMs).unref()
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  /** Nobody reads any more: whoever waits for room is told. */
  close(): void {
    this.#closed = true
    for (const go of this.#forRoom.splice(0)) go()
  }
}
