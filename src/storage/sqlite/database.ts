/**
 * The database file of the secrets store: schema, migrations, creation, opening, and the checkpoints of its write-ahead log. The
 * guarantees are those of `store.ts`.
 *
 * A new database is created under a temporary name and then linked, so an existing file is either complete or damaged, and is never
 * replaced: only ENOENT from open(2) means that it is missing. The checks before opening take constant time: application ID, version,
 * length, and the checksums of the newest log rows. `check.ts` checks everything.
 */
import { randomUUID } from 'node:crypto'
import { closeSync, constants, readSync, rmSync, statSync } from 'node:fs'
import { DatabaseSync, type StatementSync } from 'node:sqlite'
import { pathToFileURL } from 'node:url'
import { Fault, isErrno, messageOf } from '../../platform/errors.ts'
import { accessFault, fileExists, nameFile, openIfExists } from '../../platform/program-file.ts'
import { keepPrivate, restrict } from './database-files.ts'
import { checksumOf, factIn, writeFact } from './rows.ts'

/** `ops1`: distinguishes the database of outpost from other SQLite files. */
const APPLICATION_ID = 0x6f_70_73_31
const BUSY_TIMEOUT_MS = 5000
/**
 * Paths are hashes, so a commit writes about one page of the index for each entry, and small pages write less. With pages below 4 KiB,
 * secrets of 1 KiB would leave a third of their pages empty.
 */
export const PAGE_BYTES = 4096
/** Length of the write-ahead log at which SQLite checkpoints within a commit: four times the limit of `Checkpoint`. */
const AUTO_CHECKPOINT_PAGES = 4096
const HEADER_BYTES = 100
const MAGIC = 'SQLite format 3\0'

/** Each element migrates a database from the version that is its index to the next, in a time that does not depend on the entries. */
export const MIGRATIONS: readonly string[] = [
  // Values are outside the index of paths, so a search does not read them.
  `CREATE TABLE entries (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, sequence INTEGER NOT NULL,
     crc INTEGER NOT NULL, value BLOB NOT NULL) STRICT;
   CREATE TABLE log (sequence INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, at INTEGER NOT NULL, total INTEGER NOT NULL,
     checksum BLOB NOT NULL, batch BLOB NOT NULL) STRICT;
   CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID, STRICT;`,
  // The Merkle tree, empty without replication. This version also introduces the facts `role` and `copy`, which older versions would ignore.
  `CREATE TABLE IF NOT EXISTS tree_pages (page INTEGER PRIMARY KEY, change INTEGER NOT NULL, crc INTEGER NOT NULL,
     hashes BLOB NOT NULL) STRICT;
   CREATE TABLE IF NOT EXISTS tree_changes (change INTEGER PRIMARY KEY, crc INTEGER NOT NULL, deltas BLOB NOT NULL) STRICT;`,
]

/** Opens the database for writing, creates a missing one, and migrates it. The caller holds its lock. Throws a Fault for the operator. */
export function openForWriting(path: string): DatabaseSync {
  // O_RDWR: SQLite falls back to a read-only connection, whose later errors look like damage.
  const fd = openIfExists(path, constants.O_RDWR)
  if (fd === undefined) createDatabase(path)
  else checkHeader(path, fd)
  fileExists(`${path}-wal`) // refuses a FIFO, into which SQLite would write without an error
  for (const suffix of ['', '-wal', '-shm']) restrict(path + suffix)
  const database = open(path, false)
  try {
    // FULL: a commit is durable when it returns. Secure delete: deleted content is overwritten.
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF')
    database.exec(`PRAGMA secure_delete = ON; PRAGMA wal_autocheckpoint = ${AUTO_CHECKPOINT_PAGES}`)
    migrate(database, path, MIGRATIONS)
    checkLength(database, path)
    checkNewestRows(database)
    return database
  } catch (error) {
    database.close()
    if (error instanceof Fault && error.message.includes(path)) throw error
    throw isDiskError(error) ? cannotOpen(path, error) : damaged(path, messageOf(error), error)
  }
}

