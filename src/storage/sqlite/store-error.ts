/** Errors of commits. */
import { Fault, messageOf } from '../../platform/errors.ts'

/**
 * `full`: no space on the disk. `failed`: an error of the disk or the writer. `fenced`: this cluster is not the primary, or cannot know
 * whether it is. `replica`: the store accepts changes from its primary only. `busy`: too many bytes are queued. `closed`: the
 * store is closed. `displaced`: the database files were moved, replaced or truncated (`file-guard.ts`). `standby`: another server is active,
 * or may be (high availability). A commit that was queued after a failed one fails with the kind of that one.
 */
export type StoreErrorKind = 'full' | 'failed' | 'fenced' | 'replica' | 'busy' | 'closed' | 'displaced' | 'standby'

/** A counter for each kind. */
export function noFailures(): Record<StoreErrorKind, number> {
  return { full: 0, failed: 0, fenced: 0, replica: 0, busy: 0, closed: 0, displaced: 0, standby: 0 }
}

/** Code of the kind `displaced`; the codes of SQLite are not negative. */
export const DISPLACED = -1

/** A commit that failed. */
export class StoreError extends Fault {
  readonly kind: StoreErrorKind

  constructor(kind: StoreErrorKind, message: string) {
    super(message)
    this.kind = kind
  }
}

export function fencedError(epoch: number): StoreError {
  return new StoreError(
    'fenced',
    `commits are refused: this cluster is fenced in epoch ${epoch}, sys/replication/dr/status has the reason`,
  )
}

/** The commit is durable here, but no secondary acknowledged it: after a failover it may be missing. */
export function notAcknowledged(): StoreError {
  return new StoreError(
    'fenced',
    'this server stopped, or is no longer the primary, before a secondary acknowledged the commit',
  )
}

export function replicaError(): StoreError {
  return new StoreError('replica', 'this store is a replica: it accepts changes from its primary only')
}

/** Of a store that is not a primary. */
export function notOwnError(role: 'own' | 'replica' | 'fenced', epoch: number): StoreError {
  return role === 'replica' ? replicaError() : fencedError(epoch)
}

/** An error of a commit, or of what it depends on. */
export function storeErrorOf(error: unknown): StoreError {
  return error instanceof StoreError ? error : new StoreError('failed', messageOf(error))
}

/** Nothing was committed. */
export function standbyError(): StoreError {
  return new StoreError('standby', 'this server is not the active one: it accepts changes from the commit stream only')
}

/** The commit may be in the commit stream: a server that takes over applies it then. */
export function outcomeUnknown(reason: string): StoreError {
  return new StoreError(
    'standby',
    `it is unknown whether the change was committed: ${reason}; read it before you repeat it`,
  )
}

/** The commit stream has the change and this database does not: the other servers apply it. */
export function notApplied(reason: string): StoreError {
  return new StoreError(
    'standby',
    `the change is in the commit stream, and this server could not apply it: ${reason}; read it before you repeat it`,
  )
}

export function noSpace(directory: string): string {
  return (
    `no space left on the disk of ${directory}: free space there, then write again; reads, deletes and revocations still work, ` +
    'and so does saving a snapshot to another disk'
  )
}
