/**
 * The database of secrets as a file: its tables, its versions, how it is opened. See `store.ts` for what it promises.
 */
import { DatabaseSync } from 'node:sqlite'
import { Fault, messageOf } from '../kit/errors.ts'

/** Of the tables below. A higher one is refused, a lower one is taken forward step by step. */
export const DATABASE_VERSION = 1
/** Tells our database from any other SQLite file: `ops1`. */
const APPLICATION_ID = 0x6f_70_73_31

const BUSY_TIMEOUT_MS = 5000

/** What takes a database from the version that is its index to the next. */
const STEPS: readonly string[] = [
  `CREATE TABLE entries (path TEXT PRIMARY KEY, value BLOB NOT NULL, sequence INTEGER NOT NULL) WITHOUT ROWID, STRICT;
   CREATE TABLE log (sequence INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, at INTEGER NOT NULL, batch BLOB NOT NULL,
                     checksum BLOB NOT NULL) STRICT;
   CREATE TABLE facts (name TEXT PRIMARY KEY, value ANY) WITHOUT ROWID, STRICT;`,
]

/** Opens it for writing, makes it if there is none, and takes it to this version. Throws a Fault for the operator. */
export function openForWriting(path: string): DatabaseSync {
  const database = open(path, false)
  try {
    const isNew = isEmpty(database)
    // FULL: a commit is on the disk when it returns, power cut or not. Secure delete: what is removed is overwritten.
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF')
    database.exec('PRAGMA secure_delete = ON')
    if (isNew) database.exec(`PRAGMA application_id = ${APPLICATION_ID}`)
    migrate(database, path)
    return database
  } catch (error) {
    database.close()
    throw error instanceof Fault ? error : openFault(path, error)
  }
}

/** True for a file that holds nothing yet: a new one, or one whose making was cut short by a full disk or a kill. */
function isEmpty(database: DatabaseSync): boolean {
  const tables = database.prepare('SELECT count(*) AS count FROM sqlite_schema').get()?.['count']
  return tables === 0 && pragma(database, 'user_version') === 0 && pragma(database, 'application_id') === 0
}

/** Opens it for reading beside a writer: reads see what is committed and never wait for writes. */
export function openForReading(path: string): DatabaseSync {
  return open(path, true)
}

function open(path: string, readOnly: boolean): DatabaseSync {
  try {
    return new DatabaseSync(path, { readOnly, timeout: BUSY_TIMEOUT_MS })
  } catch (error) {
    throw openFault(path, error)
  }
}

function openFault(path: string, error: unknown): Fault {
  return new Fault(`the database ${path} cannot be opened: ${messageOf(error)}`, { cause: error })
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

export function pragma(database: DatabaseSync, name: string): number {
  return Number(database.prepare(`PRAGMA ${name}`).get()?.[name] ?? 0)
}

function migrate(database: DatabaseSync, path: string): void {
  const version = pragma(database, 'user_version')
  if (pragma(database, 'application_id') !== APPLICATION_ID) {
    throw new Fault(`${path} is no database of outpost, name another file or move it away`)
  }
  if (version > DATABASE_VERSION) {
    throw new Fault(
      `${path} was written by a newer version of outpost (${version}), this one reads up to ${DATABASE_VERSION}`,
    )
  }
  for (let step = version; step < DATABASE_VERSION; step++) {
    database.exec(`BEGIN IMMEDIATE; ${STEPS[step] ?? ''} PRAGMA user_version = ${step + 1}; COMMIT`)
  }
}
