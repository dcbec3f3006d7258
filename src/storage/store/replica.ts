/**
 * What replication needs of a store: roles, the log as it is shipped and applied, copies, and the tree of hashes that tells
 * what differs. `SqliteStore` has all of it.
 *
 * A store is in one *role*, which is a fact of its database. In `own` it takes commits. In `replica` it takes rows of its
 * primary's log (`applyRows`), each of which leaves exactly the entries, sequences and checksums that it left on the primary.
 * In `fenced` it takes neither: another cluster is the primary by now. Batches of this machine's own (`local/`) are taken in
 * every role.
 *
 * A *copy* brings a replica from any state to that of its primary, beside the log: `beginCopy` at the primary's position P,
 * then entries in pieces (`copyEntries`), then rows of the log from P on. Entries are read from a primary that goes on
 * meanwhile, so they are of different moments: the copy is whole (`finishCopy`) at the position that the primary had when
 * the last of them was read. Puts are whole values, so a row that is applied upon its own effect changes nothing. A copy that
 * was cut begins again with what it has: the tree tells what is still missing.
 */
import type { Batch } from '../sqlite/batch.ts'
import type { Entry } from '../sqlite/entry-cache.ts'
import type { LogRow, Position } from '../sqlite/log-row.ts'

export type { LogRow, Position } from '../sqlite/log-row.ts'

export type StoreRole = 'own' | 'replica' | 'fenced'

/** An entry as the primary has it. */
export interface CopiedEntry {
  readonly path: string
  readonly sequence: number
  readonly value: Uint8Array
}

/** Entries of one moment. */
export interface EntriesAt {
  /** Of the newest row of the log at that moment. */
  readonly sequence: number
  readonly entries: readonly CopiedEntry[]
  /** Of those that were asked for, those that are not there. */
  readonly missing: readonly string[]
  /** Those that are there and can not be read. */
  readonly damaged: readonly string[]
}

export interface RowLimits {
  readonly rows: number
  /** Of their batches. */
  readonly bytes: number
}

/** Rows that do not follow upon what the store has, or a repair that comes too late or too early. Nothing was written. */
export class NotChained extends Error {
  override readonly name = 'NotChained'
}

export interface ReplicaStore {
  /** In which it commits, or of the newest that it has heard of. */
  readonly epoch: number
  readonly role: StoreRole
  /** False from `beginCopy` to `finishCopy`: entries are of different moments, or missing. */
  readonly isWhole: boolean
  /** Of the cluster that the entries belong to: a replica takes over its primary's. */
  readonly clusterId: string
  /** Where the history stands: what the next row is chained to. */
  position(): Position
  /** Whether the state of replication had a code, by the file `.seen` (`seen-mark.ts`). */
  readonly hasRoleCode: boolean
  /** Resolves once the file says so and is synced. */
  setRoleCode(): Promise<void>
  /** What the oldest row of the log that is left follows upon. */
  base(): Position
  /** Rows of the log behind `sequence`, in order, within the limits; at least one if there is one. */
  rowsAfter(sequence: number, limits: RowLimits): LogRow[]
  /** Whether the history here went through this position, as far as the log tells: a row of it, or what it follows upon. */
  holds(position: Position): boolean
  /** Calls back after each transaction that added rows, when they are durable, with the newest sequence. Returns what ends it. */
  onAppended(listener: (newest: number) => void): () => void
  /**
   * Goes over to a role; commits that were queued before are written first. `epoch`: the one to stand in from now on, in the
   * same transaction; it never falls.
   */
  setRole(role: StoreRole, epoch?: number): Promise<void>
  /**
   * For a replica: writes the rows and their effects in one transaction. Resolves with where the history stands then. Rejects
   * with NotChained, and nothing was written, when the first does not follow upon `position()` or one upon the one before it.
   */
  applyRows(rows: readonly LogRow[]): Promise<Position>
  /**
   * For a replica: empties the log, which goes on behind `from` as soon as rows are applied. Entries stay. Also to begin a
   * copy again that was cut. `clusterId`: the primary's, which is taken over.
   */
  beginCopy(from: Position, clusterId?: string): Promise<void>
  /** Within a copy: writes and removes entries, in one transaction. What is to be removed and is not there is fine. */
  copyEntries(puts: readonly CopiedEntry[], deletes: readonly string[]): Promise<void>
  /** The entries are those of `position()`: the copy has caught up with its newest entry. */
  finishCopy(): Promise<void>
  /**
   * For a replica that is whole, and for a primary: puts entries in order that are damaged, missing or too many, as the other side
   * had them at `asOf` (`entriesAt`). Paths that rows behind `asOf` have changed are left alone. Rejects with NotChained while
   * `position()` is before `asOf`, and when the log does not go back to it: ask the other side again then. The tree may be
   * wrong afterwards as it was before: `tree.rebuild` with `diff` puts it right.
   */
  repairEntries(puts: readonly CopiedEntry[], deletes: readonly string[], asOf: number): Promise<void>
  /**
   * Removes all entries and the log, in one transaction; entries below `local/replication/` stay. The store is at the
   * beginning then, in epoch 0.
   */
  wipe(): Promise<void>
  /** How far the slowest secondary has come: what it lacks stays in the log, up to the cap. Undefined without secondaries. */
  keepLogBehind(acknowledged: number | undefined): Promise<void>
  /**
   * A commit is answered once what this gives for its sequence has resolved; at once where it gives nothing. It is durable
   * here by then: what it rejects with is the answer, and takes nothing back.
   */
  set acknowledgement(wait: ((sequence: number) => Promise<void> | undefined) | undefined)
  readonly tree: MerkleTree
  get(path: string): Entry | undefined
  /** What a replica asks for by name, all of one moment. */
  entriesAt(paths: readonly string[]): EntriesAt
  /** Whole paths anywhere below `prefix`, in byte order. */
  paths(prefix: string): string[]
  commit(batch: Batch): Promise<number>
}

