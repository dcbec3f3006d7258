/** The thread that copies the entries of one moment into another database, see `database-copy.ts`. It ends with the copy. */
import type { DatabaseSync } from 'node:sqlite'
import { parentPort, workerData } from 'node:worker_threads'
import { Fault, messageOf } from '../../platform/errors.ts'
import { LOCAL_PREFIX } from '../sqlite/batch.ts'
import type { CopiedDatabase, CopyOutcome } from './database-copy.ts'
import { openForReading, openForWriting } from '../sqlite/database.ts'
import { entryCrc } from '../sqlite/entry-crc.ts'
import { factIn, writeFact } from '../sqlite/facts.ts'
import { epochIn, positionIn, writeBase } from '../sqlite/log-row.ts'
import { isWholeIn, roleIn } from '../store/replica-facts.ts'

interface CopyOrder {
  readonly from: string
  readonly to: string
}

function outcome({ from, to }: CopyOrder): CopyOutcome {
  try {
    const original = openForReading(from)
    try {
      const copy = openForWriting(to)
      try {
        return { copied: copied(original, copy) }
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

function copied(original: DatabaseSync, copy: DatabaseSync): CopiedDatabase {
  original.exec('BEGIN')
  if (roleIn(original) !== 'replica') throw new Fault('it is not the database of a DR secondary')
  if (!isWholeIn(original)) throw new Fault('the first copy of the primary is not whole yet')
  const { sequence, checksum, epoch: before } = positionIn(original)
  const epoch = epochIn(original) + 1
  // It is made anew after a crash: nothing is synced, and what would bring back an older state is not kept.
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
if (!port) throw new Error('this file is a thread, see database-copy.ts')
port.postMessage(outcome(workerData as CopyOrder))
