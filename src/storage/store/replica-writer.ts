/**
 * The writer's side of replication (`replica.ts`): each order is one transaction with the same effects that the rows had on the primary.
 * The input comes from another machine, so it is validated before it is written.
 *
 * In an HA cluster the active server verifies an order (`check`), appends it to the commit stream, and executes it; the other members then
 * execute it on the same entries, with the same effects. `mark` is the position of the order in the stream: the last transaction of the
 * order writes it, and a member that was killed before executes the order again. The orders of a *member copy* are not in the stream: a member
 * whose entries differ copies those of another one, the shared state and the role.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { type Batch, checkBatch, decodeBatch, isLocal, MalformedBatch } from '../sqlite/batch.ts'
import { checksumOf, type LogRow, type CommitPosition, writeFact } from '../sqlite/rows.ts'
import { removeEntries, replicationPathsIn, type ReceivedSnapshot } from './snapshot-entries.ts'
import { leaveStream, type StreamMark, writeStreamMark } from './stream-mark.ts'
import {
  isCopyingIn,
  isJoiningIn,
  NotChained,
  type ReplicaEntry,
  type ReplicaState,
  type StoreMemberState,
  type StoreRole,
} from './replica.ts'
import type { Writer } from './batch-transaction.ts'

export type ReplicaOrder =
  | { readonly do: 'set role'; readonly role: StoreRole; readonly epoch?: number | undefined }
  | { readonly do: 'apply'; readonly rows: readonly LogRow[] }
  | { readonly do: 'begin copy'; readonly from: CommitPosition; readonly clusterId?: string | undefined }
  | ({ readonly do: 'copy' } & EntryChanges)
  | ({ readonly do: 'repair'; readonly asOf: number } & EntryChanges)
  | { readonly do: 'finish copy' }
  | { readonly do: 'wipe' }
  /** For a restore in an HA cluster (`staged-snapshot.ts`): a part of the snapshot's entries, and the restore itself. */
  | { readonly do: 'stage'; readonly at: number; readonly bytes: Uint8Array }
  | { readonly do: 'restore'; readonly received: ReceivedSnapshot }

/** Copy of the entries of another member of an HA cluster. */
export type MemberCopyOrder =
  | { readonly do: 'begin member copy'; readonly from: StoreMemberState }
  | ({ readonly do: 'member copy' } & EntryChanges)
  | { readonly do: 'finish member copy' }

interface EntryChanges {
  readonly puts: readonly ReplicaEntry[]
  readonly deletes: readonly string[]
}

const BEGINNING: CommitPosition = { sequence: 0, epoch: 0, checksum: new Uint8Array(32) }

/** Approximate amount that an order writes. */
export function sizeOf(order: ReplicaOrder | MemberCopyOrder): { readonly batches: number; readonly bytes: number } {
  const values =
    'rows' in order ? order.rows.map(({ batch }) => batch) : 'puts' in order ? order.puts.map(({ value }) => value) : []
  return { batches: values.length, bytes: values.reduce((sum, { length }) => sum + length, 0) }
}

/** The changes of entries that an order makes. */
export function changesOf(order: ReplicaOrder | MemberCopyOrder): Batch[] {
  if ('rows' in order) return order.rows.map(({ batch }) => decodeBatch(batch))
  return 'puts' in order ? [order] : []
}

export class ReplicaWriter {
  readonly #database: DatabaseSync
  readonly #writer: Writer
  readonly #rows: StatementSync

  constructor(database: DatabaseSync, writer: Writer) {
    this.#database = database
    this.#writer = writer
    this.#rows = database.prepare('SELECT batch FROM log WHERE sequence > ? ORDER BY sequence')
  }

