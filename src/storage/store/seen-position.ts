/**
 * How far the database had come when it was last written (`seen-mark.ts`): a database that stands before that is a copy of an earlier
 * day, or has lost the end of its write-ahead log. The file is no protection, as whoever can put a copy in place can remove it: it tells a
 * restore that the operator may not know of.
 */
import { readSeen, type Seen } from '../sqlite/seen-mark.ts'
import type { SqliteStore } from './store.ts'

export class SeenPosition {
  readonly #file: string
  readonly #store: SqliteStore
  /** For an operator, where the database is older than what was seen. */
  readonly warning: string | undefined

  constructor(store: SqliteStore) {
    this.#store = store
    this.#file = `${store.path}.seen`
    const [seen, now] = [readSeen(this.#file), this.#now()]
    this.warning = seen && warningOf(store.path, seen, now)
  }

  /**
   * Why nothing may begin on this database: it is empty, and this server had written one. Undefined when it may. The file is
   * looked at anew: an operator who moves it away says that it is meant.
   */
  get refusal(): string | undefined {
    const [seen, now] = [readSeen(this.#file), this.#now()]
    return seen && now.sequence === 0 && seen.sequence > 0 ? emptyText(this.#store.path, seen) : undefined
  }

  #now(): Seen {
    return { cluster: this.#store.clusterId, epoch: this.#store.epoch, sequence: this.#store.position().sequence }
  }

  /** Has the file there, and true, where nothing was committed yet. */
  note(): Promise<void> {
    return this.#store.markSeen()
  }
}

function warningOf(path: string, seen: Seen, now: Seen): string | undefined {
  if (now.sequence === 0 && seen.sequence > 0) {
    return emptyText(path, seen)
  }
  if (seen.cluster !== now.cluster || seen.epoch < now.epoch) return undefined
  if (seen.epoch > now.epoch) return olderText(path, 'changes')
  return seen.sequence > now.sequence ? olderText(path, `${seen.sequence - now.sequence} changes`) : undefined
}

function olderText(path: string, what: string): string {
  return (
    `the database ${path} is older than what this server wrote: ${what} are missing. It was put back ` +
    'from a copy, or its write-ahead log was damaged or removed: what was changed, revoked or deleted since is as it was'
  )
}

function emptyText(path: string, { sequence }: Seen): string {
  return (
    `the database ${path} is empty, and this server had written ${sequence} changes: it was removed or cut. Stop the server and put ` +
    `the database back. To restore a snapshot with -new, or to begin anew, move ${path}.seen away first`
  )
}
