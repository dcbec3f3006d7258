/**
 * Clock skew of this host relative to each server, from the times in the announcements of the servers: reception time minus send time. It
 * contains the transmission time: some milliseconds, or seconds under load. It is measured about once a minute, and at once after a
 * connection. A server of an older version sends no time and is never reported. It is unknown which of the two clocks is wrong.
 */
import type { Logger } from '../../platform/log.ts'

/** Skew above which a warning is logged: half of what hosts and servers reject in each other's messages. */
const SKEW_WARNING_MS = 30_000
const SERVERS_MAX = 256
/** The keys and times of announcements are those of their sender: the log stays bounded. */
const LINES_PER_MINUTE_MAX = 20
const MINUTE_MS = 60_000

interface ServerClock {
  readonly name: string
  /** Clock of this host minus the clock of the server. */
  readonly skewMs: number
  /** Monotonic clock. */
  readonly measuredAtMs: number
}

export class ServerClocks {
  readonly #logger: Logger
  /** Measurements of a silent server expire after this time. */
  readonly #expiryMs: number
  /** By key of the server: the newest measurement counts, also after a restart of the server. */
  readonly #clocks = new Map<string, ServerClock>()

  #minuteBeganMs = Number.NEGATIVE_INFINITY
  #linesInMinute = 0

  constructor(logger: Logger, expiryMs: number) {
    this.#logger = logger
    this.#expiryMs = expiryMs
  }

  /** Logs when the skew crosses the limit, in either direction. */
  measure(key: string, { name, sentAtMs }: { name: string; sentAtMs: number | undefined }, wallMs: number): void {
    const before = this.#clocks.get(key)
    this.#clocks.delete(key)
    if (sentAtMs === undefined) return
    const clock = { name, skewMs: wallMs - sentAtMs, measuredAtMs: performance.now() }
    this.#clocks.set(key, clock)
    const [oldest = ''] = this.#clocks.keys()
    if (this.#clocks.size > SERVERS_MAX) this.#clocks.delete(oldest)
    if (isSkewed(clock) === isSkewed(before) || !this.#mayLog()) return
    const facts = { server: name, skew_seconds: Math.round(clock.skewMs / 1000) }
    if (isSkewed(clock)) this.#logger.warn('clock skew to server', { ...facts, next: 'synchronize both clocks (NTP)' })
    else this.#logger.info('clock skew to server resolved', facts)
  }

  #mayLog(): boolean {
    const nowMs = performance.now()
    if (nowMs - this.#minuteBeganMs > MINUTE_MS) {
      this.#minuteBeganMs = nowMs
      this.#linesInMinute = 0
    }
    return ++this.#linesInMinute <= LINES_PER_MINUTE_MAX
  }

  /** Servers that have announced themselves recently. */
  get all(): { readonly name: string; readonly skewMs: number }[] {
    const sinceMs = performance.now() - this.#expiryMs
    return [...this.#clocks.values()].filter(({ measuredAtMs }) => measuredAtMs > sinceMs)
  }

  /** Servers above the limit. */
  get skewed(): { readonly name: string; readonly skewMs: number }[] {
    return this.all.filter(isSkewed)
  }
}

function isSkewed(clock: Pick<ServerClock, 'skewMs'> | undefined): boolean {
  return Math.abs(clock?.skewMs ?? 0) > SKEW_WARNING_MS
}
