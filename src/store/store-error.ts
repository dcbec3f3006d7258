/** How a commit can fail. */
import { Fault } from '../kit/errors.ts'

/**
 * `full` no space · `failed` the disk or the writer · `fenced` another epoch rules by now · `busy` too much is queued
 * already · `closed`. A commit that was queued behind one that failed has the kind of that one.
 */
export type StoreErrorKind = 'full' | 'failed' | 'fenced' | 'busy' | 'closed'

/** A commit that did not happen. */
export class StoreError extends Fault {
  readonly kind: StoreErrorKind

  constructor(kind: StoreErrorKind, message: string) {
    super(message)
    this.kind = kind
  }
}
