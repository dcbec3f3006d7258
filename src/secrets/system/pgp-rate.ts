/** How often callers may send PGP keys: each costs time of a thread that all of them share. */
import { LRUCache } from 'lru-cache'
import { type EngineCall, Rejection } from '../../engines/engine.ts'

const WINDOW_MS = 60_000
/** An operator who mistypes does not send more. */
const REQUESTS_MAX = 10
const ADDRESSES_MAX = 1000

export class PgpRate {
  readonly #sent = new LRUCache<string, { readonly sinceMs: number; count: number }>({ max: ADDRESSES_MAX })
  readonly #now: () => number

  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** Counts a request with PGP keys; throws (429) for too many of an address. A token that has sudo is not counted. */
  check(keys: readonly string[], { caller, remote = '', sudo }: EngineCall): void {
    if (keys.every((key) => key === '') || (sudo && caller.accessor !== '')) return
    const nowMs = this.#now()
    const known = this.#sent.get(remote)
    const window = known && nowMs - known.sinceMs < WINDOW_MS ? known : { sinceMs: nowMs, count: 0 }
    window.count++
    this.#sent.set(remote, window)
    if (window.count <= REQUESTS_MAX) return
    throw new Rejection(429, `more than ${REQUESTS_MAX} requests with PGP keys in a minute: try again in a minute`)
  }
}