  get state(): ReplicaState {
    const { epoch, position, role } = this.#writer
    const isJoining = isJoiningIn(this.#database)
    return { role, isWhole: !isJoining && !isCopyingIn(this.#database), isJoining, epoch, position }
  }

  /** Throws NotChained and MalformedBatch for an order that cannot be executed. */
  check(order: ReplicaOrder): void {
    this.#checkShape(order)
    if (order.do !== 'apply') return
    let { position }: { position: CommitPosition } = this.#writer
    for (const row of order.rows) {
      changesIn(row, position)
      position = row
    }
  }

  #checkShape(order: ReplicaOrder): void {
    if (order.do === 'set role' || order.do === 'finish copy' || order.do === 'stage') return
    if (order.do === 'repair' && this.#writer.role !== 'fenced') return this.#checkRepair(order)
    if (this.#writer.role !== 'replica') throw new MalformedBatch('this store is not a replica')
    if (order.do !== 'copy') return
    if (!isCopyingIn(this.#database)) throw new MalformedBatch('no copy is in progress')
    refuseLocal(order)
  }

  /** Throws NotChained, MalformedBatch, and the errors of a commit; then nothing was written. */
  execute(order: ReplicaOrder, mark?: StreamMark): void {
    this.#checkShape(order)
    if (order.do === 'begin copy') return this.#beginCopy(order, mark)
    if (order.do === 'wipe') return this.#wipe(mark)
    const rows = order.do === 'apply' ? order.rows.length : 0
    this.#transact(rows, mark, () => {
      if (order.do === 'set role') this.#writer.setRole(order.role, Math.max(this.#writer.epoch, order.epoch ?? 0))
      else if (order.do === 'finish copy') writeFact(this.#database, 'copy', false)
      else if (order.do === 'apply') this.#apply(order.rows)
      else if (order.do === 'copy') this.#change(order)
      else if (order.do === 'repair') this.#repair(order)
    })
  }

  #transact(rows: number, mark: StreamMark | undefined, work: () => void): void {
    this.#writer.transact(rows, () => {
      work()
      const row = this.#writer.position.sequence
      if (mark) writeStreamMark(this.#database, { ...mark, row })
      else leaveStream(this.#database)
    })
  }

  #apply(rows: readonly LogRow[]): void {
    for (const row of rows) {
      this.#writer.change(changesIn(row, this.#writer.position), row.sequence)
      this.#writer.append(row)
    }
  }

  #beginCopy({ from, clusterId }: Extract<ReplicaOrder, { do: 'begin copy' }>, mark: StreamMark | undefined): void {
    // First: a crash while the log is dropped must leave an incomplete copy.
    this.#writer.transact(0, () => writeFact(this.#database, 'copy', true))
    this.#writer.dropLog()
    this.#transact(0, mark, () => {
      this.#writer.standAt(from, Math.max(this.#writer.epoch, from.epoch))
      if (clusterId !== undefined) writeFact(this.#database, 'cluster', clusterId)
    })
  }

  /** Throws as `execute` does. */
  executeMemberCopy(order: MemberCopyOrder): void {
    if (order.do === 'begin member copy') return this.#beginMemberCopy(order.from)
    if (!isJoiningIn(this.#database)) throw new MalformedBatch('no copy from another member is in progress')
    if (order.do === 'member copy') refuseLocal(order)
    this.#writer.transact(0, () => {
      if (order.do === 'member copy') this.#change(order)
      else writeFact(this.#database, 'joining', false)
    })
  }

  /** The entries of both are kept until they are compared; everything else becomes that of the other member. */
  #beginMemberCopy({ position, mark, role, epoch, isCopying, clusterId, shared }: StoreMemberState): void {
    this.#writer.transact(0, () => writeFact(this.#database, 'joining', true))
    this.#writer.dropLog()
    const own = replicationPathsIn(this.#database)
    this.#transact(0, mark, () => {
      this.#writer.standAt(position, epoch)
      this.#writer.setRole(role, epoch)
      writeFact(this.#database, 'copy', isCopying)
      writeFact(this.#database, 'cluster', clusterId)
      const kept = new Set(shared.map(({ path }) => path))
      this.#writer.change({ puts: shared, deletes: own.filter((path) => !kept.has(path)) }, position.sequence)
    })
  }

  #change({ puts, deletes }: EntryChanges): void {
    for (const put of puts) this.#writer.put(put, put.sequence)
    for (const path of deletes) this.#writer.remove(path)
  }

  #checkRepair({ asOf, puts, deletes }: RepairOrder): void {
    const { base, position } = this.#writer
    if (isCopyingIn(this.#database)) throw new NotChained('a copy is in progress')
    if (asOf > position.sequence) throw new NotChained(`this store is at sequence ${position.sequence}, before ${asOf}`)
    if (asOf < base.sequence) throw new NotChained(`the log does not reach back to sequence ${asOf}`)
    refuseLocal({ puts, deletes })
    if (puts.some(({ sequence }) => sequence > asOf)) throw new MalformedBatch('an entry is newer than the repair')
  }

  #repair({ asOf, puts, deletes }: RepairOrder): void {
    const changed = this.#pathsChangedAfter(asOf)
    this.#change({
      puts: puts.filter(({ path }) => !changed.has(path)),
      deletes: deletes.filter((path) => !changed.has(path)),
    })
  }

  #pathsChangedAfter(sequence: number): Set<string> {
    const changed = new Set<string>()
    for (const { batch } of this.#rows.iterate(sequence)) {
      if (!(batch instanceof Uint8Array)) throw new MalformedBatch('the log is damaged')
      const { puts, deletes } = decodeBatch(batch)
      for (const { path } of puts) changed.add(path)
      for (const path of deletes) changed.add(path)
    }
    return changed
  }

  #wipe(mark: StreamMark | undefined): void {
    this.#writer.dropLog()
    this.#transact(0, mark, () => {
      removeEntries(this.#database)
      this.#writer.treeUpdater?.reset('made')
      this.#writer.standAt(BEGINNING, BEGINNING.epoch)
      writeFact(this.#database, 'copy', false)
    })
  }
}

type RepairOrder = Extract<ReplicaOrder, { do: 'repair' }>

/** The changes of a row. Throws NotChained unless it follows `before`, and MalformedBatch. */
function changesIn(row: LogRow, before: CommitPosition): Batch {
  const isNext = row.sequence === before.sequence + 1 && row.epoch >= before.epoch
  if (!isNext || !checksumOf(row, before.checksum).equals(row.checksum)) {
    throw new NotChained(`row ${row.sequence} does not follow row ${before.sequence}`)
  }
  const batch = decodeBatch(row.batch)
  refuseLocal(batch)
  return batch
}

/** Throws MalformedBatch for local paths: they are never replicated. */
function refuseLocal(batch: Batch): void {
  checkBatch(batch)
  if (isLocal(batch)) throw new MalformedBatch('the primary sent local paths')
}
