/**
 * The logs of a job that one host has, read once. That a log has an end, the host says; one that sends without an end, or a
 * word now and then, would keep the answer from its end, by each of its allocations anew. So there is one bound for
 * all of them: a host that is too slow or sends too much is given up, and the answer says so and ends without it.
 */
import { Refusal } from '../../platform/errors.ts'
import { type Chunk, isStreamHead } from '../../platform/operation.ts'
import { MinimumRate, tooSlow } from '../rpc/node-limits.ts'

/** Of one host in one answer: twice what a hundred tasks keep of both outputs by default, as frames. */
export const HOST_BYTES_MAX: number = 64 * 2 ** 30

/** A log that begins is as good as so many bytes: ten thousand empty ones take their time too. */
const LOG_BYTES = 4096

export class HostReading {
  readonly #abort = new AbortController()
  readonly #bytesMax: number
  readonly #rate = new MinimumRate()
  #bytes = 0
  /** Why the host is read no more. */
  lost: Refusal | undefined

  constructor(bytesMax = HOST_BYTES_MAX) {
    this.#bytesMax = bytesMax
  }

  /** Aborts when the host is given up, or with `close`. */
  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** The same chunks. Throws when the host was given up. */
  async *read(chunks: AsyncIterable<Chunk>): AsyncGenerator<Chunk> {
    const iterator = chunks[Symbol.asyncIterator]()
    try {
      for (;;) {
        const { done, value } = await this.#next(iterator)
        if (done) return
        this.#came(isStreamHead(value) ? LOG_BYTES : value.length)
        yield value
      }
    } finally {
      await iterator.return?.()
    }
  }

  async #next(iterator: AsyncIterator<Chunk>): Promise<IteratorResult<Chunk>> {
    this.#rate.beginWait()
    try {
      return await iterator.next()
    } finally {
      this.#rate.endWait()
    }
  }

  #came(bytes: number): void {
    this.#rate.received(bytes)
    this.#bytes += bytes
    if (this.#bytes <= this.#bytesMax) return
    const most = `${this.#bytesMax / 2 ** 30} GiB`
    this.#giveUp(new Refusal('no_answer', `at most ${most} of one host are in one answer, read its logs one by one`))
  }

  /** Gives up a host that is too slow. Call it every second or so. */
  judge(): void {
    if (!this.lost && this.#rate.isViolated()) this.#giveUp(tooSlow())
  }

  #giveUp(why: Refusal): void {
    this.lost ??= why
    this.#abort.abort(this.lost)
  }

  close(): void {
    this.#abort.abort()
  }
}
