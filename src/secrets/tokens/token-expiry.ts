/**
 * Background work on tokens, once a second: removes expired tokens, completes revocations, stores the time. An expired token is
 * invalid whether it was removed or not, so this only frees space. It scans the expiry index in small pages.
 *
 * A token is removed when it has expired by the machine's clock and by the core's (`core-clock.ts`). If the clock is far ahead of
 * the stored time at the start, nothing is removed and no time is stored for some minutes: a clock that is wrong makes tokens
 * invalid while it is wrong, but does not delete them.
 */
import { messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import { hasExpired, type TokenEntry, tokenPaths } from './token-entry.ts'
import { type TokenRevocation, withoutHashes } from './token-revocation.ts'
import type { TokenStore } from './token-store.ts'

const INTERVAL_MS = 1000
/** Entries read and decrypted in one step: about a millisecond. */
const PAGE_TOKENS = 16
/** The stored time, and how often it is stored: the core's clock goes back by at most this at a start. */
const CLOCK_PATH = 'core/clock'
const CLOCK_STORE_INTERVAL_MS = 600_000
const CLOCK_JUMP_MS = 3_600_000
const HOLD_OFF_MS = 600_000
const LOG_INTERVAL_MS = 60_000
const DAMAGED = Symbol('damaged')

/** The core's clock (`core-clock.ts`). */
export interface ExpiryClock {
  now(): number
  /** Starts from the stored time if it is plausible; true if it is not. */
  begin(storedMs: number): boolean
  /** A time that has passed by the machine's clock and by the core's. */
  certain(): number
}

export interface TokenExpiryOptions {
  readonly tokens: TokenStore
  readonly revocation: TokenRevocation
  readonly clock: ExpiryClock
  readonly logger: Logger
}

export class TokenExpiry {
  readonly #tokens: TokenStore
  readonly #revocation: TokenRevocation
  readonly #clock: ExpiryClock
  readonly #logger: Logger
  /** No token is removed before this time. */
  readonly #notBeforeMs: number
  #clockStoredAtMs = 0
  readonly #failures = new LogOnce({ everyMs: LOG_INTERVAL_MS })
  #timer: NodeJS.Timeout | undefined
  #underWay: Promise<void> | undefined

  /** Starts the core's clock from the stored time, and the timer. */
  constructor({ clock, logger, revocation, tokens }: TokenExpiryOptions) {
    this.#tokens = tokens
    this.#revocation = revocation
    this.#clock = clock
    this.#logger = logger
    const storedMs = Number(tokens.storage.get(CLOCK_PATH)?.toString() ?? 0)
    if (clock.begin(storedMs)) logger.warn("the machine's clock is more than a day behind the stored time")
    const isFarAhead = storedMs > 0 && clock.now() - storedMs > CLOCK_JUMP_MS
    this.#notBeforeMs = isFarAhead ? clock.now() + HOLD_OFF_MS : 0
    this.#timer = setInterval(() => void this.tick(), INTERVAL_MS)
    this.#timer.unref()
  }

  /** What expires by this time may be removed; undefined while the clock is not trusted. */
  expiryTimeMs(): number | undefined {
    return this.#clock.now() >= this.#notBeforeMs ? this.#clock.certain() : undefined
  }

  close(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** Concurrent calls share one round. Never rejects. */
  async tick(): Promise<void> {
    this.#underWay ??= this.#round().finally(() => (this.#underWay = undefined))
    return this.#underWay
  }

  async #round(): Promise<void> {
    try {
      await this.#storeClock()
      await this.#revocation.resume()
      const expiryTimeMs = this.expiryTimeMs()
      if (expiryTimeMs !== undefined) await this.#removeExpired(expiryTimeMs)
    } catch (error) {
      this.#failed(error)
    }
  }

  #failed(error: unknown): void {
    if (!this.#timer || this.#failures.due() === 0) return
    this.#logger.warn('removing expired tokens failed, will retry', {
      error: withoutHashes(messageOf(error)),
    })
  }

  async #storeClock(): Promise<void> {
    const nowMs = this.#clock.now()
    // The next start would trust a wrong time.
    if (nowMs < this.#notBeforeMs || nowMs - this.#clockStoredAtMs < CLOCK_STORE_INTERVAL_MS) return
    await this.#tokens.storage.commit({ puts: [{ path: CLOCK_PATH, value: Buffer.from(String(nowMs)) }], deletes: [] })
    this.#clockStoredAtMs = nowMs
  }

  async #removeExpired(expiryTimeMs: number): Promise<void> {
    let after = ''
    while (this.#timer) {
      const page = this.#expiredPage(expiryTimeMs, after)
      if (page.length === 0) return
      const expired: TokenEntry[] = []
      const stale: string[] = []
      for (const { hash, path } of page) {
        const entry = this.#read(hash)
        if (entry === DAMAGED) continue
        if (entry && hasExpired(entry, expiryTimeMs)) expired.push(entry)
        else if (!entry || !this.#tokens.pathsOf(entry).includes(path)) stale.push(path)
      }
      if (stale.length > 0) await this.#tokens.storage.commit({ puts: [], deletes: stale })
      await this.#revocation.revokeAll(expired)
      // Leaving tokens stay in the index: their revocation removes them.
      after = page.at(-1)?.path ?? ''
    }
  }

  /** A damaged entry must not block the others. */
  #read(hash: string): TokenEntry | undefined | typeof DAMAGED {
    try {
      return this.#tokens.pending(hash)
    } catch (error) {
      this.#failed(error)
      return DAMAGED
    }
  }

  #expiredPage(expiryTimeMs: number, after: string): { hash: string; path: string }[] {
    const paths = this.#tokens.storage.paths(tokenPaths.expiries, { after, limit: PAGE_TOKENS })
    const links = paths.map((path) => {
      const [time = '', hash = ''] = path.slice(tokenPaths.expiries.length).split('/')
      return { expiresAtMs: Number(time), hash, path }
    })
    return links.filter(({ expiresAtMs }) => expiresAtMs <= expiryTimeMs)
  }
}
