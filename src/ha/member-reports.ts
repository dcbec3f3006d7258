/**
 * The states of the members in the key-value bucket: each member reports its own and reads those of the others. The active server trims the
 * stream by them, and each member reports which others are lost.
 */
import { TIMINGS } from '../cluster/nats/timings.ts'
import type { Logger } from '../platform/log.ts'
import { type HaBucket, isReporting, MEMBER_LOST_MS, type MemberState } from './lease/lease.ts'
import type { CommitStream } from './stream/commit-stream.ts'

const TRIM_MS = 60_000
/** The stream is trimmed without a member that has not reported for this time: it copies entries when it reconnects. */
const EXPIRY_MS = 24 * 3600 * 1000
/** Messages that stay in the stream although all members have applied them: a power failure undoes those since the last checkpoint. */
const RETAINED_MESSAGES = 10_000
/** A restore or an initial sync writes all entries to the stream. */
const RETAINED_BYTES = 256 << 20

export interface MemberReportsOptions {
  readonly bucket: HaBucket
  readonly stream: CommitStream
  readonly self: () => MemberState
  /** Whether this server trims the stream. */
  readonly isServing: () => boolean
  readonly wallMs: () => number
  readonly logger: Pick<Logger, 'info' | 'warn'>
  readonly warn: (message: string, error: unknown) => void
}

export class MemberReports {
  readonly #options: MemberReportsOptions
  #reporting: NodeJS.Timeout | undefined
  #trimming: NodeJS.Timeout | undefined
  #isStopped = false
  /** Names of the members whose loss was logged. */
  readonly #logged = new Set<string>()
  #startedMs = 0
  /** The other members at the last report. */
  others: readonly MemberState[] = []
  /** Those of them that have stopped to report. Empty while the reports cannot be read. */
  lost: readonly MemberState[] = []
  /** Those of them that report, as known since some seconds after the start. */
  reporting: readonly MemberState[] = []

  constructor(options: MemberReportsOptions) {
    this.#options = options
  }

  start(): void {
    const { isServing, warn } = this.#options
    this.#startedMs = performance.now()
    void this.#report()
    this.#trimming = setInterval(() => {
      if (isServing()) this.#trim().catch((error: unknown) => warn('commit stream not trimmed, retrying', error))
    }, TRIM_MS).unref()
  }

  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#reporting)
    clearInterval(this.#trimming)
  }

  async #report(): Promise<void> {
    const { bucket, self, warn } = this.#options
    try {
      const own = self()
      await bucket.writeMember(own)
      this.others = (await bucket.members()).filter(({ name }) => name !== own.name)
      this.#findLost()
    } catch (error) {
      this.lost = this.reporting = []
      warn('member state not reported, retrying', error)
    }
    if (!this.#isStopped) this.#reporting = setTimeout(() => void this.#report(), TIMINGS.haReportMs).unref()
  }

  /** Not directly after the start: servers that start together have not reported yet. */
  #findLost(): void {
    if (performance.now() - this.#startedMs < MEMBER_LOST_MS) return
    const { logger, wallMs } = this.#options
    const nowMs = wallMs()
    this.lost = this.others.filter((member) => !isReporting(member, nowMs))
    this.reporting = this.others.filter((member) => isReporting(member, nowMs))
    const lostNames = new Set(this.lost.map(({ name }) => name))
    for (const { atMs, name } of this.lost) {
      if (!this.#logged.has(name)) {
        logger.warn('HA member lost', { server: name, last_report: new Date(atMs).toISOString() })
      }
      this.#logged.add(name)
    }
    for (const name of this.#logged) {
      if (lostNames.has(name)) continue
      this.#logged.delete(name)
      const isKnown = this.others.some((other) => other.name === name)
      logger.info(isKnown ? 'HA member returned' : 'HA member removed', { server: name })
    }
  }

  /** Removes what every member has applied. */
  async #trim(): Promise<void> {
    const { bucket, self, stream, wallMs } = this.#options
    const awaited = (await bucket.members()).filter(({ atMs }) => wallMs() - atMs < EXPIRY_MS)
    const applied = Math.min(self().applied, ...awaited.map((member) => member.applied))
    await stream.trim(applied - RETAINED_MESSAGES)
    const { bytes, last } = await stream.bounds()
    const missingBytes = (last - applied) * stream.messageBytesMax
    if (bytes > RETAINED_BYTES && missingBytes < RETAINED_BYTES / 2) await stream.trimBytes(RETAINED_BYTES)
  }
}
