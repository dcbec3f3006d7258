/** Rate limit per address, or per IPv6 /64 network, for expensive operations that require no token. */
import { LRUCache } from 'lru-cache'
import { callerNetwork } from '../../engines/framework/cidr.ts'
import { type EngineCall, Rejection } from '../../engines/framework/engine.ts'

const WINDOW_MS = 60_000
const ADDRESSES_MAX = 1000

export class AddressRate {
  readonly #counts = new LRUCache<string, { readonly sinceMs: number; count: number }>({ max: ADDRESSES_MAX })
  readonly #max: number
  readonly #what: string
  readonly #now: () => number

  /** At most `max` operations in a minute. `what` names them in the error. */
  constructor(max: number, what: string, now: () => number = () => performance.now()) {
    this.#max = max
    this.#what = what
    this.#now = now
  }

  /** Counts an operation. Throws a Rejection (429) above the limit. Callers with sudo are exempt. */
  check({ caller, remote = '', sudo }: Pick<EngineCall, 'caller' | 'remote' | 'sudo'>): void {
    if (sudo && caller.accessor !== '') return
    const nowMs = this.#now()
    const network = callerNetwork(remote)
    const known = this.#counts.get(network)
    const window = known && nowMs - known.sinceMs < WINDOW_MS ? known : { sinceMs: nowMs, count: 0 }
    window.count++
    this.#counts.set(network, window)
    if (window.count <= this.#max) return
    throw new Rejection(429, `more than ${this.#max} ${this.#what} in a minute, try again in a minute`)
  }
}
