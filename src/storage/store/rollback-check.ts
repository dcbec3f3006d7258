/**
 * Compares the database with the position in the file `.seen` (`seen-file.ts`): a database that is behind it is an earlier copy, or lost
 * the end of its write-ahead log. The file does not protect against an attacker, who can remove it. It detects an accidental rollback.
 */
import { readSeenFile, type NewestPosition } from '../sqlite/seen-file.ts'
import type { ReplicaStore } from './replica.ts'

interface CheckedStore extends Pick<ReplicaStore, 'clusterId' | 'epoch' | 'position'> {
  readonly path: string
  /** Writes the file. */
  markSeen(): Promise<void>
}

export class RollbackCheck {
  readonly #file: string
  readonly #store: CheckedStore
  /** For the operator, when the database is behind the file. */
  readonly warning: string | undefined

  constructor(store: CheckedStore) {
    this.#store = store
    this.#file = `${store.path}.seen`
    const [seen, now] = [readSeenFile(this.#file), this.#now()]
    this.warning = seen && warningOf(store.path, seen, now)
  }

  /**
   * Why this database must not be initialized or restored into: it is empty, and this server had written one. The file is read on each
   * call, because an operator who moves it away confirms that the loss is intended.
   */
  get refusal(): string | undefined {
    const [seen, now] = [readSeenFile(this.#file), this.#now()]
    return seen && now.sequence === 0 && seen.sequence > 0 ? emptyText(this.#store.path, seen) : undefined
  }

  #now(): NewestPosition {
    return { cluster: this.#store.clusterId, epoch: this.#store.epoch, sequence: this.#store.position().sequence }
  }

  /** Writes the file without a commit. */
  write(): Promise<void> {
    return this.#store.markSeen()
  }
}

function warningOf(path: string, seen: NewestPosition, now: NewestPosition): string | undefined {
  if (now.sequence === 0 && seen.sequence > 0) {
    return emptyText(path, seen)
  }
  if (seen.cluster !== now.cluster || seen.epoch < now.epoch) return undefined
  if (seen.epoch > now.epoch) return olderText(path, 'changes')
  return seen.sequence > now.sequence ? olderText(path, `${seen.sequence - now.sequence} changes`) : undefined
}

function olderText(path: string, what: string): string {
  return (
    `the database ${path} is older than what this server wrote: ${what} are missing. It was restored ` +
    'from a copy, or its write-ahead log was damaged or removed: later changes, revocations and deletions are undone'
  )
}

function emptyText(path: string, { sequence }: NewestPosition): string {
  return (
    `the database ${path} is empty, and this server had written ${sequence} changes: it was removed or truncated. Stop the server and put ` +
    `the database back. To restore a snapshot with -new, or to start with an empty database, move ${path}.seen away first`
  )
}
