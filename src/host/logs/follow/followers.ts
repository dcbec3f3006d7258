/** The followers of logs and files of this agent: their limit and their lag. */
import { Refusal } from '../../../platform/errors.ts'
import type { Logger } from '../../../platform/log.ts'
import { FollowedFiles } from './followed-file.ts'
import type { FollowSource, FollowKind, OpenedSource } from './stream-source.ts'
import { DirectoryWatches } from './watched-directory.ts'

export interface FollowerMetrics {
  readonly count: number
  /** Sum and maximum over the followers. */
  readonly lagBytes: number
  readonly lagBytesMax: number
}

/** One per agent. */
export class Followers {
  readonly files: FollowedFiles
  readonly watches: DirectoryWatches
  #limit: number
  #count = 0
  readonly #open = new Set<FollowSource>()

  constructor(options: { limit: number; logger: Logger; deletedStallMs?: number }) {
    this.watches = new DirectoryWatches(options.logger)
    this.files = new FollowedFiles(this.watches, options.deletedStallMs)
    this.#limit = 0
    this.setLimit(options.limit)
  }

  get count(): number {
    return this.#count
  }

  /** 0 means no limit. */
  setLimit(limit: number): void {
    this.#limit = limit === 0 ? Number.POSITIVE_INFINITY : limit
  }

  /**
   * Adds a follower, unless `open` fails. Rejects with a Refusal at the limit. Pair with `leave`.
   */
  async enter(open: () => Promise<OpenedSource<FollowSource>>): Promise<OpenedSource<FollowSource>> {
    if (this.#count >= this.#limit) {
      throw new Refusal(
        'too_many',
        `this agent already serves ${this.#count} followers (limits.http_max_followers), try again later`,
        { 'Retry-After': '5' },
      )
    }
    this.#count++
    try {
      const opened = await open()
      this.#open.add(opened.source)
      return opened
    } catch (error) {
      this.#count--
      throw error
    }
  }

  leave(followed: FollowSource): void {
    this.#count--
    this.#open.delete(followed)
  }

  /** Number and lag of the followers by kind. */
  metrics(): Readonly<Record<FollowKind, FollowerMetrics>> {
    const metrics = { log: { count: 0, lagBytes: 0, lagBytesMax: 0 }, file: { count: 0, lagBytes: 0, lagBytesMax: 0 } }
    for (const { kind, lagBytes } of this.#open) {
      const sum = metrics[kind]
      sum.count++
      sum.lagBytes += lagBytes
      sum.lagBytesMax = Math.max(sum.lagBytesMax, lagBytes)
    }
    return metrics
  }
}
