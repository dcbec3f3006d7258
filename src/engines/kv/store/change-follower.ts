/** Follows the change feed of a mount for one caller: from a cursor, below a folder, limited to what its policies allow. */
import { type EngineCall, Rejection } from '../../framework/engine.ts'
import type { ChangeFeed, KvEvent } from './change-feed.ts'
import { folderOf } from './listing.ts'
import { mayReadMetadata, mayReadNewest } from './rights.ts'

export interface FollowerStep {
  readonly epoch: number
  readonly events: readonly KvEvent[]
  /** All events up to this sequence were processed. */
  readonly upTo: number
  /** The end of the log was reached. */
  readonly isCaughtUp: boolean
  /** The log no longer has all events since the cursor. */
  readonly isGap: boolean
}

export class ChangeFollower {
  readonly #feed: ChangeFeed
  readonly #signal: AbortSignal
  /** The folder, and the secret of the same name. */
  readonly #paths: readonly string[]
  readonly #isReadable: (name: string) => boolean
  readonly #isVisible: (event: KvEvent) => boolean
  #epoch: number
  #from: number
  /** The caller knows the first events of this commit. */
  #known: { readonly sequence: number; readonly count: number }

  /** Throws a Rejection (400) for a malformed cursor. */
  constructor(feed: ChangeFeed, { cursor, path }: { cursor: string; path: string }, call: EngineCall) {
    const [, epoch, sequence, count = '0'] = /^(\d{1,15})-(\d{1,15})(?:\.(\d{1,7}))?$/.exec(cursor) ?? []
    if (sequence === undefined) {
      throw new Rejection(
        400,
        'malformed cursor: send the "cursor" of a watch response, or an empty value to start with new changes',
      )
    }
    this.#feed = feed
    this.#signal = call.signal
    this.#epoch = Number(epoch)
    this.#known = { sequence: Number(sequence), count: Number(count) }
    // A commit that is known in part is read again.
    this.#from = this.#known.count > 0 ? this.#known.sequence - 1 : this.#known.sequence
    const folder = folderOf(path)
    this.#paths = path === folder ? [folder] : [folder, path]
    this.#isReadable = (name) =>
      (name.startsWith(folder) || name === path) && (mayReadNewest(call, name) || mayReadMetadata(call, name))
    // A change of settings reveals metadata and no data.
    this.#isVisible = ({ change, path: name }) =>
      this.#isReadable(name) && (change !== 'metadata' || mayReadMetadata(call, name))
  }

  /** The events since the last step: one page. */
  next(): FollowerStep {
    const { epoch, events, isGap, upTo } = this.#feed.pageAfter(this.#from)
    if (epoch !== this.#epoch) return this.#reset()
    const { count, sequence } = this.#known
    const unknown = events.filter((event, at) => event.sequence !== sequence || at >= count)
    const isCaughtUp = upTo <= this.#from
    this.#from = upTo
    if (isGap || upTo >= sequence) this.#known = { sequence: 0, count: 0 }
    return { epoch, events: unknown.filter(this.#isVisible), upTo, isCaughtUp, isGap }
  }

  /** The store was restored since the cursor. */
  #reset(): FollowerStep {
    const { epoch, sequence } = this.#feed.newest
    ;[this.#epoch, this.#from, this.#known] = [epoch, sequence, { sequence: 0, count: 0 }]
    return { epoch, events: [], upTo: sequence, isCaughtUp: true, isGap: true }
  }

  /** Resolves on a relevant change, after `waitMs`, when the caller has gone, or when `draining` aborts. */
  async wait(waitMs: number, draining?: AbortSignal): Promise<void> {
    const watched = { isRelevant: this.#isReadable, paths: this.#paths }
    const signals = draining ? [this.#signal, draining] : [this.#signal]
    await this.#feed.wait(this.#from, watched, waitMs, signals)
  }
}
