/**
 * Saves a snapshot at each interval and keeps the latest ones.
 *
 * Promises. A snapshot counts only after it was read back and verified, and only then are older ones removed. Only snapshots of this cluster
 * are removed, and never the one just saved. Names with a later time than the clock are ignored: those of a clock that was wrong, or of an
 * attacker who can write to the target and would displace real ones. The time of the last snapshot is that in the names at the target, so a restart neither
 * repeats nor delays a snapshot. A failure is logged, counted, and retried with backoff within the interval.
 *
 * Nothing is saved where `reasonToSkip` gives a reason: an uninitialized server, a DR secondary, a fenced primary (another server may write
 * newer ones to the same place). A sealed server saves: its entries are ciphertext in any state.
 */
import { sleep, type Clock } from '../../../platform/clock.ts'
import { formatDuration } from '../../../platform/duration.ts'
import { messageOf } from '../../../platform/errors.ts'
import type { Logger } from '../../../platform/log.ts'
import { snapshotName, type SnapshotSource, type SnapshotTarget } from './snapshot-target.ts'

/** First pause after a failure; doubled with each further one. */
const RETRY_MS = 60_000
const RETRY_MS_MAX = 900_000
/** Pause where nothing is saved, until the server is initialized or promoted. */
const SKIP_MS = 1000
/** The role may change before a snapshot is due. */
const POLL_MS = 60_000

export interface SnapshotScheduleOptions {
  readonly intervalMs: number
  readonly keep: number
  readonly clusterId: () => string
  readonly targetOf: (clusterId: string) => SnapshotTarget
  readonly source: SnapshotSource
  /** Undefined if a snapshot may be saved. */
  readonly reasonToSkip: () => string | undefined
  readonly clock: Clock
  readonly logger: Logger
  /** After each complete snapshot. */
  readonly onSaved: () => void
  /** Replaceable in tests. */
  readonly pause?: (ms: number, signal: AbortSignal) => Promise<void>
}

export interface SnapshotScheduleStatus {
  readonly intervalMs: number
  /** Wall time in milliseconds of the newest snapshot at the target; 0: none; undefined until the target was listed. */
  readonly lastSavedAtMs: number | undefined
  readonly bytes: number | undefined
  readonly durationMs: number | undefined
  readonly failures: number
  /** A sentence with the cause while snapshots fail, are overdue, or old ones cannot be removed. */
  readonly problem: string | undefined
}

export class SnapshotSchedule {
  readonly #options: SnapshotScheduleOptions
  readonly #pause: (ms: number, signal: AbortSignal) => Promise<void>
  readonly #stopping = new AbortController()
  #running: Promise<void> | undefined
  #lastSavedAtMs: number | undefined
  /** Monotonic time of the next snapshot. */
  #dueMs: number
  #saved: { readonly bytes: number; readonly durationMs: number } | undefined
  #failures = 0
  /** Failures since the last success. */
  #failuresInRow = 0
  #problem: string | undefined
  #target: { readonly clusterId: string; readonly target: SnapshotTarget } | undefined

  constructor(options: SnapshotScheduleOptions) {
    this.#options = options
    this.#pause = options.pause ?? sleep
    this.#dueMs = options.clock.monotonicMs()
  }

  /** Undefined where nothing is saved, such as on a DR secondary. */
  get status(): SnapshotScheduleStatus | undefined {
    if (this.#options.reasonToSkip() !== undefined) return undefined
    return {
      intervalMs: this.#options.intervalMs,
      lastSavedAtMs: this.#lastSavedAtMs,
      bytes: this.#saved?.bytes,
      durationMs: this.#saved?.durationMs,
      failures: this.#failures,
      problem: this.#problem ?? this.#overdue(),
    }
  }

  /** An attempt may also hang, such as on a network file system that does not respond. */
  #overdue(): string | undefined {
    const { clock, intervalMs } = this.#options
    const overdueMs = clock.monotonicMs() - this.#dueMs
    if (this.#target === undefined || overdueMs < intervalMs) return undefined
    return `the scheduled snapshot to ${this.#target.target.location} is overdue by ${formatDuration(overdueMs)}`
  }

  start(): void {
    this.#running ??= this.#run()
  }

  /** Aborts a snapshot in progress and resolves when its temporary file is gone. */
  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#running
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping
    while (!signal.aborted) await this.#pause(await this.#step(signal), signal)
  }

