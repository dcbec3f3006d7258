/**
 * The interface between a store and replication: roles, shipping and applying of the log, copies, and the Merkle tree that finds
 * differences. `SqliteStore` implements it.
 *
 * A store has one *role*, a fact of its database. In `own` it accepts commits. In `replica` it accepts rows of its primary's log
 * (`applyRows`), each of which results in the same entries, sequences and checksums as on the primary. In `fenced` it accepts neither,
 * because another cluster may be the primary. Local batches (`local/`) are accepted in every role.
 *
 * A *copy* brings a replica from any state to that of its primary without the log: `beginCopy` at the primary's position P, then
 * entries in parts (`copyEntries`), then rows of the log from P on. The primary continues meanwhile, so the entries are of different
 * points in time: the copy is complete (`finishCopy`) at the position that the primary had when the last of them was read. A put has
 * the whole value, so applying a row twice is idempotent. An interrupted copy continues with its entries: the tree shows what is missing.
 */
import type { DatabaseSync } from 'node:sqlite'
import { Fault } from '../../platform/errors.ts'
import type { Batch, Put } from '../sqlite/batch.ts'
import type { StoredEntry } from '../sqlite/entry-reader.ts'
import { factIn, type LogRow, type CommitPosition } from '../sqlite/rows.ts'
import type { StreamMark } from './stream-mark.ts'

export type { LogRow, CommitPosition } from '../sqlite/rows.ts'

export type StoreRole = 'own' | 'replica' | 'fenced'

/** An entry of the primary. */
export interface ReplicaEntry {
  readonly path: string
  readonly sequence: number
  readonly value: Uint8Array
}

/** Entries of one point in time. */
export interface EntriesAt {
  /** Sequence of the newest row of the log at that time. */
  readonly sequence: number
  readonly entries: readonly ReplicaEntry[]
  /** Requested paths without an entry. */
  readonly missing: readonly string[]
  /** Requested paths whose entry is damaged. */
  readonly damaged: readonly string[]
}

export interface RowLimits {
  readonly rows: number
  /** Bytes of their batches. */
  readonly bytes: number
}

/** The state of a member of an HA cluster at one moment, which another member takes over before it copies the entries that differ. */
export interface StoreMemberState {
  readonly position: CommitPosition
  readonly mark: StreamMark
  readonly role: StoreRole
  readonly epoch: number
  /** A copy from the primary of another cluster is in progress. */
  readonly isCopying: boolean
  readonly clusterId: string
  /** The state of replication, which the members share. */
  readonly shared: readonly Put[]
}

/** The rows do not follow the newest row of the store, or a repair does not fit its log. Nothing was written. */
export class NotChained extends Error {
  override readonly name = 'NotChained'
}

export interface ReplicaStore {
  /** The current epoch of the store. */
  readonly epoch: number
  readonly role: StoreRole
  /** False from `beginCopy` to `finishCopy`, and during a copy from another member: the entries are incomplete. */
  readonly isWhole: boolean
  /** ID of the cluster of the entries: that of the primary on a replica. */
  readonly clusterId: string
  /** The newest row, to which the next row is chained. */
  position(): CommitPosition
  /** Whether the state of replication has had a code, from the file `.seen` (`seen-file.ts`). */
  readonly hasRoleCode: boolean
  /** Sets `hasRoleCode`. Resolves once the file is synced. */
  setRoleCode(): Promise<void>
  /** The position before the oldest retained row. */
  base(): CommitPosition
  /** Rows of the log after `sequence`, in order, within the limits; at least one if there is one. */
  rowsAfter(sequence: number, limits: RowLimits): LogRow[]
  /** Whether the retained log or its base has this position. */
  holds(position: CommitPosition): boolean
  /** Calls the listener with the newest sequence when new rows are durable. Returns a function that removes it. */
  onAppended(listener: (newest: number) => void): () => void
  /** Changes the role, after the queued commits. `epoch` is raised in the same transaction; it never decreases. */
  setRole(role: StoreRole, epoch?: number): Promise<void>
  /**
   * For a replica: writes the rows and their effects in one transaction. Resolves to the new position. Rejects with NotChained, and then
   * nothing was written, when a row does not follow the row before it.
   */
  applyRows(rows: readonly LogRow[]): Promise<CommitPosition>
  /**
   * For a replica: starts or restarts a copy. Empties the log, which continues after `from`. The entries stay. `clusterId`: ID of the
   * primary's cluster, which the store adopts.
   */
  beginCopy(from: CommitPosition, clusterId?: string): Promise<void>
  /** During a copy: writes and deletes entries in one transaction. Deleting a missing entry is not an error. */
  copyEntries(puts: readonly ReplicaEntry[], deletes: readonly string[]): Promise<void>
  /** Ends a copy. The entries must be those of `position()`. */
  finishCopy(): Promise<void>
  /**
   * For a complete replica and for a primary: repairs damaged, missing and extra entries with the state of the other side at `asOf`
   * (`entriesAt`). Paths that later rows have changed are skipped. Rejects with NotChained while `position()` is before `asOf`, and when
   * the log does not reach back to it: then request the entries again. The tree may still be wrong afterwards: `tree.rebuild` with
   * `diff` corrects it.
   */
  repairEntries(puts: readonly ReplicaEntry[], deletes: readonly string[], asOf: number): Promise<void>
  /** Removes the log and all entries except those below `local/replication/`. The store is then at sequence 0 in epoch 0. */
  wipe(): Promise<void>
  /** Keeps rows after `acknowledged`, the position of the slowest secondary, in the log, up to the limit. Undefined without secondaries. */
  keepLogBehind(acknowledged: number | undefined): Promise<void>
  /**
   * Called with the sequence of each durable commit. The commit resolves once the returned promise resolves, or at once without a
   * promise. If the promise rejects, so does the commit, although it is durable here.
   */
  set acknowledgement(wait: ((sequence: number) => Promise<void> | undefined) | undefined)
  readonly tree: MerkleTree
  get(path: string): StoredEntry | undefined
  /** Entries that a replica requests by path, all of one point in time. */
  entriesAt(paths: readonly string[]): EntriesAt
  /** Full paths at any depth below `prefix`, in byte order. */
  paths(prefix: string): string[]
  commit(batch: Batch): Promise<number>
}

