/** Who follows logs and files of this agent: how many may, and how far they are behind. */
import { Refusal } from '../../../platform/errors.ts'
import type { Logger } from '../../../platform/log.ts'
import { FollowedFiles } from './followed-file.ts'
import type { FollowSource, FollowKind, OpenedSource } from './stream-source.ts'
import { DirectoryWatches } from './watched-directory.ts'

export interface FollowerMetrics {
  readonly count: number
  /** Of all together, and of the one that is furthest behind. */
  readonly lagBytes: number
  readonly lagBytesMax: number
}

/** Followers of this agent, and the files they follow. */
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

  /** 0 switches the limit off. */
  setLimit(limit: number): void {
    this.#limit = limit === 0 ? Number.POSITIVE_INFINITY : limit
  }

  /**
   * Counts one follower in, with what it follows; one that cannot be opened does not count. Rejects with a Refusal when
   * the agent has as many as it may. Pair with `leave`.
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

  /** How many follow each kind of thing, and how far they are behind. */
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
