/**
 * The writer's side of replication (`replica.ts`): each order is one transaction with the same effects that the rows had on the primary.
 * The input comes from another machine, so it is validated before it is written.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { type Batch, checkBatch, decodeBatch, isLocal, MalformedBatch } from '../sqlite/batch.ts'
import { checksumOf, type LogRow, type CommitPosition, writeFact } from '../sqlite/rows.ts'
import type { StreamMark } from './commit-log.ts'
import { writeStreamMark } from './stream-mark.ts'
import { type ReplicaEntry, isWholeIn, NotChained, type ReplicaState, type StoreRole } from './replica.ts'
import type { Writer } from './writer.ts'

export type ReplicaOrder =
  | { readonly do: 'set role'; readonly role: StoreRole; readonly epoch: number | undefined }
  | { readonly do: 'apply'; readonly rows: readonly LogRow[] }
  | {
      readonly do: 'begin copy'
      readonly from: CommitPosition
      readonly clusterId: string | undefined
      readonly stream?: StreamMark | undefined
    }
  | ({ readonly do: 'copy' } & EntryChanges)
  | ({ readonly do: 'repair'; readonly asOf: number } & EntryChanges)
  | { readonly do: 'finish copy' | 'wipe' }

interface EntryChanges {
  readonly puts: readonly ReplicaEntry[]
  readonly deletes: readonly string[]
}

/** Prefix of the state of replication itself. It is local to this machine and survives a wipe, a copy and a restore. */
export const REPLICATION_PREFIX = 'local/replication/'
const AFTER_REPLICATION_PREFIX = 'local/replication0'
const BEGINNING: CommitPosition = { sequence: 0, epoch: 0, checksum: new Uint8Array(32) }

/** Removes all entries but the state of replication. */
export function removeEntries(database: DatabaseSync): void {
  const remove = database.prepare('DELETE FROM entries WHERE path < ? OR path >= ?')
  remove.run(REPLICATION_PREFIX, AFTER_REPLICATION_PREFIX)
}

/** Approximate amount that an order writes. */
export function sizeOf(order: ReplicaOrder): { readonly batches: number; readonly bytes: number } {
  const values =
    'rows' in order ? order.rows.map(({ batch }) => batch) : 'puts' in order ? order.puts.map(({ value }) => value) : []
  return { batches: values.length, bytes: values.reduce((sum, { length }) => sum + length, 0) }
}

/** The changes of entries that an order makes. */
export function changesOf(order: ReplicaOrder): Batch[] {
  if ('rows' in order) return order.rows.map(({ batch }) => decodeBatch(batch))
  return 'puts' in order ? [order] : []
}

export class ReplicaWriter {
  readonly #database: DatabaseSync
  readonly #writer: Writer
  readonly #rows: StatementSync
  /** A member of an HA cluster may copy entries from another one. */
  isMember: boolean

  constructor(database: DatabaseSync, writer: Writer, isMember = false) {
    this.#database = database
    this.#writer = writer
    this.isMember = isMember
    this.#rows = database.prepare('SELECT batch FROM log WHERE sequence > ? ORDER BY sequence')
  }

  get state(): ReplicaState {
    const { epoch, position, role } = this.#writer
    return { role, isWhole: isWholeIn(this.#database), epoch, position }
  }

  /** Throws NotChained, MalformedBatch, and the errors of a commit; then nothing was written. */
  execute(order: ReplicaOrder): void {
    if (order.do === 'set role') return this.#setRole(order.role, order.epoch)
    if (order.do === 'finish copy') return this.#writer.transact(0, () => writeFact(this.#database, 'copy', false))
    if (order.do === 'repair' && this.#writer.role !== 'fenced') return this.#repair(order, order.asOf)
    const isCopy = order.do === 'begin copy' || order.do === 'copy'
    if (this.#writer.role !== 'replica' && !(isCopy && this.isMember)) {
      throw new MalformedBatch('this store is not a replica')
    }
    if (order.do === 'apply') this.#apply(order.rows)
    else if (order.do === 'begin copy') this.#beginCopy(order)
    else if (order.do === 'copy') this.#copy(order)
    else this.#wipe()
  }

  #setRole(role: StoreRole, epoch = 0): void {
    this.#writer.transact(0, () => this.#writer.setRole(role, Math.max(this.#writer.epoch, epoch)))
  }

  #apply(rows: readonly LogRow[]): void {
    this.#writer.transact(rows.length, () => {
      for (const row of rows) {
        const { position } = this.#writer
        const isNext = row.sequence === position.sequence + 1 && row.epoch >= position.epoch
        if (!isNext || !checksumOf(row, position.checksum).equals(row.checksum)) {
          throw new NotChained(`row ${row.sequence} does not follow row ${position.sequence}`)
        }
        const batch = decodeBatch(row.batch)
        refuseLocal(batch)
        this.#writer.change(batch, row.sequence)
        this.#writer.append(row)
      }
    })
  }

  #beginCopy({ from, clusterId, stream }: Extract<ReplicaOrder, { do: 'begin copy' }>): void {
    // First: a crash while the log is dropped must leave an incomplete copy.
    this.#writer.transact(0, () => writeFact(this.#database, 'copy', true))
    this.#writer.dropLog()
    this.#writer.transact(0, () => {
      this.#writer.standAt(from, Math.max(this.#writer.epoch, from.epoch))
      if (clusterId !== undefined) writeFact(this.#database, 'cluster', clusterId)
      if (stream) writeStreamMark(this.#database, { ...stream, row: from.sequence })
    })
  }

  #copy({ puts, deletes }: EntryChanges): void {
    if (isWholeIn(this.#database)) throw new MalformedBatch('no copy is in progress')
    refuseLocal({ puts, deletes })
    this.#writer.transact(0, () => this.#change({ puts, deletes }))
  }

  #change({ puts, deletes }: EntryChanges): void {
    for (const put of puts) this.#writer.put(put, put.sequence)
    for (const path of deletes) this.#writer.remove(path)
  }

  #repair({ puts, deletes }: EntryChanges, asOf: number): void {
    const { base, position } = this.#writer
    if (!isWholeIn(this.#database)) throw new NotChained('a copy is in progress')
    if (asOf > position.sequence) throw new NotChained(`this store is at sequence ${position.sequence}, before ${asOf}`)
    if (asOf < base.sequence) throw new NotChained(`the log does not reach back to sequence ${asOf}`)
    refuseLocal({ puts, deletes })
    if (puts.some(({ sequence }) => sequence > asOf)) throw new MalformedBatch('an entry is newer than the repair')
    this.#writer.transact(0, () => {
      const changed = this.#pathsChangedAfter(asOf)
      this.#change({
        puts: puts.filter(({ path }) => !changed.has(path)),
        deletes: deletes.filter((path) => !changed.has(path)),
      })
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

  #wipe(): void {
    this.#writer.dropLog()
    this.#writer.transact(0, () => {
      removeEntries(this.#database)
      this.#writer.treeUpdater?.reset('made')
      this.#writer.standAt(BEGINNING, BEGINNING.epoch)
      writeFact(this.#database, 'copy', false)
    })
  }
}

/** Throws MalformedBatch for local paths: they are never replicated. */
function refuseLocal(batch: Batch): void {
  checkBatch(batch)
  if (isLocal(batch)) throw new MalformedBatch('the primary sent local paths')
}