/** The leaf of an entry in the Merkle tree. */
export interface Leaf {
  readonly path: string
  /** 20 bytes. */
  readonly leaf: Buffer
}

/** The result of a full check of the tree. */
export interface TreeReport {
  readonly checkedAtMs: number
  /** Maintained root of both trees, 20 bytes. */
  readonly root: Buffer
  readonly isRootCorrupted: boolean
  readonly trees: { readonly replicated: SubtreeReport; readonly local: SubtreeReport }
  /** Paths of the first entries with a wrong checksum. */
  readonly damagedPaths: readonly string[]
  readonly damagedCount: number
  readonly entries: number
}

export interface SubtreeReport {
  readonly root: Buffer
  readonly isRootCorrupted: boolean
  /** Damaged pages, and subpages that do not match the entries. */
  readonly pages: ReadonlyMap<number, { readonly isCorrupted: boolean; readonly subpages: readonly number[] }>
}

/** Counts scanned entries; `total` is approximate. */
export type TreeProgress = (done: number, total: number) => void

export interface RebuildOptions {
  /** Write only pages that differ; otherwise all pages. */
  readonly diff: boolean
  /** Do not wait for the pages to be written. After a crash they are rebuilt from the notes. */
  readonly skipFlush: boolean
}

/**
 * A Merkle tree over all replicated entries: 256 pages of 256 subpages, by the CRC-32 of the path. It is maintained with each commit
 * while it is enabled. It detects accidental differences and damage; deliberate changes are detected by the barrier's entry set.
 */
export interface MerkleTree {
  readonly isEnabled: boolean
  /** Resolves once the tree is complete. The first call builds it from all entries, while commits continue. */
  enable(): Promise<void>
  /**
   * For the start of a server: resolves once the tree is maintained. An incomplete tree is built in the background; `root`, `pages` and
   * `subpages` reject until it is complete. Calls `onFailure` when that fails; `rebuild` retries.
   */
  resume(onFailure: (error: unknown) => void): Promise<void>
  /** Deletes the tree; the next `enable` builds it again. */
  disable(): Promise<void>
  /** 20 bytes: the hash of the replicated tree and of the local one, which is empty. */
  root(): Promise<Buffer>
  /** 256 hashes of 20 bytes. */
  pages(): Promise<readonly Buffer[]>
  /** For each of these pages 256 hashes of 20 bytes. */
  subpages(pages: readonly number[]): Promise<ReadonlyMap<number, readonly Buffer[]>>
  /**
   * Leaves of these subpages (page × 256 + subpage) after the path `after`, in byte order of their paths. Returns at most `limit` leaves
   * and the `after` of the next call, undefined at the end. The leaf of a damaged entry differs from the leaf of the same entry on any
   * other store, even if the tree does not show the damage.
   */
  leaves(
    subpages: ReadonlySet<number>,
    after: string,
    limit: number,
  ): Promise<{ readonly leaves: Leaf[]; readonly after: string | undefined }>
  /** Builds the tree of all entries and compares it with the maintained one, while commits continue. */
  check(onProgress?: TreeProgress): Promise<TreeReport>
  /** Corrects the tree, while commits continue. Entries are not changed. */
  rebuild(options: RebuildOptions, onProgress?: TreeProgress): Promise<void>
}

export interface ReplicaState {
  readonly role: StoreRole
  readonly isWhole: boolean
  /** The entries are being copied from another member of the HA cluster. */
  readonly isJoining: boolean
  readonly epoch: number
  readonly position: CommitPosition
}

export function roleIn(database: DatabaseSync): StoreRole {
  const role = factIn(database, 'role') ?? 'own'
  if (role === 'own' || role === 'replica' || role === 'fenced') return role
  throw new Fault('the role of the database is damaged')
}

/** False during a copy. */
export function isWholeIn(database: DatabaseSync): boolean {
  return !isCopyingIn(database) && !isJoiningIn(database)
}

/** True during a copy from the primary. */
export function isCopyingIn(database: DatabaseSync): boolean {
  return factIn(database, 'copy') === true
}

/** True during a copy from another member of the HA cluster. */
export function isJoiningIn(database: DatabaseSync): boolean {
  return factIn(database, 'joining') === true
}
