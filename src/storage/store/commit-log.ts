/**
 * A log outside the database in which commits become durable (high availability): the commit stream that several servers share. With a
 * commit log, each group of batches is appended to it first. The acknowledgement of the log is the commit; only then is the group
 * applied to the database, by the same order on every server. The database records the position of the last applied group in the
 * same transaction, so a server that was killed continues after it, and its transactions need no sync of their own.
 *
 * Groups are appended one after another, in the order in which they were queued. Batches of the state of replication (`local/replication/`)
 * are appended and have no row in the replication log. Other local batches (`local/`) are not appended. Orders of replication
 * (`replica-writer.ts`) are appended like groups, once this database has verified them, and are executed by every server.
 */
import type { ReplicaOrder } from './replica-writer.ts'
import type { StreamMark } from './stream-mark.ts'
import type { EncodedGroup } from './group-message.ts'
import type { StoreError } from '../sqlite/store-error.ts'

/** What the log has stored with a group. */
export interface GroupMark extends StreamMark {
  /** Sequence of the row of the first batch in the replication log. The other batches follow. */
  readonly firstSequence: number
  /** Time of the rows. */
  readonly atMs: number
}

/** A group as the commit log has it. Without batches it only moves the mark. */
export interface LoggedGroup extends Pick<EncodedGroup, 'bytes' | 'lengths' | 'epoch'> {
  readonly mark: GroupMark
}

export interface CommitLog {
  /** Why replicated commits are refused at present; undefined while this server may append. */
  readonly refusal: StoreError | undefined
  /**
   * Appends a group. Not called before the last call has settled. Resolves once the group is durable in the log. Rejects with a
   * StoreError when it is not, or when that is unknown; this server may then append nothing more before it has applied the log.
   */
  append(group: AppendedGroup): Promise<GroupMark>
  /** As `append`, for an order. Nothing can be appended until `executed` is called. */
  appendOrder(order: ReplicaOrder): Promise<StreamMark>
  /** The last order was executed: the next row follows the row `sequence`. */
  executed(sequence: number): void
}

/** `hasRows`: the batches have rows in the replication log. */
export interface AppendedGroup extends Pick<EncodedGroup, 'bytes' | 'lengths' | 'epoch'> {
  readonly hasRows: boolean
}
