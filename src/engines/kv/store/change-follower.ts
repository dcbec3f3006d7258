/** One caller's way through a mount's journal: from a cursor on, below a folder, what its policies let it read. */
import { type EngineCall, Rejection } from '../../framework/engine.ts'
import type { Journal, KvEvent } from './journal.ts'
import { folderOf } from './listing.ts'
import { mayReadMetadata, mayReadNewest } from './rights.ts'

export interface Step {
  readonly epoch: number
  readonly events: readonly KvEvent[]
  /** Everything up to here has been looked at. */
  readonly upTo: number
  /** Nothing more has happened. */
  readonly isAll: boolean
  /** What was between the cursor and now is not known any more. */
  readonly isGap: boolean
}

export class Follower {
  readonly #journal: Journal
  readonly #signal: AbortSignal
  /** Where it may be told of what it waits for. */
  readonly #places: readonly string[]
  readonly #isMeant: (name: string) => boolean
  readonly #isTold: (event: KvEvent) => boolean
  #epoch: number
  #from: number
  /** The events of this commit, from its first on, that it knows already. */
  #known: { readonly sequence: number; readonly count: number }

  /** Throws a Rejection (400) for a cursor that is none. */
  constructor(journal: Journal, { cursor, path }: { cursor: string; path: string }, call: EngineCall) {
    const [, epoch, sequence, count = '0'] = /^(\d{1,15})-(\d{1,15})(?:\.(\d{1,7}))?$/.exec(cursor) ?? []
    if (sequence === undefined) {
      throw new Rejection(400, '"cursor" is what an answer of watch had, or empty for from now on')
    }
    this.#journal = journal
    this.#signal = call.signal
    this.#epoch = Number(epoch)
    this.#known = { sequence: Number(sequence), count: Number(count) }
    // Of a commit that is known in part, all is read again.
    this.#from = this.#known.count > 0 ? this.#known.sequence - 1 : this.#known.sequence
    const folder = folderOf(path)
    this.#places = path === folder ? [folder] : [folder, path]
    this.#isMeant = (name) =>
      (name.startsWith(folder) || name === path) && (mayReadNewest(call, name) || mayReadMetadata(call, name))
    // A change of settings is metadata, and nothing of the secret's data.
    this.#isTold = ({ change, path: name }) =>
      this.#isMeant(name) && (change !== 'metadata' || mayReadMetadata(call, name))
  }

  /** What has happened since the last step, as far as one turn looks. */
  next(): Step {
    const { epoch, events, isGap, upTo } = this.#journal.after(this.#from)
    if (epoch !== this.#epoch) return this.#anew()
    const { count, sequence } = this.#known
    const unknown = events.filter((event, at) => event.sequence !== sequence || at >= count)
    const isAll = upTo <= this.#from
    this.#from = upTo
    if (isGap || upTo >= sequence) this.#known = { sequence: 0, count: 0 }
    return { epoch, events: unknown.filter(this.#isTold), upTo, isAll, isGap }
  }

  /** Another state has taken the place of the one that the cursor was of. */
  #anew(): Step {
    const { epoch, sequence } = this.#journal.newest
    ;[this.#epoch, this.#from, this.#known] = [epoch, sequence, { sequence: 0, count: 0 }]
    return { epoch, events: [], upTo: sequence, isAll: true, isGap: true }
  }

  /** Resolves on a change that concerns it, after this time, when its caller has left, or when `draining` aborts. */
  async wait(waitMs: number, draining?: AbortSignal): Promise<void> {
    const meant = { isMeant: this.#isMeant, places: this.#places }
    const signals = draining ? [this.#signal, draining] : [this.#signal]
    await this.#journal.wait(this.#from, meant, waitMs, signals)
  }
}
