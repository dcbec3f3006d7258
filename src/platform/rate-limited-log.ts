/**
 * Rate-limited log messages about what others send, so that a sender cannot fill the log. The first message of a kind is logged at
 * once, later ones once a minute with their count. The number of kinds is bounded: the oldest are forgotten.
 */
import { type LogFields, type Logger, LogOnce } from './log.ts'

const INTERVAL_MS = 60_000

export class RateLimitedLogger {
  readonly #logger: Logger
  readonly #kinds = new LogOnce({ everyMs: INTERVAL_MS })

  constructor(logger: Logger) {
    this.#logger = logger
  }

  /** `message` is one of a few constants; details are fields. `key` identifies the kind. */
  warn(message: string, fields: LogFields, key = message): void {
    this.#log('warn', message, fields, key)
  }

  error(message: string, fields: LogFields, key = message): void {
    this.#log('error', message, fields, key)
  }

  #log(level: 'warn' | 'error', message: string, fields: LogFields, key: string): void {
    const count = this.#kinds.due(key)
    if (count > 0) this.#logger[level](message, { ...fields, count })
  }
}
