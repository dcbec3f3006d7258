/**
 * Credit-based flow control of forwarded calls. Each call begins with `FIRST_BYTES`, so that a thousand idle followers reserve
 * little. The window of a call whose data is taken doubles, from a pool that all calls of the process share. The sum of all windows
 * stays below what a NATS server queues for one connection (64 MiB) before it disconnects it as a slow consumer.
 *
 * Promise: a node can make this process queue at most its granted credit and one message. A node that sends more breaks the
 * call. Credit that was withdrawn from an idle call counts until the node must have received the withdrawal, because its bytes
 * may be under way; they stay reserved in the pool for as long.
 */
import { TIMINGS } from '../nats/timings.ts'
import { DATA_BYTES_MAX } from './call-wire.ts'

/** The size of a read of a file, which a node sends without waiting for credit. */
export const FIRST_BYTES = 64 * 1024
/** Enough for a fast node over a connection with a high latency. */
const WINDOW_BYTES_MAX = 4 << 20
const POOL_BYTES = 32 << 20
/**
 * Calls of `shrinkIfIdle`, at least `keepaliveMs` apart, after which a node has received the smaller allowance or has canceled
 * the call: each is followed by a credit message, and a node that receives none for `silenceTimeoutMs` cancels.
 */
export const SHRINKS_UNTIL_RELEASED: number = Math.ceil(TIMINGS.silenceTimeoutMs / TIMINGS.keepaliveMs) + 1
/** Largest allowance beyond what the caller has taken. A caller that allows more violates the protocol. */
export const ALLOWED_MAX = WINDOW_BYTES_MAX + FIRST_BYTES

/** Credit beyond the first bytes, shared by all calls of a process. */
export class CreditPool {
  #left = POOL_BYTES

  /** Returns the number of bytes that were reserved, which may be less than `requested`. */
  reserve(requested: number): number {
    const reserved = Math.max(0, Math.min(requested, this.#left))
    this.#left -= reserved
    return reserved
  }

  release(bytes: number): void {
    this.#left += bytes
  }

  get left(): number {
    return this.#left
  }
}

/** The window of one call. */
export class CreditWindow {
  readonly #pool: CreditPool
  /** Reserved in the pool. */
  #extra = 0
  /** Bytes that the caller has taken. */
  taken = 0
  #received = 0
  #receivedBefore = 0
  /** Total bytes that the node may send. */
  allowed = FIRST_BYTES
  /** The largest allowance that the node may still rely on. */
  #limit = FIRST_BYTES
  /** Calls of `shrinkIfIdle` since the allowance was withdrawn. */
  #shrinks = 0

  constructor(pool: CreditPool) {
    this.#pool = pool
  }

  /** False if the node has sent more than its allowance and one message. */
  receive(bytes: number): boolean {
    this.#received += bytes
    return this.#received <= this.#limit + DATA_BYTES_MAX
  }

  /** Returns true if the window should be granted again. */
  take(bytes: number): boolean {
    this.taken += bytes
    const window = FIRST_BYTES + this.#extra
    return this.allowed - this.taken <= window - window / 4
  }

  /** Doubles the window, up to what was taken so far. */
  grow(): void {
    const target = Math.min(this.taken, WINDOW_BYTES_MAX - FIRST_BYTES)
    if (target > this.#extra) this.#extra += this.#pool.reserve(target - this.#extra)
    this.#grant()
  }

  /** Withdraws the unused credit of an idle call, and later releases it. Returns true if nothing was received since the last call. */
  shrinkIfIdle(): boolean {
    const isIdle = this.#received === this.#receivedBefore && this.#received === this.taken
    this.#receivedBefore = this.#received
    if (isIdle) this.#withdraw()
    else this.#grant()
    return isIdle
  }

  #withdraw(): void {
    this.allowed = this.taken + FIRST_BYTES
    if (++this.#shrinks <= SHRINKS_UNTIL_RELEASED) return
    this.close()
    this.#limit = this.allowed
  }

  #grant(): void {
    this.#shrinks = 0
    this.allowed = this.taken + FIRST_BYTES + this.#extra
    this.#limit = Math.max(this.#limit, this.allowed)
  }

  close(): void {
    this.#pool.release(this.#extra)
    this.#extra = 0
  }
}
