/** Log lines when the clock skew to the other end of the link crosses the limit, in either direction. */
import type { LogFields, Logger } from '../../platform/log.ts'

const SKEW_WARNING_MS = 30_000

export class ClockSkewLog {
  readonly #logger: Logger
  readonly #message: string
  #isSkewed = false

  constructor(logger: Logger, message: string) {
    this.#logger = logger
    this.#message = message
  }

  /** `skewMs`: the clock of the secondary minus that of the primary. */
  note(skewMs: number, facts: LogFields): void {
    const isSkewed = Math.abs(skewMs) > SKEW_WARNING_MS
    if (isSkewed === this.#isSkewed) return
    this.#isSkewed = isSkewed
    const all = { ...facts, skew_seconds: Math.round(skewMs / 1000) }
    if (isSkewed) this.#logger.warn(this.#message, { ...all, next: 'synchronize both clocks (NTP)' })
    else this.#logger.info(`${this.#message} resolved`, all)
  }
}