function cannotOpen(path: string, error: unknown): Fault {
  return new Fault(`the database ${path} cannot be opened: ${messageOf(error)}`, { cause: error })
}

/** True for SQLITE_PERM, BUSY, NOMEM, READONLY, IOERR, FULL and CANTOPEN: they do not indicate a damaged database. */
function isDiskError(error: unknown): boolean {
  if (!(error instanceof Error) || !('errcode' in error) || typeof error.errcode !== 'number') return false
  return [3, 5, 7, 8, 10, 13, 14].includes(error.errcode & 0xff)
}

/**
 * Opens the database for reading beside a writer. Reads see committed state and never wait for writes. `isImmutable`: see
 * `openReadOnly`.
 */
export function openForReading(path: string, isImmutable = false): DatabaseSync {
  const fd = openIfExists(path)
  if (fd === undefined) throw new Fault(`the database ${path} does not exist`)
  checkHeader(path, fd)
  return isImmutable ? openReadOnly(path, true) : open(path, true)
}

/** `isImmutable`: SQLite takes no locks and creates no side files. Only for a file that no process writes, without a write-ahead log. */
export function openReadOnly(path: string, isImmutable: boolean): DatabaseSync {
  if (!isImmutable) return open(path, true)
  const url = pathToFileURL(path)
  url.searchParams.set('immutable', '1')
  try {
    return new DatabaseSync(url, { readOnly: true })
  } catch (error) {
    throw cannotOpen(path, error)
  }
}

function open(path: string, readOnly: boolean): DatabaseSync {
  try {
    return new DatabaseSync(path, { readOnly, timeout: BUSY_TIMEOUT_MS })
  } catch (error) {
    throw cannotOpen(path, error)
  }
}

function createDatabase(path: string): void {
  if (fileExists(`${path}-wal`)) {
    throw new Fault(
      `the database ${path} is missing and ${path}-wal exists: move the database back, or move the -wal file away to start with an empty database`,
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
    migrate(database, path, MIGRATIONS)
    writeFact(database, 'cluster', randomUUID())
  } catch (error) {
    throw new Fault(`the database ${path} cannot be created: ${messageOf(error)}`, { cause: error })
  } finally {
    database.close()
  }
  try {
    nameFile(fresh, path)
  } catch (error) {
    throw isErrno(error, 'EEXIST')
      ? new Fault(`the database ${path} was created by another process`, { cause: error })
      : error
  }
}

/** Checks the file header before SQLite opens the file. Closes the descriptor. */
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
  if (length < HEADER_BYTES) throw damaged(path, 'the file is truncated')
  if (header.toString('latin1', 0, 16) !== MAGIC) throw damaged(path, 'no SQLite header')
  if (header.readUInt32BE(68) !== APPLICATION_ID) {
    throw new Fault(`${path} is not a database of outpost: configure another file or move this one away`)
  }
  refuseNewer(path, header.readUInt32BE(60), MIGRATIONS.length)
  // Constant fields: page size, file format versions, reserved bytes and fractions, schema format, encoding, vacuum modes, zeros.
  const isFixed =
    header.readUInt16BE(16) === PAGE_BYTES &&
    (header.readUInt16BE(18) === 0x0101 || header.readUInt16BE(18) === 0x0202) &&
    header.readUInt32BE(20) === 0x00_40_20_20 &&
    header.readUInt32BE(44) === 4 &&
    header.readUInt32BE(52) === 0 &&
    header.readUInt32BE(56) === 1 &&
    header.readUInt32BE(64) === 0 &&
    header.subarray(72, 92).every((byte) => byte === 0)
  if (!isFixed) throw damaged(path, 'malformed header')
}

/** Checkpoints first; then the length must be what the header says. */
function checkLength(database: DatabaseSync, path: string): void {
  if (!emptyWal(database)) return
  const pages = pragma(database, 'page_count')
  if (isTruncated(database, path)) {
    throw damaged(path, `the file is truncated to ${statSync(path).size} of ${pages * PAGE_BYTES} bytes`)
  }
  if (pragma(database, 'freelist_count') > pages) throw damaged(path, 'malformed list of free pages')
}

