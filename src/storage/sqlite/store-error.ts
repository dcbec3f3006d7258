/** How a commit can fail. */
import { Fault } from '../../platform/errors.ts'

/**
 * `full` no space · `failed` the disk or the writer · `fenced` this cluster is no primary any more, or must not know · `busy` too much is queued
 * already · `closed` · `replica` this store takes changes from its primary only · `displaced` the files of the database were moved, replaced or cut (`file-guard.ts`). A commit that was queued behind one that failed has the kind of that one.
 */
export type StoreErrorKind = 'full' | 'failed' | 'fenced' | 'replica' | 'busy' | 'closed' | 'displaced'

/** In the place of a code of SQLite, which are not negative: the kind `displaced`. */
export const DISPLACED = -1

/** A commit that did not happen. */
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

/** Of a commit that is durable here and that no secondary has acknowledged: the history that goes on may lack it. */
export function notAcknowledged(): StoreError {
  return new StoreError(
    'fenced',
    'this server stopped, or is no longer the primary, before a secondary acknowledged the commit',
  )
}

export function replicaError(): StoreError {
  return new StoreError('replica', 'this store is a replica: it takes changes from its primary only')
}

/** For the caller and the operator. */
export function noSpace(directory: string): string {
  return (
    `no space left on the disk of ${directory}: free some there, then write again; reads, deletes and revocations go on, ` +
    'and so does a snapshot that is saved elsewhere'
  )
}
