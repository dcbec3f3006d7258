/**
 * The persisted time of the core's clock, the *mark* (`core-clock.ts`): the clock starts from it, and it is stored again every ten
 * minutes. It also decides which tokens and leases may be removed: those that have expired by the machine's clock and by the core's.
 *
 * If the clock is far ahead of the mark at the start, nothing is removed and no mark is stored for some minutes: a clock that is
 * wrong makes tokens invalid while it is wrong, but does not delete them.
 *
 * With high availability the lease of the active server has the time of its clock, at each renewal (`ha/lease/lease.ts`): the clock of
 * the next active server starts at the latest time at which the last one can have served.
 */
import type { Logger } from '../platform/log.ts'
import type { Storage } from '../storage/barrier/storage.ts'
import type { CoreClock } from './core-clock.ts'

const MARK_PATH = 'core/clock'
/** The core's clock goes back by at most this at a start. */
const STORE_INTERVAL_MS = 600_000
const CLOCK_JUMP_MS = 3_600_000
const HOLD_OFF_MS = 600_000

export interface ClockMarkOptions {
  readonly clock: CoreClock
  /** A time that the clock of another server may have reached; 0 if there is none. */
  readonly fromMs: number
  readonly storage: Storage
  readonly logger: Logger
}

export class ClockMark {
  readonly #clock: CoreClock
  readonly #storage: Storage
  /** Nothing is removed before this time. */
  readonly #notBeforeMs: number
  #storedAtMs = 0

  /** Starts the core's clock from the mark, or from `fromMs` if that is later. */
  constructor({ clock, fromMs, logger, storage }: ClockMarkOptions) {
    this.#clock = clock
    this.#storage = storage
    const markMs = Number(storage.get(MARK_PATH)?.toString() ?? 0)
    if (clock.begin(markMs, fromMs)) logger.warn("the machine's clock is more than a day behind the stored time")
    const isFarAhead = markMs > 0 && clock.now() - markMs > CLOCK_JUMP_MS
    this.#notBeforeMs = isFarAhead ? clock.now() + HOLD_OFF_MS : 0
  }

  /** What expires by this time may be removed; undefined while the clock is not trusted. */
  expiryTimeMs(): number | undefined {
    return this.#clock.now() >= this.#notBeforeMs ? this.#clock.certain() : undefined
  }

  /** Stores the mark if that is due. */
  async store(): Promise<void> {
    const nowMs = this.#clock.now()
    // The next start would trust a wrong time.
    if (nowMs < this.#notBeforeMs || nowMs - this.#storedAtMs < STORE_INTERVAL_MS) return
    await this.#storage.commit({ puts: [{ path: MARK_PATH, value: Buffer.from(String(nowMs)) }], deletes: [] })
    this.#storedAtMs = nowMs
  }
}
