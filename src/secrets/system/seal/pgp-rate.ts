/** How often callers may send PGP keys: each costs time of a thread that all of them share. */
import type { EngineCall } from '../../../engines/framework/engine.ts'
import { AddressRate } from '../../quotas/address-rate.ts'

/** An operator who mistypes does not send more. */
const REQUESTS_MAX = 10

export class PgpRate {
  readonly #rate: AddressRate

  constructor(now?: () => number) {
    this.#rate = new AddressRate(REQUESTS_MAX, 'requests with PGP keys', now)
  }

  /** Counts a request with PGP keys; throws (429) for too many of an address. A token that has sudo is not counted. */
  check(keys: readonly string[], call: EngineCall): void {
    if (keys.some((key) => key !== '')) this.#rate.check(call)
  }
}
