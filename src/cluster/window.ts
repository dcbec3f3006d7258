/**
 * How far a node may be ahead of its caller. Each call begins with a little, so that a thousand idle followers promise
 * nobody much; one that takes what it gets is allowed more and more, out of a stock that all calls of the process share.
 * What all of them together may have under way stays below what a NATS server holds for one connection (64 MiB) before it
 * drops it as too slow, and is what readers who do not read can make this process hold.
 */
import { DATA_BYTES_MAX } from './wire.ts'

/** A part of a file as programs read them, without waiting for a word from the caller. */
export const FIRST_BYTES = 64 * 1024
/** Enough for a fast node over a slow wire. */
const WINDOW_BYTES_MAX = 4 << 20
const STOCK_BYTES = 32 << 20
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
  #extra = 0
  /** Bytes that the caller has. */
  taken = 0
  #received = 0
  #receivedBefore = 0
  /** Bytes that may have been sent in all. */
  allowed = FIRST_BYTES

  constructor(stock: WindowStock) {
    this.#stock = stock
  }

  /** False for more than was allowed, which a node that keeps to the rules never sends. */
  receive(bytes: number): boolean {
    this.#received += bytes
    // The last message may reach beyond, and a window that was made smaller may have been filled already.
    return this.#received - this.taken <= WINDOW_BYTES_MAX + FIRST_BYTES + DATA_BYTES_MAX
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

  /** Gives up what is not used, for others: true for a call where nothing has come since the last time. */
  rest(): boolean {
    const isIdle = this.#received === this.#receivedBefore && this.#received === this.taken
    if (isIdle) this.close()
    this.#receivedBefore = this.#received
    this.#grant()
    return isIdle
  }

  #grant(): void {
    this.allowed = this.taken + FIRST_BYTES + this.#extra
  }

  close(): void {
    this.#stock.giveBack(this.#extra)
    this.#extra = 0
  }
}
