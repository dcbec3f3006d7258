/**
 * What the writer does for replication (`replica.ts`): each order is one transaction, whose effects are those that the same
 * rows had on the primary. What comes is from another machine, so it is looked at before it is written.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { type Batch, checkBatch, decodeBatch, isLocal, MalformedBatch } from '../sqlite/batch.ts'
import { writeFact } from '../sqlite/facts.ts'
import { checksumOf, type LogRow, type Position } from '../sqlite/log-row.ts'
import { isWholeIn, type ReplicaState } from './replica-facts.ts'
import { type CopiedEntry, NotChained, type StoreRole } from './replica.ts'
import type { Writer } from './writer.ts'

export type ReplicaOrder =
  | { readonly do: 'set role'; readonly role: StoreRole; readonly epoch: number | undefined }
  | { readonly do: 'apply'; readonly rows: readonly LogRow[] }
  | { readonly do: 'begin copy'; readonly from: Position; readonly clusterId: string | undefined }
  | ({ readonly do: 'copy' } & Pieces)
  | ({ readonly do: 'repair'; readonly asOf: number } & Pieces)
  | { readonly do: 'finish copy' | 'wipe' }

interface Pieces {
  readonly puts: readonly CopiedEntry[]
  readonly deletes: readonly string[]
}

/** State of replication itself, which belongs to this machine and outlives what it replicates. */
export const REPLICATION_PREFIX = 'local/replication/'
const BEHIND_REPLICATION_PREFIX = 'local/replication0'
const BEGINNING: Position = { sequence: 0, epoch: 0, checksum: new Uint8Array(32) }

/** Removes what a restored or copied state takes the place of. */
export function removeEntries(database: DatabaseSync): void {
  const remove = database.prepare('DELETE FROM entries WHERE path < ? OR path >= ?')
  remove.run(REPLICATION_PREFIX, BEHIND_REPLICATION_PREFIX)
}

/** About what an order writes, for those who count it. */
export function sizeOf(order: ReplicaOrder): { readonly batches: number; readonly bytes: number } {
  const values =
    'rows' in order ? order.rows.map(({ batch }) => batch) : 'puts' in order ? order.puts.map(({ value }) => value) : []
  return { batches: values.length, bytes: values.reduce((sum, { length }) => sum + length, 0) }
}

/** What it writes of entries, to judge whether it may use the reserve. */
export function changesOf(order: ReplicaOrder): Batch[] {
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
    return { role, isWhole: isWholeIn(this.#database), epoch, position }
  }

  /** Throws NotChained and MalformedBatch, and what a commit throws; nothing was written then. */
  take(order: ReplicaOrder): void {
    if (order.do === 'set role') return this.#setRole(order.role, order.epoch)
    if (order.do === 'finish copy') return this.#writer.transact(0, () => writeFact(this.#database, 'copy', false))
    if (order.do === 'repair' && this.#writer.role !== 'fenced') return this.#repair(order, order.asOf)
    if (this.#writer.role !== 'replica') throw new MalformedBatch('this store is no replica')
    if (order.do === 'apply') this.#apply(order.rows)
    else if (order.do === 'begin copy') this.#beginCopy(order.from, order.clusterId)
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
          throw new NotChained(`row ${row.sequence} does not follow upon ${position.sequence}`)
        }
        const batch = decodeBatch(row.batch)
        refuseLocal(batch)
        this.#writer.change(batch, row.sequence)
        this.#writer.append(row)
      }
    })
  }

  #beginCopy(from: Position, clusterId: string | undefined): void {
    // First, so that a log that is dropped in part belongs to a copy that has begun.
    this.#writer.transact(0, () => writeFact(this.#database, 'copy', true))
    this.#writer.dropLog()
    this.#writer.transact(0, () => {
      this.#writer.standAt(from, Math.max(this.#writer.epoch, from.epoch))
      if (clusterId !== undefined) writeFact(this.#database, 'cluster', clusterId)
    })
  }

  #copy({ puts, deletes }: Pieces): void {
    if (isWholeIn(this.#database)) throw new MalformedBatch('no copy has begun')
    refuseLocal({ puts, deletes })
    this.#writer.transact(0, () => this.#change({ puts, deletes }))
  }

  #change({ puts, deletes }: Pieces): void {
    for (const put of puts) this.#writer.put(put, put.sequence)
    for (const path of deletes) this.#writer.remove(path)
  }

  #repair({ puts, deletes }: Pieces, asOf: number): void {
    const { base, position } = this.#writer
    if (!isWholeIn(this.#database)) throw new NotChained('a copy is under way')
    if (asOf > position.sequence) throw new NotChained(`this store is at ${position.sequence}, not yet at ${asOf}`)
    if (asOf < base.sequence) throw new NotChained(`the log does not go back to ${asOf}`)
    refuseLocal({ puts, deletes })
    if (puts.some(({ sequence }) => sequence > asOf)) throw new MalformedBatch('an entry is newer than it says')
    this.#writer.transact(0, () => {
      const changed = this.#changedBehind(asOf)
      this.#change({
        puts: puts.filter(({ path }) => !changed.has(path)),
        deletes: deletes.filter((path) => !changed.has(path)),
      })
    })
  }

  #changedBehind(sequence: number): Set<string> {
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
      this.#writer.keeper?.reset('made')
      this.#writer.standAt(BEGINNING, BEGINNING.epoch)
      writeFact(this.#database, 'copy', false)
    })
  }
}

/** What is replicated is never local to a machine. Throws MalformedBatch. */
function refuseLocal(batch: Batch): void {
  checkBatch(batch)
  if (isLocal(batch)) throw new MalformedBatch('what comes from the primary is local to a machine')
}