/** Of an entry, as another store lists it. */
export interface Leaf {
  readonly path: string
  /** 20 bytes. */
  readonly leaf: Buffer
}

/** What a look at everything found. */
export interface TreeReport {
  readonly checkedAtMs: number
  /** Of both trees together, as it is kept; 20 bytes. */
  readonly root: Buffer
  readonly isRootCorrupted: boolean
  readonly trees: { readonly replicated: SubtreeReport; readonly local: SubtreeReport }
  /** Entries whose checksum is wrong, the first of them. */
  readonly damagedPaths: readonly string[]
  readonly damagedCount: number
  readonly entries: number
}

export interface SubtreeReport {
  readonly root: Buffer
  readonly isRootCorrupted: boolean
  /** By page: whether the page itself can not be read, and which of its subpages are not what the entries say. */
  readonly pages: ReadonlyMap<number, { readonly isCorrupted: boolean; readonly subpages: readonly number[] }>
}

/** Of entries that were looked at; `total` about. */
export type TreeProgress = (done: number, total: number) => void

export interface RebuildOptions {
  /** Replace only what differs; otherwise everything is written anew. */
  readonly diff: boolean
  /** Do not wait until it is on the disk: after a crash it would be made from the log, as ever. */
  readonly skipFlush: boolean
}

/**
 * A tree of hashes over all replicated entries: 256 pages of 256 subpages, by the CRC-32 of the path. It is
 * kept with each commit while it is enabled. It tells accidents and damage, no intent: that is the barrier's entry set.
 */
export interface MerkleTree {
  readonly isEnabled: boolean
  /** Resolves once it is there and kept: the first time it is made of all entries, while commits go on. */
  enable(): Promise<void>
  /**
   * For a start: resolves once it is kept. Where it has yet to be made, of all entries, that goes on beside everything else:
   * `root`, `pages` and `subpages` reject until then. `onFailure` is told when it could not be made; `rebuild` tries again.
   */
  resume(onFailure: (error: unknown) => void): Promise<void>
  /** Nothing is kept any more; the next `enable` makes it anew. */
  disable(): Promise<void>
  /** 20 bytes: of the replicated tree and the local one, which is empty. */
  root(): Promise<Buffer>
  /** 256 hashes of 20 bytes. */
  pages(): Promise<readonly Buffer[]>
  /** For each of these pages 256 hashes of 20 bytes. */
  subpages(pages: readonly number[]): Promise<ReadonlyMap<number, readonly Buffer[]>>
  /**
   * Leaves of these subpages (page × 256 + subpage), in byte order of their paths, those behind `after`. At most `limit`, perhaps
   * fewer: the next call takes the `after` of this one, which is undefined at the end. An entry whose checksum is wrong has
   * another leaf than the same entry elsewhere, also where the tree does not tell.
   */
  leaves(
    subpages: ReadonlySet<number>,
    after: string,
    limit: number,
  ): Promise<{ readonly leaves: Leaf[]; readonly after: string | undefined }>
  /** Makes the tree of all entries and compares; commits go on. */
  check(onProgress?: TreeProgress): Promise<TreeReport>
  /** Puts right what `check` finds in the tree itself; commits go on. Entries stay as they are. */
  rebuild(options: RebuildOptions, onProgress?: TreeProgress): Promise<void>
}
