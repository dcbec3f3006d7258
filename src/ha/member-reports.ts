/** The states of the members in the key-value bucket: each member reports its own, and the active server trims the stream by them. */
import { TIMINGS } from '../cluster/nats/timings.ts'
import type { HaBucket, MemberState } from './lease/lease.ts'
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
  readonly warn: (message: string, error: unknown) => void
}

export class MemberReports {
  readonly #options: MemberReportsOptions
  #reporting: NodeJS.Timeout | undefined
  #trimming: NodeJS.Timeout | undefined
  #isStopped = false
  /** Of the members at the last report. */
  otherClusterAddresses: readonly string[] = []

  constructor(options: MemberReportsOptions) {
    this.#options = options
  }

  start(): void {
    const { isServing, warn } = this.#options
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
      const others = (await bucket.members()).filter(({ name }) => name !== own.name)
      this.otherClusterAddresses = others
        .map(({ clusterAddress }) => clusterAddress)
        .filter((address) => address !== '')
    } catch (error) {
      warn('member state not reported, retrying', error)
    }
    if (!this.#isStopped) this.#reporting = setTimeout(() => void this.#report(), TIMINGS.haReportMs).unref()
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
