/**
 * Background work on tokens, once a second: has the core's time stored, completes revocations, removes expired tokens. An expired
 * token is invalid whether it was removed or not, so this only frees space. It scans the expiry index in small pages. Which tokens
 * have expired for certain is decided in `clock-mark.ts`.
 */
import { messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import { hasExpired, type TokenEntry, tokenPaths } from './token-entry.ts'
import { type TokenRevocation, withoutHashes } from './token-revocation.ts'
import type { TokenStore } from './token-store.ts'

const INTERVAL_MS = 1000
/** Entries read and decrypted in one step: about a millisecond. */
const PAGE_TOKENS = 16
const LOG_INTERVAL_MS = 60_000
const DAMAGED = Symbol('damaged')

/** The persisted time of the core's clock (`clock-mark.ts`). */
export interface ExpiryTime {
  /** What expires by this time may be removed; undefined while the clock is not trusted. */
  expiryTimeMs(): number | undefined
  /** Stores the time if that is due. */
  store(): Promise<void>
}

export interface TokenExpiryOptions {
  readonly tokens: TokenStore
  readonly revocation: TokenRevocation
  readonly time: ExpiryTime
  /** A fenced DR primary can commit nothing: the work waits until it serves again. */
  readonly isFenced: () => boolean
  readonly logger: Logger
}

export class TokenExpiry {
  readonly #tokens: TokenStore
  readonly #revocation: TokenRevocation
  readonly #time: ExpiryTime
  readonly #isFenced: () => boolean
  readonly #logger: Logger
  readonly #failures = new LogOnce({ everyMs: LOG_INTERVAL_MS })
  #timer: NodeJS.Timeout | undefined
  #underWay: Promise<void> | undefined

  /** Starts the timer. */
  constructor({ isFenced, logger, revocation, time, tokens }: TokenExpiryOptions) {
    this.#tokens = tokens
    this.#revocation = revocation
    this.#time = time
    this.#isFenced = isFenced
    this.#logger = logger
    this.#timer = setInterval(() => void this.tick(), INTERVAL_MS)
    this.#timer.unref()
  }

  close(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** Concurrent calls share one round. Never rejects. */
  async tick(): Promise<void> {
    if (this.#isFenced()) return
    this.#underWay ??= this.#round().finally(() => (this.#underWay = undefined))
    return this.#underWay
  }

  async #round(): Promise<void> {
    try {
      await this.#time.store()
      await this.#revocation.resume()
      const expiryTimeMs = this.#time.expiryTimeMs()
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
