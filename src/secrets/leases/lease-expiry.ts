/**
 * Revokes expired leases. Scans the expiry index per mount and reads only due entries, so the cost does not depend on the total
 * number of leases, and a slow mount does not delay the others. Expiry is decided by the core's certain time (`core-clock.ts`);
 * no lease is revoked while the clock is not trusted (`clock-mark.ts`).
 */
import { messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import { dueAtMs } from './lease-entry.ts'
import type { LeaseRevocation } from './lease-revocation.ts'
import type { LeaseLink, LeaseStore } from './lease-store.ts'
import { eachPage, readPages } from './paged-work.ts'

const INTERVAL_MS = 1000
const LOG_INTERVAL_MS = 60_000
/** Leases of a mount that are read in one step and removed in one commit: a few milliseconds of the event loop. */
const PAGE_LEASES = 64

export interface LeaseExpiryOptions {
  readonly leases: LeaseStore
  readonly revocation: LeaseRevocation
  /** Leases that expire by this time are revoked; undefined while the clock is not trusted. */
  readonly expiryTimeMs: () => number | undefined
  /** A fenced DR primary can commit nothing: the work waits until it serves again. */
  readonly isFenced: () => boolean
  readonly logger: Logger
}

export class LeaseExpiry {
  readonly #options: LeaseExpiryOptions
  readonly #underWay = new Map<string, Promise<void>>()
  readonly #failures = new LogOnce({ everyMs: LOG_INTERVAL_MS })
  #timer: NodeJS.Timeout | undefined

  constructor(options: LeaseExpiryOptions) {
    this.#options = options
    this.#timer = setInterval(() => void this.tick(), INTERVAL_MS)
    this.#timer.unref()
  }

  /** Resolves when the revocation of each due lease was attempted. Never rejects. */
  async tick(): Promise<void> {
    const expiryTimeMs = this.#options.expiryTimeMs()
    if (expiryTimeMs === undefined || !this.#timer || this.#options.isFenced()) return
    try {
      await Promise.all(this.#options.leases.mounts().map((mount) => this.#revokeDue(mount, expiryTimeMs)))
    } catch (error) {
      this.#failed(error)
    }
  }

  close(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** Concurrent calls for a mount share one round. */
  async #revokeDue(mount: string, expiryTimeMs: number): Promise<void> {
    let round = this.#underWay.get(mount)
    if (!round) {
      round = this.#round(mount, expiryTimeMs).finally(() => this.#underWay.delete(mount))
      this.#underWay.set(mount, round)
    }
    return round
  }

  async #round(mount: string, expiryTimeMs: number): Promise<void> {
    const { leases, revocation } = this.#options
    const pages = readPages<LeaseLink>((last) =>
      this.#timer ? leases.due(mount, expiryTimeMs, last?.path ?? '', PAGE_LEASES) : [],
    )
    await eachPage(pages, async (page) => {
      const due = page.filter(({ hash }) => this.#isDue(hash, expiryTimeMs))
      const outcomes = await Promise.allSettled(due.map(({ hash }) => revocation.revoke(hash)))
      const faults = outcomes.filter((outcome) => outcome.status === 'rejected')
      for (const { reason } of faults) this.#failed(reason)
      // A damaged lease must not block the others. If all fail, nothing can be written, and the round ends.
      return faults.length === 0 || faults.length < due.length
    })
  }

  /** The index shows durable entries only; a renewal may be queued. A damaged lease counts as due, so its revocation reports the damage. */
  #isDue(hash: string, expiryTimeMs: number): boolean {
    try {
      const lease = this.#options.leases.pendingByHash(hash)
      return !lease || dueAtMs(lease) <= expiryTimeMs
    } catch {
      return true
    }
  }

  #failed(error: unknown): void {
    if (!this.#timer || this.#failures.due() === 0) return
    this.#options.logger.warn('lease revocation failed, will retry', {
      error: messageOf(error),
    })
  }
}
