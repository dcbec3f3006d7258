/**
 * What is done about tokens without anybody asking: those that have expired are removed, what is left of revoked ones is
 * too, and the time is written down. An expired token is refused whether it was removed or not, so this is about space,
 * and nothing is in a hurry: it goes by the index of expiries, in small pages.
 *
 * A token is removed when it has expired by the machine's clock and by the core's own (`core-clock.ts`), and not in the
 * first minutes after a start that found the clock far ahead of where it was left, nor is the time written down then: a
 * clock that was set wrong makes tokens refused as long as it is wrong, and does not take them away.
 */
import { messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import { hasExpired, type TokenEntry, tokenPaths } from './token-entry.ts'
import { type TokenRevocation, withoutHashes } from './token-revocation.ts'
import type { TokenStore } from './token-store.ts'

const EVERY_MS = 1000
/** Read, and so decrypted, at a time: about a millisecond. */
const PAGE = 16
/** Where the time that was reached is written down, and how often: it is how far a start may go back. */
const MARK_PATH = 'core/clock'
const MARKED_EVERY_MS = 600_000
const FAR_AHEAD_MS = 3_600_000
const HELD_BACK_MS = 600_000
const TOLD_EVERY_MS = 60_000
const DAMAGED = Symbol('damaged')

/** The time by which lives are measured, see `core-clock.ts`. */
export interface SweptClock {
  now(): number
  /** Begins from the mark, where it is believed; true where it is not. */
  begin(markMs: number): boolean
  /** What has ended by this time has ended by any clock. */
  certain(): number
}

export interface SweeperOptions {
  readonly tokens: TokenStore
  readonly revocation: TokenRevocation
  readonly clock: SweptClock
  readonly logger: Logger
}

export class TokenSweeper {
  readonly #tokens: TokenStore
  readonly #revocation: TokenRevocation
  readonly #clock: SweptClock
  readonly #logger: Logger
  /** Nothing is removed sooner. */
  readonly #notBeforeMs: number
  #markedAtMs = 0
  readonly #failures = new LogOnce({ everyMs: TOLD_EVERY_MS })
  #timer: NodeJS.Timeout | undefined
  #underWay: Promise<void> | undefined

  /** Begins the core's time from what was written down, and goes to work. */
  constructor({ clock, logger, revocation, tokens }: SweeperOptions) {
    this.#tokens = tokens
    this.#revocation = revocation
    this.#clock = clock
    this.#logger = logger
    const markMs = Number(tokens.storage.get(MARK_PATH)?.toString() ?? 0)
    if (clock.begin(markMs)) logger.warn("the machine's clock is more than a day behind where it was left")
    const isFarAhead = markMs > 0 && clock.now() - markMs > FAR_AHEAD_MS
    this.#notBeforeMs = isFarAhead ? clock.now() + HELD_BACK_MS : 0
    this.#timer = setInterval(() => void this.tick(), EVERY_MS)
    this.#timer.unref()
  }

  /** The time by which lives have ended; undefined while nothing may be taken away for it. */
  endedMs(): number | undefined {
    return this.#clock.now() >= this.#notBeforeMs ? this.#clock.certain() : undefined
  }

  close(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** One round; a second one waits for the first. Never rejects. */
  async tick(): Promise<void> {
    this.#underWay ??= this.#round().finally(() => (this.#underWay = undefined))
    return this.#underWay
  }

  async #round(): Promise<void> {
    try {
      await this.#mark()
      await this.#revocation.resume()
      const endedMs = this.endedMs()
      if (endedMs !== undefined) await this.#sweep(endedMs)
    } catch (error) {
      this.#failed(error)
    }
  }

  /** Says it once in a while: a round is tried again every second. */
  #failed(error: unknown): void {
    if (!this.#timer || this.#failures.due() === 0) return
    this.#logger.warn('expired tokens could not be removed; it is tried again', {
      error: withoutHashes(messageOf(error)),
    })
  }

  async #mark(): Promise<void> {
    const nowMs = this.#clock.now()
    // A clock that may be wrong is not written down: the next start would have to believe it.
    if (nowMs < this.#notBeforeMs || nowMs - this.#markedAtMs < MARKED_EVERY_MS) return
    await this.#tokens.storage.commit({ puts: [{ path: MARK_PATH, value: Buffer.from(String(nowMs)) }], deletes: [] })
    this.#markedAtMs = nowMs
  }

  async #sweep(endedMs: number): Promise<void> {
    let after = ''
    while (this.#timer) {
      const page = this.#ended(endedMs, after)
      if (page.length === 0) return
      const expired: TokenEntry[] = []
      const stale: string[] = []
      for (const { hash, path } of page) {
        const entry = this.#read(hash)
        if (entry === DAMAGED) continue
        if (entry && hasExpired(entry, endedMs)) expired.push(entry)
        else if (!entry || !this.#tokens.pathsOf(entry).includes(path)) stale.push(path)
      }
      if (stale.length > 0) await this.#tokens.storage.commit({ puts: [], deletes: stale })
      await this.#revocation.revokeAll(expired)
      // What is leaving stays for a moment: it is removed by who marked it.
      after = page.at(-1)?.path ?? ''
    }
  }

  /** One entry that cannot be read must not keep all others. */
  #read(hash: string): TokenEntry | undefined | typeof DAMAGED {
    try {
      return this.#tokens.pending(hash)
    } catch (error) {
      this.#failed(error)
      return DAMAGED
    }
  }

  #ended(endedMs: number, after: string): { hash: string; path: string }[] {
    const paths = this.#tokens.storage.paths(tokenPaths.expiries, { after, limit: PAGE })
    const found = paths.map((path) => {
      const [time = '', hash = ''] = path.slice(tokenPaths.expiries.length).split('/')
      return { expiresAtMs: Number(time), hash, path }
    })
    return found.filter(({ expiresAtMs }) => expiresAtMs <= endedMs)
  }
}
