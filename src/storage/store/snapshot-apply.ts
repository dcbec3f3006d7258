/** Puts a snapshot in the place of everything that a database holds, in one transaction: all of it, or nothing. */
import type { DatabaseSync } from 'node:sqlite'
import { writeFact } from '../sqlite/facts.ts'
import { epochIn, writeBase } from '../sqlite/log-row.ts'
import { removeEntries } from './replica-writer.ts'
import type { SnapshotMeta } from '../snapshot/format/snapshot-archive.ts'
import { treeStateIn } from '../merkle/tree-keeper.ts'
import { readRecords, verifyRecords } from '../snapshot/format/snapshot-records.ts'

/** A snapshot whose entries lie in a file. */
export interface Received {
  readonly meta: SnapshotMeta
  /** Of the entries, in hex. */
  readonly sha256: string
  /** Paths without which it is refused. */
  readonly requires: readonly string[]
}

export interface Restored {
  /** Higher than both epochs that were: nobody takes the history that begins here for one of those. */
  readonly epoch: number
}

/** The file is looked at whole first. Throws a Refusal for a damaged one; the database is as it was then. */
export function applySnapshot(database: DatabaseSync, fd: number, { meta, sha256, requires }: Received): Restored {
  verifyRecords(fd, meta, sha256, requires)
  const epoch = Math.max(epochIn(database), meta.epoch) + 1
  database.exec('BEGIN IMMEDIATE')
  try {
    removeEntries(database)
    database.exec('DELETE FROM log')
    const put = database.prepare('INSERT INTO entries (path, sequence, crc, value) VALUES (?, ?, ?, ?)')
    for (const { path, sequence, crc, value } of readRecords(fd, meta.bytes)) put.run(path, sequence, crc, value)
    const checksum = Buffer.from(meta.checksum, 'hex')
    writeBase(database, { sequence: meta.sequence, epoch: meta.epoch, checksum, total: 0 })
    writeFact(database, 'epoch', epoch)
    writeFact(database, 'copy', false)
    if (treeStateIn(database) !== 'off') writeFact(database, 'tree', 'making')
    writeFact(database, 'cluster', meta.clusterId)
    database.exec('COMMIT')
  } catch (error) {
    if (database.isTransaction) database.exec('ROLLBACK')
    throw error
  }
  return { epoch }
}
