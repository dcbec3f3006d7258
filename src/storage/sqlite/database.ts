/**
 * The database of secrets as a file: its tables, its versions, how it is made and opened. See `store.ts` for what it
 * promises.
 *
 * A new one is made under another name and then linked, so a file that is there is a whole one or a damaged one, and
 * nothing takes the place of a file that is there: only what open(2) does not find (ENOENT) is missing. What is
 * looked at before it is opened costs the same however much it holds: that it is ours, of a version that is known, as
 * long as it says it is, and that the newest rows of its log fit together. `check.ts` looks at everything.
 */
import { randomUUID } from 'node:crypto'
import { closeSync, constants, readSync, rmSync, statSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { Fault, isErrno, messageOf } from '../../platform/errors.ts'
import { accessFault, isThere, nameFile, openIfThere } from '../../platform/own-file.ts'
import { factIn, writeFact } from './facts.ts'
import { checksumOf } from './log-row.ts'
import { keepPrivate, narrow } from './private-file.ts'

/** Tells our database from any other SQLite file: `ops1`. */
const APPLICATION_ID = 0x6f_70_73_31
const BUSY_TIMEOUT_MS = 5000
/**
 * Entries are found by names that lie anywhere in the index, so a commit writes about one page for each of them: small
 * ones write less. Smaller still, a secret of 1 KiB would leave a third of its pages empty.
 */
export const PAGE_BYTES = 4096
/**
 * Of the write-ahead log, before SQLite puts what is in it in its place within a commit: four times of what the writer lets come
 * together until it does so itself (`checkpoint.ts`).
 */
const CHECKPOINT_PAGES = 4096
const HEADER_BYTES = 100
const MAGIC = 'SQLite format 3\0'

/** What takes a database from the version that is its index to the next. A step never takes longer with more entries. */
export const STEPS: readonly string[] = [
  // Values apart from the tree of paths: where they were in it, each step of a search would read some of them.
  `CREATE TABLE entries (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, sequence INTEGER NOT NULL,
     crc INTEGER NOT NULL, value BLOB NOT NULL) STRICT;
   CREATE TABLE log (sequence INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, at INTEGER NOT NULL, total INTEGER NOT NULL,
     checksum BLOB NOT NULL, batch BLOB NOT NULL) STRICT;
   CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID, STRICT;`,
  // The tree of hashes, empty where there is no replication. With it facts that an older version would not heed: roles and copies.
  `CREATE TABLE IF NOT EXISTS tree_pages (page INTEGER PRIMARY KEY, change INTEGER NOT NULL, crc INTEGER NOT NULL,
     hashes BLOB NOT NULL) STRICT;
   CREATE TABLE IF NOT EXISTS tree_changes (change INTEGER PRIMARY KEY, crc INTEGER NOT NULL, deltas BLOB NOT NULL) STRICT;`,
]

/**
 * Opens it for writing, makes it if there is none, and takes it to this version. The caller has its lock. Throws a Fault
 * for the operator.
 */
export function openForWriting(path: string): DatabaseSync {
  // For writing: SQLite opens what it may not write for reading, and what it says later sounds like damage.
  const fd = openIfThere(path, constants.O_RDWR)
  if (fd === undefined) make(path)
  else checkHeader(path, fd)
  isThere(`${path}-wal`) // refuses a pipe, into which SQLite would write without an error
  for (const suffix of ['', '-wal', '-shm']) narrow(path + suffix)
  const database = open(path, false)
  try {
    // FULL: a commit is on the disk when it returns, power cut or not. Secure delete: what is removed is overwritten.
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF')
    database.exec(`PRAGMA secure_delete = ON; PRAGMA wal_autocheckpoint = ${CHECKPOINT_PAGES}`)
    takeForward(database, path, STEPS)
    checkLength(database, path)
    checkNewestRows(database)
    return database
  } catch (error) {
    database.close()
    if (error instanceof Fault && error.message.includes(path)) throw error
    throw isOfTheDisk(error) ? cannotOpen(path, error) : damaged(path, messageOf(error), error)
  }
}

function cannotOpen(path: string, error: unknown): Fault {
  return new Fault(`the database ${path} cannot be opened: ${messageOf(error)}`, { cause: error })
}

/** True for what says nothing about the database: no right, busy, no memory, read-only, an error of the disk, full, not to be opened. */
function isOfTheDisk(error: unknown): boolean {
  if (!(error instanceof Error) || !('errcode' in error) || typeof error.errcode !== 'number') return false
  return [3, 5, 7, 8, 10, 13, 14].includes(error.errcode & 0xff)
}

/** Opens it for reading beside a writer: reads see what is committed and never wait for writes. */
export function openForReading(path: string): DatabaseSync {
  const fd = openIfThere(path)
  if (fd === undefined) throw new Fault(`there is no database ${path}`)
  checkHeader(path, fd)
  return open(path, true)
}

function open(path: string, readOnly: boolean): DatabaseSync {
  try {
    return new DatabaseSync(path, { readOnly, timeout: BUSY_TIMEOUT_MS })
  } catch (error) {
    throw cannotOpen(path, error)
  }
}

function make(path: string): void {
  if (isThere(`${path}-wal`)) {
    throw new Fault(
      `the database ${path} is gone and ${path}-wal is left: put it back, or move that away to begin anew`,
    )
  }
  const fresh = `${path}.new`
  try {
    for (const suffix of ['', '-journal', '-wal', '-shm']) rmSync(fresh + suffix, { force: true })
    keepPrivate(fresh)
  } catch (error) {
    throw accessFault(path, error)
  }
  const database = open(fresh, false)
  try {
    database.exec(`PRAGMA page_size = ${PAGE_BYTES}; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON`)
    database.exec(`PRAGMA application_id = ${APPLICATION_ID}`)
    takeForward(database, path, STEPS)
    writeFact(database, 'cluster', randomUUID())
  } catch (error) {
    throw new Fault(`the database ${path} cannot be made: ${messageOf(error)}`, { cause: error })
  } finally {
    database.close()
  }
  try {
    nameFile(fresh, path)
  } catch (error) {
    throw isErrno(error, 'EEXIST') ? new Fault(`there is a database ${path} by now`, { cause: error }) : error
  }
}

/** What can be told from the first bytes, before SQLite has touched anything. Closes the descriptor. */
function checkHeader(path: string, fd: number): void {
  const header = Buffer.alloc(HEADER_BYTES)
  let length: number
  try {
    length = readSync(fd, header, 0, HEADER_BYTES, 0)
  } catch (error) {
    throw cannotOpen(path, error)
  } finally {
    closeSync(fd)
  }
  if (length < HEADER_BYTES) throw damaged(path, 'it is cut')
  if (header.toString('latin1', 0, 16) !== MAGIC) throw damaged(path, 'it is not a database, or its header is')
  if (header.readUInt32BE(68) !== APPLICATION_ID) {
    throw new Fault(`${path} is no database of outpost, name another file or move it away`)
  }
  refuseNewer(path, header.readUInt32BE(60), STEPS.length)
  // Fixed for as long as it lives: page size, versions, reserved bytes and fractions, schema format, encoding, vacuum modes, zeros.
  const isFixed =
    header.readUInt16BE(16) === PAGE_BYTES &&
    (header.readUInt16BE(18) === 0x0101 || header.readUInt16BE(18) === 0x0202) &&
    header.readUInt32BE(20) === 0x00_40_20_20 &&
    header.readUInt32BE(44) === 4 &&
    header.readUInt32BE(52) === 0 &&
    header.readUInt32BE(56) === 1 &&
    header.readUInt32BE(64) === 0 &&
    header.subarray(72, 92).every((byte) => byte === 0)
  if (!isFixed) throw damaged(path, 'its header makes no sense')
}

/** The log that the file has beside it is put in its place first; then it must be exactly as long as it says. */
function checkLength(database: DatabaseSync, path: string): void {
  if (!emptyWal(database)) return
  const pages = pragma(database, 'page_count')
  if (isCut(database, path)) {
    throw damaged(path, `it is cut: ${statSync(path).size} bytes are left of ${pages * PAGE_BYTES}`)
  }
  if (pragma(database, 'freelist_count') > pages) throw damaged(path, 'its list of free pages is')
}

/** True for a file that is shorter than it says. Everything must be in its place: nothing in the write-ahead log. */
export function isCut(database: DatabaseSync, path: string): boolean {
  return statSync(path).size < pragma(database, 'page_count') * PAGE_BYTES
}

const NEWEST_ROWS = 64
const NEWEST_BYTES = 1 << 20

/** The newest rows of the log must be chained, as the next one is chained to them. */
function checkNewestRows(database: DatabaseSync): void {
  let after: { sequence: number; epoch: number; atMs: number; batch: Uint8Array; checksum: Uint8Array } | undefined
  let bytes = 0
  for (const row of database.prepare('SELECT * FROM log ORDER BY sequence DESC LIMIT ?').iterate(NEWEST_ROWS)) {
    const { batch, checksum } = row
    if (!(batch instanceof Uint8Array) || !(checksum instanceof Uint8Array)) throw new Fault('its log is')
    if (after && !checksumOf(after, checksum).equals(after.checksum)) {
      throw new Fault(`row ${after.sequence} of its log does not fit the row before it`)
    }
    const sequence = Number(row['sequence'])
    after = { sequence, epoch: Number(row['epoch']), atMs: Number(row['at']), batch, checksum }
    bytes += batch.length
    if (bytes > NEWEST_BYTES) break
  }
  if (typeof factIn(database, 'cluster') !== 'string') throw new Fault('it belongs to no cluster')
}

function damaged(path: string, what: string, cause?: unknown): Fault {
  return new Fault(`the database ${path} is damaged (${what}): move it away and restore a snapshot`, { cause })
}

/** Moves what is in the write-ahead log to its place and empties the log. False when a reader stood in the way. */
export function emptyWal(database: DatabaseSync): boolean {
  database.exec('PRAGMA busy_timeout = 0')
  try {
    return database.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get()?.['busy'] === 0
  } catch {
    // A full or failing disk: nothing is lost, it is all in the log still.
    return false
  } finally {
    database.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}`)
  }
}

function pragma(database: DatabaseSync, name: string): number {
  return Number(database.prepare(`PRAGMA ${name}`).get()?.[name] ?? 0)
}

function refuseNewer(path: string, version: number, known: number): void {
  if (version <= known) return
  throw new Fault(`${path} was written by a newer version of outpost (${version}), this one reads up to ${known}`)
}

/** Takes the database through the steps that it has not had yet, each of them whole or not at all. */
export function takeForward(database: DatabaseSync, path: string, steps: readonly string[]): void {
  const version = pragma(database, 'user_version')
  refuseNewer(path, version, steps.length)
  for (let step = version; step < steps.length; step++) {
    database.exec('BEGIN IMMEDIATE')
    try {
      database.exec(`${steps[step] ?? ''} PRAGMA user_version = ${step + 1}`)
      database.exec('COMMIT')
    } catch (error) {
      if (database.isTransaction) database.exec('ROLLBACK')
      throw error
    }
  }
}
