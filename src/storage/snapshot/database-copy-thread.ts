/** The worker thread of `database-copy.ts`. It ends after the copy. */
import type { DatabaseSync } from 'node:sqlite'
import { parentPort, workerData } from 'node:worker_threads'
import { Fault, messageOf } from '../../platform/errors.ts'
import { LOCAL_PREFIX } from '../sqlite/batch.ts'
import { openForReading, openForWriting } from '../sqlite/database.ts'
import { entryCrc, epochIn, factIn, positionIn, writeBase, writeFact } from '../sqlite/rows.ts'
import { isWholeIn, roleIn } from '../store/replica.ts'
import type { DatabaseCopy, DatabaseCopyReport } from './database-copy.ts'

interface DatabaseCopyTask {
  readonly from: string
  readonly to: string
}

function outcome({ from, to }: DatabaseCopyTask): DatabaseCopyReport {
  try {
    const original = openForReading(from)
    try {
      const copy = openForWriting(to)
      try {
        return { copied: copyEntriesTo(original, copy) }
      } finally {
        copy.close()
      }
    } finally {
      original.close()
    }
  } catch (error) {
    return { failure: messageOf(error) }
  }
}

function copyEntriesTo(original: DatabaseSync, copy: DatabaseSync): DatabaseCopy {
  original.exec('BEGIN')
  if (roleIn(original) !== 'replica') throw new Fault('it is not the database of a DR secondary')
  if (!isWholeIn(original)) throw new Fault('the initial sync from the primary is not complete')
  const { sequence, checksum, epoch: before } = positionIn(original)
  const epoch = epochIn(original) + 1
  // No journal and no sync: after a crash the copy is made again.
  copy.exec('PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN')
  const put = copy.prepare('INSERT INTO entries (path, sequence, crc, value) VALUES (?, ?, ?, ?)')
  let [entries, bytes] = [0, 0]
  for (const row of original.prepare('SELECT path, sequence, crc, value FROM entries ORDER BY path').iterate()) {
    const { path, crc, value } = { path: String(row['path']), crc: Number(row['crc']), value: row['value'] }
    if (path.startsWith(LOCAL_PREFIX)) continue
    const isWhole = value instanceof Uint8Array && entryCrc(path, Number(row['sequence']), value) === crc
    if (!isWhole) throw new Fault(`the entry ${path} is damaged`)
    put.run(path, Number(row['sequence']), crc, value)
    entries++
    bytes += value.length
  }
  writeBase(copy, { sequence, epoch: before, checksum, total: 0 })
  writeFact(copy, 'epoch', epoch)
  writeFact(copy, 'cluster', factIn(original, 'cluster'))
  copy.exec('COMMIT')
  original.exec('COMMIT')
  return { entries, bytes, sequence, epoch }
}

const port = parentPort
if (!port) throw new Error('this file runs in a worker thread, see database-copy.ts')
port.postMessage(outcome(workerData as DatabaseCopyTask))
