/**
 * The time of the last complete snapshot, in a file beside the database. In a highly available core any server may save a snapshot, so each
 * server reports its newest time to the others and learns theirs: the alert for old snapshots must not fire on standbys, or after a takeover.
 */
import { dirname, join } from 'node:path'
import { messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { readTextIfExists, replaceFile } from '../../platform/program-file.ts'

/** Above the clock skew of synchronized servers. */
const SKEW_MS = 60_000
/** Contains the time in milliseconds since the epoch. */
const FILE = 'snapshot.saved'

export class SnapshotTime {
  readonly #file: string
  readonly #logger: Logger
  #atMs: number

  constructor(databasePath: string, logger: Logger) {
    this.#file = join(dirname(databasePath), FILE)
    this.#logger = logger
    this.#atMs = timeIn(this.#file)
  }

  /** Milliseconds since the epoch; 0: never. */
  get atMs(): number {
    return this.#atMs
  }

  /** A snapshot was completely sent to its caller. */
  saved(nowMs = Date.now()): void {
    this.#atMs = nowMs
    try {
      replaceFile(this.#file, `${nowMs}\n`)
    } catch (error) {
      this.#logger.warn('snapshot time not saved, an older time will be reported after a restart', {
        error: messageOf(error),
      })
    }
  }

  /**
   * Learns the time of another server of the core, 0 for never. Returns the newest time. A time in the future is ignored: with a stolen NATS
   * key it would hide for years that no snapshot is saved.
   */
  learn(atMs: number, nowMs = Date.now()): number {
    if (atMs > this.#atMs && atMs <= nowMs + SKEW_MS) this.saved(atMs)
    return this.#atMs
  }
}

function timeIn(file: string): number {
  try {
    const time = Number((readTextIfExists(file) ?? '').trim())
    return Number.isSafeInteger(time) && time > 0 ? time : 0
  } catch {
    return 0
  }
}
