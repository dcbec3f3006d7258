/**
 * The database of secrets as a file: its tables, its versions, how it is opened. See `store.ts` for what it promises.
 */
import { existsSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { Fault, messageOf } from '../kit/errors.ts'

/** Of the tables below. A higher one is refused, a lower one is taken forward step by step. */
export const DATABASE_VERSION = 1
/** Tells our database from any other SQLite file: `ops1`. */
const APPLICATION_ID = 0x6f_70_73_31

/** What takes a database from the version that is its index to the next. */
const STEPS: readonly string[] = [
  `CREATE TABLE entries (path TEXT PRIMARY KEY, value BLOB NOT NULL, sequence INTEGER NOT NULL) WITHOUT ROWID, STRICT;
   CREATE TABLE log (sequence INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, at INTEGER NOT NULL, batch BLOB NOT NULL,
                     checksum BLOB NOT NULL) STRICT;
   CREATE TABLE facts (name TEXT PRIMARY KEY, value ANY) WITHOUT ROWID, STRICT;`,
]

/** Opens it for writing, makes it if there is none, and takes it to this version. Throws a Fault for the operator. */
export function openForWriting(path: string): DatabaseSync {
  const isNew = !existsSync(path)
  const database = open(path, false)
  try {
    // FULL: a commit is on the disk when it returns, power cut or not.
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF')
    if (isNew) database.exec(`PRAGMA application_id = ${APPLICATION_ID}`)
    migrate(database, path)
    return database
  } catch (error) {
    database.close()
    throw error instanceof Fault ? error : openFault(path, error)
  }
}

/** Opens it for reading beside a writer: reads see what is committed and never wait for writes. */
export function openForReading(path: string): DatabaseSync {
  return open(path, true)
}

function open(path: string, readOnly: boolean): DatabaseSync {
  try {
    return new DatabaseSync(path, { readOnly, timeout: 5000 })
  } catch (error) {
    throw openFault(path, error)
  }
}

function openFault(path: string, error: unknown): Fault {
  return new Fault(`the database ${path} cannot be opened: ${messageOf(error)}`, { cause: error })
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
