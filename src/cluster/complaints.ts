/**
 * Words about what others send: whoever sends a lot of it must not fill our log. The first of a kind is said at once,
 * then one a minute, with how many there were.
 */
import type { Fields, Logger } from '../kit/log.ts'

const QUIET_MS = 60_000

export class Complaints {
  readonly #logger: Logger
  readonly #kinds = new Map<string, { atMs: number; count: number }>()

  constructor(logger: Logger) {
    this.#logger = logger
  }

  /** `message` is one of a few; what differs from case to case belongs into the fields. */
  warn(message: string, fields: Fields): void {
    this.#say('warn', message, fields)
  }

  error(message: string, fields: Fields): void {
    this.#say('error', message, fields)
  }

  #say(level: 'warn' | 'error', message: string, fields: Fields): void {
    const kind = this.#kinds.get(message) ?? { atMs: Number.NEGATIVE_INFINITY, count: 0 }
    this.#kinds.set(message, kind)
    kind.count++
    const nowMs = performance.now()
    if (nowMs - kind.atMs < QUIET_MS) return
    this.#logger[level](message, { ...fields, count: kind.count })
    kind.atMs = nowMs
    kind.count = 0
  }
}
