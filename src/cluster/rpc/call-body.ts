/**
 * The body of a request that is sent to another server while it is received. The server grants credit as its operation takes the
 * body, so nothing is sent before the operation has accepted the call, and each side holds at most a window. Messages are numbered: a gap
 * breaks the call, and a body without its end is never complete.
 */
import { Condition } from '../../platform/mutex.ts'
import { Refusal } from '../../platform/errors.ts'
import { TIMINGS } from '../nats/timings.ts'
import { DATA_BYTES_MAX } from './call-wire.ts'

const WINDOW_BYTES = 1 << 20

export interface BodyMessage {
  readonly kind: 'body'
  /** Number of messages with bytes before this one. */
  readonly sequence: number
  /** Empty for the end, and for a keepalive. */
  readonly bytes: Uint8Array
  /** The body is complete with this message. */
  readonly isLast: boolean
}

const EMPTY = new Uint8Array(0)

export interface BodySenderOptions {
  readonly body: AsyncIterable<Uint8Array>
  readonly send: (message: BodyMessage) => void
  /** Called when the body cannot be read. */
  readonly fail: (error: Error) => void
}

/** At the caller. The body is not read before the first credit. */
export class BodySender {
  readonly #options: BodySenderOptions
  #allowed = 0
  #sent = 0
  #sequence = 0
  #isComplete = false
  #isClosed = false
  readonly #changed = new Condition()
  #repeating: NodeJS.Timeout | undefined

  constructor(options: BodySenderOptions) {
    this.#options = options
  }

  allow(allowed: number): void {
    this.#allowed = Math.max(this.#allowed, allowed)
    // Without it, the loss of the last messages would not be detected.
    if (!this.#repeating) {
      this.#repeating = setInterval(() => this.#send(EMPTY), TIMINGS.keepaliveMs).unref()
      void this.#run()
    }
    this.#changed.notifyAll()
  }

  close(): void {
    this.#isClosed = true
    clearInterval(this.#repeating)
    this.#changed.notifyAll()
  }

  async #run(): Promise<void> {
    try {
      for await (const chunk of this.#options.body) {
        for (let at = 0; at < chunk.length; ) {
          while (this.#sent >= this.#allowed && !this.#isClosed) await this.#changed.wait()
          if (this.#isClosed) return
          const end = at + Math.min(DATA_BYTES_MAX, this.#allowed - this.#sent)
          this.#send(chunk.subarray(at, end))
          at = Math.min(end, chunk.length)
        }
        if (this.#isClosed) return
      }
      this.#isComplete = true
      if (!this.#isClosed) this.#send(EMPTY)
    } catch (error) {
      this.#options.fail(
        error instanceof Refusal ? error : new Refusal('invalid_request', 'the request was not complete'),
      )
    }
  }

  #send(bytes: Uint8Array): void {
    this.#options.send({ kind: 'body', sequence: this.#sequence, bytes, isLast: this.#isComplete })
    if (bytes.length > 0) this.#sequence++
    this.#sent += bytes.length
  }
}

/** At the server. `grant` sends the total number of bytes that the caller may send. */
export class ReceivedBody implements AsyncIterable<Uint8Array> {
  readonly #grant: (allowed: number) => void
  readonly #queue: Uint8Array[] = []
  #allowed = 0
  #taken = 0
  #received = 0
  #sequence = 0
  #isComplete = false
  #error: Error | undefined
  readonly #changed = new Condition()

  constructor(grant: (allowed: number) => void) {
    this.#grant = grant
  }

  receive({ bytes, isLast, sequence }: BodyMessage): void {
    if (this.#error || this.#isComplete) return
    if (sequence !== this.#sequence) {
      this.fail(new Refusal('no_answer', 'part of the request was lost between two servers, try again'))
      return
    }
    this.#received += bytes.length
    if (this.#received > this.#allowed) return this.fail(new Refusal('invalid_request', 'more bytes than allowed'))
    if (bytes.length > 0) {
      this.#sequence++
      this.#queue.push(bytes)
    }
    this.#isComplete = isLast
    this.#changed.notifyAll()
  }

  /** Breaks the body, unless it is complete. */
  fail(error: Error): void {
    if (!this.#isComplete) this.#error ??= error
    this.#changed.notifyAll()
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    for (;;) {
      if (this.#allowed - this.#taken <= WINDOW_BYTES / 2 && !this.#isComplete) {
        this.#allowed = this.#taken + WINDOW_BYTES
        this.#grant(this.#allowed)
      }
      const bytes = this.#queue.shift()
      if (bytes) {
        this.#taken += bytes.length
        yield bytes
      } else if (this.#error) throw this.#error
      else if (this.#isComplete) return
      else await this.#changed.wait()
    }
  }
}
