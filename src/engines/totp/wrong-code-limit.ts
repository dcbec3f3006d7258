/** The rate limit of wrong codes: a number of them for each key in a time window, in memory. */
import { LRUCache } from 'lru-cache'
import { Refusal } from '../../platform/errors.ts'
import type { Storage } from '../../storage/barrier/storage.ts'

/** More than typing errors need. With six digits, attempts at this rate succeed within a day with a probability of 1 in 20. */
const WRONG_CODES_MAX = 5
const WRONG_CODES_WINDOW_MS = 30_000
const KEYS_MAX = 10_000

interface WrongCodeWindow {
  readonly endsAtMs: number
  count: number
}

/** Counts the wrong codes of each key of a mount. */
export class WrongCodeLimit {
  readonly #windows = new LRUCache<string, WrongCodeWindow>({ max: KEYS_MAX })

  /** The limit of a mount, whose storage is the same object in each request. */
  static of({ storage }: { readonly storage: Storage }): WrongCodeLimit {
    let limit = limits.get(storage)
    if (!limit) limits.set(storage, (limit = new WrongCodeLimit()))
    return limit
  }

  /** Throws a Refusal (429) once the key had too many in the window. */
  check(hash: string, nowMs: number): void {
    const window = this.#windows.get(hash)
    if (!window || window.endsAtMs <= nowMs || window.count < WRONG_CODES_MAX) return
    const seconds = Math.ceil((window.endsAtMs - nowMs) / 1000)
    throw new Refusal('too_many', `too many wrong codes for this key, try again in ${seconds} seconds`, {
      'Retry-After': String(seconds),
    })
  }

  count(hash: string, nowMs: number): void {
    const known = this.#windows.get(hash)
    if (known && known.endsAtMs > nowMs) known.count++
    else this.#windows.set(hash, { endsAtMs: nowMs + WRONG_CODES_WINDOW_MS, count: 1 })
  }
}

const limits = new WeakMap<Storage, WrongCodeLimit>()
