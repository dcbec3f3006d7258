/**
 * How many wrong codes a key was given lately: whoever may check codes could otherwise try all of them. Counted in memory, in
 * half minutes, for as long as the mount is there.
 */
import { LRUCache } from 'lru-cache'
import { Refusal } from '../../platform/errors.ts'

/** Someone who mistypes does not send more. Tried all day long with six digits: a chance of one in twenty. */
const WRONG_MAX = 5
const WINDOW_MS = 30_000
const KEYS_MAX = 10_000

interface Window {
  readonly endsAtMs: number
  count: number
}

export class WrongCodes {
  readonly #windows = new LRUCache<string, Window>({ max: KEYS_MAX })

  /** Throws a Refusal (429) while the key had too many. */
  check(hash: string, nowMs: number): void {
    const window = this.#windows.get(hash)
    if (!window || window.endsAtMs <= nowMs || window.count < WRONG_MAX) return
    const seconds = Math.ceil((window.endsAtMs - nowMs) / 1000)
    throw new Refusal('too_many', `too many wrong codes for this key: try again in ${seconds} seconds`, {
      'Retry-After': String(seconds),
    })
  }

  count(hash: string, nowMs: number): void {
    const known = this.#windows.get(hash)
    if (known && known.endsAtMs > nowMs) known.count++
    else this.#windows.set(hash, { endsAtMs: nowMs + WINDOW_MS, count: 1 })
  }
}
