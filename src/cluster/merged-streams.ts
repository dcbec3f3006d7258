/**
 * Many streams as one, in the order in which their pieces come. Each is read only as fast as the one reader takes: what
 * waits for it is bounded, and beyond that every stream keeps one piece in its hand and is not asked for more. Streams are of
 * groups (nodes), which get room in turn: one with very many streams is no quicker than one with a single stream.
 */

/** Bytes that may wait; one piece may go beyond. */
const WAITING_BYTES_MAX = 1 << 20

export class MergedStreams {
  readonly #waiting: Buffer[] = []
  #bytes = 0
  /** Who waits, by group; the first group is next. */
  readonly #forRoom = new Map<string, (() => void)[]>()
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
  async put(piece: Buffer, group: string): Promise<boolean> {
    while (!this.#closed && this.#bytes >= WAITING_BYTES_MAX) {
      await new Promise<void>((resolve) => {
        const waiting = this.#forRoom.get(group)
        if (waiting) waiting.push(resolve)
        else this.#forRoom.set(group, [resolve])
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
    if (this.#bytes < WAITING_BYTES_MAX) this.#letIn()
    return piece
  }

  #letIn(): void {
    const [first] = this.#forRoom
    if (!first) return
    const [group, waiting] = first
    const go = waiting.shift()
    // Behind the others, if more of it wait.
    this.#forRoom.delete(group)
    if (waiting.length > 0) this.#forRoom.set(group, waiting)
    go?.()
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
    for (const waiting of this.#forRoom.values()) for (const go of waiting) go()
    this.#forRoom.clear()
  }
}
