/**
 * Words about what others send: whoever sends a lot of it must not fill our log. The first of a kind is said at once,
 * then one a minute, with how many there were. Kinds are bounded: those that were said longest ago are forgotten.
 */
import type { Fields, Logger } from '../kit/log.ts'

const QUIET_MS = 60_000
const KINDS_MAX = 1000

export class Complaints {
  readonly #logger: Logger
  readonly #kinds = new Map<string, { atMs: number; count: number }>()

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
    const kind = this.#kinds.get(key) ?? { atMs: Number.NEGATIVE_INFINITY, count: 0 }
    this.#kinds.set(key, kind)
    const [oldest] = this.#kinds.keys()
    if (this.#kinds.size > KINDS_MAX && oldest !== undefined) this.#kinds.delete(oldest)
    kind.count++
    const nowMs = performance.now()
    if (nowMs - kind.atMs < QUIET_MS) return
    this.#logger[level](message, { ...fields, count: kind.count })
    kind.atMs = nowMs
    kind.count = 0
  }
}
