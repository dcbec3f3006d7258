/**
 * Words about what others send: whoever sends a lot of it must not fill our log. The first of a kind is said at once,
 * then one a minute, with how many there were. Kinds are bounded: the oldest are forgotten.
 */
import { type Fields, type Logger, LogOnce } from './log.ts'

const QUIET_MS = 60_000

export class RateLimitedLogger {
  readonly #logger: Logger
  readonly #kinds = new LogOnce({ everyMs: QUIET_MS })

  constructor(logger: Logger) {
    this.#logger = logger
  }

  /** `message` is one of a few; what differs from case to case belongs into the fields. `key` names the kind. */
  warn(message: string, fields: Fields, key = message): void {
    this.#say('warn', message, fields, key)
  }

  error(message: string, fields: Fields, key = message): void {
    this.#say('error', message, fields, key)
  }

  #say(level: 'warn' | 'error', message: string, fields: Fields, key: string): void {
    const count = this.#kinds.due(key)
    if (count > 0) this.#logger[level](message, { ...fields, count })
  }
}
