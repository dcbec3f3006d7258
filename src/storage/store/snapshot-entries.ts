/** Snapshots at the level of the database: copies its entries into a file, and replaces its content by the entries of a file. */
import type { DatabaseSync } from 'node:sqlite'
import { messageOf } from '../../platform/errors.ts'
import { treeStateIn } from '../merkle/tree-updater.ts'
import type { SnapshotMeta } from '../snapshot/format/snapshot-archive.ts'
import { type SnapshotCopy, copyEntries, readRecords, verifyRecords } from '../snapshot/format/snapshot-records.ts'
import { openForReading } from '../sqlite/database.ts'
import { epochIn, writeBase, writeFact } from '../sqlite/rows.ts'
import { leaveStream, type StreamMark, writeStreamMark } from './stream-mark.ts'
import { REPLICATION_PREFIX } from '../sqlite/batch.ts'

/** A snapshot whose entries were received into a file. */
export interface ReceivedSnapshot {
  readonly meta: SnapshotMeta
  /** SHA-256 of the file of entries, in hex. */
  readonly sha256: string
  /** Paths that the snapshot must have. */
  readonly requires: readonly string[]
}

/**
 * Replaces the content of a database by a snapshot, in one transaction. Verifies the whole file first. Throws a Refusal for a damaged
 * one, and then nothing has changed. `mark`: position of the restore in the commit stream.
 */
export function applySnapshot(
  database: DatabaseSync,
  fd: number,
  { meta, sha256, requires }: ReceivedSnapshot,
  mark?: StreamMark,
): void {
  verifyRecords(fd, meta, sha256, requires)
  // Higher than both epochs, so that no store takes the new history for one of the earlier ones.
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
    if (mark) writeStreamMark(database, { ...mark, row: meta.sequence })
    else leaveStream(database)
    database.exec('COMMIT')
  } catch (error) {
    if (database.isTransaction) database.exec('ROLLBACK')
    throw error
  }
}

/** A task of `store-worker.ts`: copies the entries of one point in time into a file. */
export interface SnapshotCopyTask {
  readonly task: 'copy'
  readonly path: string
  /** Descriptor of an empty file; threads share the descriptors of the process. */
  readonly fd: number
}

export type SnapshotCopyReport = { readonly copied: SnapshotCopy } | { readonly failure: string }

export function copySnapshot({ path, fd }: SnapshotCopyTask): SnapshotCopyReport {
  const database = openForReading(path)
  try {
    return { copied: copyEntries(database, fd, Date.now()) }
  } catch (error) {
    return { failure: messageOf(error) }
  } finally {
    database.close()
  }
}

const AFTER_REPLICATION_PREFIX = 'local/replication0'

/** Removes all entries but the state of replication (`local/replication/`). */
export function removeEntries(database: DatabaseSync): void {
  const remove = database.prepare('DELETE FROM entries WHERE path < ? OR path >= ?')
  remove.run(REPLICATION_PREFIX, AFTER_REPLICATION_PREFIX)
}

export function replicationPathsIn(database: DatabaseSync): string[] {
  return database
    .prepare('SELECT path FROM entries WHERE path >= ? AND path < ?')
    .all(REPLICATION_PREFIX, AFTER_REPLICATION_PREFIX)
    .map(({ path }) => String(path))
}
