/**
 * Takes leases back when they end. It goes by the index of ends, mount by mount, and reads only what is due: how many leases
 * there are does not matter, and a mount that hangs holds up no other. A lease ends by the core's certain time
 * (`core-clock.ts`), and none is taken back while a start finds the clock far ahead of where it was left.
 */
import { messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import { dueAtMs } from './lease-entry.ts'
import type { LeaseRevocation } from './lease-revocation.ts'
import type { LeaseStore } from './lease-store.ts'
import { eachPage, readPages } from './pages.ts'

const EVERY_MS = 1000
const TOLD_EVERY_MS = 60_000
/** Read of one mount at a time, and removed in one commit: a few milliseconds of the event loop. */
const PAGE = 64

export interface LeaseSweeperOptions {
  readonly leases: LeaseStore
  readonly revocation: LeaseRevocation
  /** The time by which leases have ended; undefined while nothing may be taken away. */
  readonly endedMs: () => number | undefined
  readonly logger: Logger
}

export class LeaseSweeper {
  readonly #options: LeaseSweeperOptions
  readonly #underWay = new Map<string, Promise<void>>()
  readonly #failures = new LogOnce({ everyMs: TOLD_EVERY_MS })
  #timer: NodeJS.Timeout | undefined

  constructor(options: LeaseSweeperOptions) {
    this.#options = options
    this.#timer = setInterval(() => void this.tick(), EVERY_MS)
    this.#timer.unref()
  }

  /** Resolves when what is due now was attempted. Never rejects. */
  async tick(): Promise<void> {
    const endedMs = this.#options.endedMs()
    if (endedMs === undefined || !this.#timer) return
    try {
      await Promise.all(this.#options.leases.mounts().map((mount) => this.#sweep(mount, endedMs)))
    } catch (error) {
      this.#failed(error)
    }
  }

  close(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** One round of a mount; a second one waits for the first. */
  async #sweep(mount: string, endedMs: number): Promise<void> {
    let round = this.#underWay.get(mount)
    if (!round) {
      round = this.#round(mount, endedMs).finally(() => this.#underWay.delete(mount))
      this.#underWay.set(mount, round)
    }
    return round
  }

  async #round(mount: string, endedMs: number): Promise<void> {
    const { leases, revocation } = this.#options
    type Due = ReturnType<LeaseStore['due']>[number]
    const pages = readPages<Due>((last) => (this.#timer ? leases.due(mount, endedMs, last?.path ?? '', PAGE) : []))
    await eachPage(pages, async (due) => {
      const ended = due.filter(({ hash }) => this.#hasEnded(hash, endedMs))
      const outcomes = await Promise.allSettled(ended.map(({ hash }) => revocation.revoke(hash)))
      const faults = outcomes.filter((outcome) => outcome.status === 'rejected')
      for (const { reason } of faults) this.#failed(reason)
      // One lease that is damaged keeps no other; where nothing can be written there is no use in going on.
      return faults.length === 0 || faults.length < ended.length
    })
  }

  /** The index tells what is durable; a renewal that is being committed puts the end off. What is damaged is told by its revocation. */
  #hasEnded(hash: string, endedMs: number): boolean {
    try {
      const lease = this.#options.leases.pendingByHash(hash)
      return !lease || dueAtMs(lease) <= endedMs
    } catch {
      return true
    }
  }

  #failed(error: unknown): void {
    if (!this.#timer || this.#failures.due() === 0) return
    this.#options.logger.warn('leases that have ended could not be taken back; it is tried again', {
      error: messageOf(error),
    })
  }
}