  /** Saves a snapshot if it is due. Returns the time to the next step in milliseconds; never rejects. */
  async #step(signal: AbortSignal): Promise<number> {
    const { clock, intervalMs, logger, reasonToSkip } = this.#options
    try {
      if (reasonToSkip() !== undefined) {
        // Another server may save meanwhile, so the target is listed again.
        this.#lastSavedAtMs = undefined
        this.#dueMs = clock.monotonicMs()
        return SKIP_MS
      }
      const target = this.#currentTarget()
      if (this.#lastSavedAtMs === undefined) await this.#readLast(target, signal)
      const untilDueMs = this.#dueMs - clock.monotonicMs()
      if (untilDueMs > 0) return Math.min(untilDueMs, POLL_MS)
      await this.#save(target, signal)
      return Math.min(intervalMs, POLL_MS)
    } catch (error) {
      if (signal.aborted) return 0
      const retryMs = Math.min(RETRY_MS * 2 ** Math.min(this.#failuresInRow, 10), RETRY_MS_MAX, intervalMs)
      this.#failures++
      this.#failuresInRow++
      const [target, cause] = [this.#target?.target.location, messageOf(error)]
      this.#problem = `the last scheduled snapshot to ${target} failed: ${cause}`
      logger.error('scheduled snapshot failed, will retry', { target, error: cause, retry_in: formatDuration(retryMs) })
      return retryMs
    }
  }

  #currentTarget(): SnapshotTarget {
    const clusterId = this.#options.clusterId()
    if (this.#target?.clusterId !== clusterId) {
      this.#target = { clusterId, target: this.#options.targetOf(clusterId) }
      this.#lastSavedAtMs = undefined
    }
    return this.#target.target
  }

  async #readLast(target: SnapshotTarget, signal: AbortSignal): Promise<void> {
    const { clock, intervalMs } = this.#options
    const nowMs = clock.nowMs()
    const lastMs = (await target.list(signal)).findLast(({ takenAtMs }) => takenAtMs <= nowMs)?.takenAtMs ?? 0
    this.#lastSavedAtMs = lastMs
    this.#dueMs = clock.monotonicMs() + Math.max(0, lastMs + intervalMs - nowMs)
  }

  async #save(target: SnapshotTarget, signal: AbortSignal): Promise<void> {
    const { clock, clusterId, intervalMs, logger, onSaved, source } = this.#options
    const [startedMs, atMs] = [clock.monotonicMs(), clock.nowMs()]
    const name = snapshotName(clusterId(), atMs)
    const { bytes, meta } = await target.save(name, source, signal)
    const durationMs = clock.monotonicMs() - startedMs
    this.#dueMs = startedMs + intervalMs
    this.#saved = { bytes, durationMs }
    this.#lastSavedAtMs = atMs
    this.#failuresInRow = 0
    this.#problem = undefined
    onSaved()
    const fields = { target: target.location, name, bytes, entries: meta.entries }
    logger.info('scheduled snapshot saved', { ...fields, duration_ms: Math.round(durationMs) })
    await this.#removeOld(target, name, signal)
  }

  /** The snapshot is saved if this fails, but the target fills: a failure is counted and shown until old ones are removed. */
  async #removeOld(target: SnapshotTarget, saved: string, signal: AbortSignal): Promise<void> {
    const { keep, logger } = this.#options
    try {
      const stored = (await target.list(signal)).filter(({ name }) => name < saved)
      const old = stored.slice(0, Math.max(0, stored.length - (keep - 1)))
      for (const { name } of old) await target.remove(name, signal)
      if (old.length > 0) logger.info('old snapshots removed', { target: target.location, count: old.length })
    } catch (error) {
      if (signal.aborted) return
      this.#failures++
      this.#problem = `old snapshots in ${target.location} were not removed: ${messageOf(error)}`
      logger.error('old snapshots not removed', { target: target.location, error: messageOf(error) })
    }
  }
}
