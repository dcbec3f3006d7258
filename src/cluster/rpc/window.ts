/**
 * Credit-based flow control of forwarded calls. Each call begins with `FIRST_BYTES`, so that a thousand idle followers reserve
 * little. The window of a call whose data is taken doubles, out of a stock that all calls of the process share.
 * The sum of all windows stays below what a NATS server queues for one connection (64 MiB) before it drops it as too slow.
 *
 * Promise: what a node can make this process queue is the credit that it was granted, and one message. A node that sends
 * more breaks the call. Credit that was withdrawn from an idle call counts until the node must have received the withdrawal:
 * its bytes may be on the way, and they stay reserved in the stock for as long.
 */
import { TIMINGS } from '../nats/timings.ts'
import { DATA_BYTES_MAX } from './wire.ts'

/** A part of a file as programs read them, without waiting for a word from the caller. */
export const FIRST_BYTES = 64 * 1024
/** Enough for a fast node over a slow wire. */
const WINDOW_BYTES_MAX = 4 << 20
const STOCK_BYTES = 32 << 20
/**
 * Calls of `rest`, at least `aliveMs` apart, after which a node has received the smaller allowance or has given the call up:
 * each of them is followed by a credit message, and a node that receives none for `giveUpMs` cancels.
 */
export const RESTS_UNTIL_RELEASED: number = Math.ceil(TIMINGS.giveUpMs / TIMINGS.aliveMs) + 1
/** The most that a call ever allows ahead of what its caller has: who allows more does not keep to the rules. */
export const ALLOWED_MAX = WINDOW_BYTES_MAX + FIRST_BYTES

/** What calls may be allowed beyond their first bytes. */
export class WindowStock {
  #left = STOCK_BYTES

  /** As much of `wanted` as there is. */
  take(wanted: number): number {
    const given = Math.max(0, Math.min(wanted, this.#left))
    this.#left -= given
    return given
  }

  giveBack(bytes: number): void {
    this.#left += bytes
  }

  get left(): number {
    return this.#left
  }
}

/** The window of one call. */
export class Window {
  readonly #stock: WindowStock
  /** Reserved in the stock. */
  #extra = 0
  /** Bytes that the caller has. */
  taken = 0
  #received = 0
  #receivedBefore = 0
  /** Bytes that may have been sent in all. */
  allowed = FIRST_BYTES
  /** The largest allowance that the node may still rely on. */
  #limit = FIRST_BYTES
  /** Calls of `rest` since the allowance was withdrawn. */
  #rests = 0

  constructor(stock: WindowStock) {
    this.#stock = stock
  }

  /** False for more than was allowed and one message. */
  receive(bytes: number): boolean {
    this.#received += bytes
    return this.#received <= this.#limit + DATA_BYTES_MAX
  }

  /** True when it is time for a new grant. */
  take(bytes: number): boolean {
    this.taken += bytes
    const window = FIRST_BYTES + this.#extra
    return this.allowed - this.taken <= window - window / 4
  }

  /** As much again as was taken so far: it doubles. */
  grow(): void {
    const wanted = Math.min(this.taken, WINDOW_BYTES_MAX - FIRST_BYTES)
    if (wanted > this.#extra) this.#extra += this.#stock.take(wanted - this.#extra)
    this.#grant()
  }

  /** Withdraws what an idle call does not use, later releases it to the stock. Returns true for a call that received nothing since the last time. */
  rest(): boolean {
    const isIdle = this.#received === this.#receivedBefore && this.#received === this.taken
    this.#receivedBefore = this.#received
    if (isIdle) this.#withdraw()
    else this.#grant()
    return isIdle
  }

  #withdraw(): void {
    this.allowed = this.taken + FIRST_BYTES
    if (++this.#rests <= RESTS_UNTIL_RELEASED) return
    this.close()
    this.#limit = this.allowed
  }

  #grant(): void {
    this.#rests = 0
    this.allowed = this.taken + FIRST_BYTES + this.#extra
    this.#limit = Math.max(this.#limit, this.allowed)
  }

  close(): void {
    this.#stock.giveBack(this.#extra)
    this.#extra = 0
  }
}