/** True for a file that is shorter than its header says. The write-ahead log must be empty. */
export function isTruncated(database: DatabaseSync, path: string): boolean {
  return statSync(path).size < pragma(database, 'page_count') * PAGE_BYTES
}

const NEWEST_ROWS = 64
const NEWEST_BYTES = 1 << 20

/** Checks the checksum chain of the newest log rows, as the next row is chained to them. */
function checkNewestRows(database: DatabaseSync): void {
  let after: { sequence: number; epoch: number; atMs: number; batch: Uint8Array; checksum: Uint8Array } | undefined
  let bytes = 0
  for (const row of database.prepare('SELECT * FROM log ORDER BY sequence DESC LIMIT ?').iterate(NEWEST_ROWS)) {
    const { batch, checksum } = row
    if (!(batch instanceof Uint8Array) || !(checksum instanceof Uint8Array)) throw new Fault('damaged log row')
    if (after && !checksumOf(after, checksum).equals(after.checksum)) {
      throw new Fault(`the checksum of log row ${after.sequence} does not match the row before it`)
    }
    const sequence = Number(row['sequence'])
    after = { sequence, epoch: Number(row['epoch']), atMs: Number(row['at']), batch, checksum }
    bytes += batch.length
    if (bytes > NEWEST_BYTES) break
  }
  if (typeof factIn(database, 'cluster') !== 'string') throw new Fault('no cluster ID')
}

function damaged(path: string, what: string, cause?: unknown): Fault {
  return new Fault(`the database ${path} is damaged (${what}): move it away and restore a snapshot`, { cause })
}

/** Checkpoints the write-ahead log and truncates it. False when a reader blocked the checkpoint. */
export function emptyWal(database: DatabaseSync): boolean {
  database.exec('PRAGMA busy_timeout = 0')
  try {
    return database.prepare('PRAGMA wal_checkpoint(TRUNCATE)').get()?.['busy'] === 0
  } catch {
    // A full or failing disk: the content stays in the log.
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

/** Applies the missing migrations, each in a transaction. */
export function migrate(database: DatabaseSync, path: string, steps: readonly string[]): void {
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

/** Length of the write-ahead log at which a checkpoint is due: 4 MiB. */
const CHECKPOINT_PAGES = 1024
/** Estimated pages of a transaction: the ends of tables and indexes, and the head of the entry set. */
const TRANSACTION_PAGES = 5
/** Estimated pages of a batch: paths are hashes, so each entry is on another page. */
const BATCH_PAGES = 2
/** A batch is written twice: as entries and as a row of the log. */
const COPIES = 2

/**
 * Checkpoints the write-ahead log between commits. An automatic checkpoint of SQLite happens within a commit, whose callers then wait for
 * a second sync and about 1000 pages. After the results of a commit were delivered, usually no caller is waiting.
 *
 * SQLite reports the length of the log only by a checkpoint, so it is estimated. If the estimate is far too low, the automatic
 * checkpoint applies.
 */
export class Checkpoint {
  readonly #passive: StatementSync
  #pages = 0

  constructor(database: DatabaseSync) {
    // PASSIVE does not wait for readers: pages that a reader uses stay for the next checkpoint.
    this.#passive = database.prepare('PRAGMA wal_checkpoint(PASSIVE)')
  }

  /** Counts a committed transaction. */
  add(batches: number, bytes: number): void {
    this.#pages += TRANSACTION_PAGES + batches * BATCH_PAGES + Math.ceil((bytes * COPIES) / PAGE_BYTES)
  }

  get isDue(): boolean {
    return this.#pages >= CHECKPOINT_PAGES
  }

  /** Must not be called for a truncated log, see `file-guard.ts`. */
  run(): void {
    this.#pages = 0
    try {
      this.#passive.get()
    } catch {
      // A full or failing disk: the content stays in the log, and the next commit reports the error.
    }
  }
}
