/**
 * The roster's database: which nodes and allocations a server has heard of, and which key owns an allocation, so that it shows after a restart what it knew
 * before. It promises less than the store of secrets (`store.ts`), whose words elsewhere (commit, durable) do not hold here.
 *
 * Promises. What was handed over is written at once when nothing was for half a second, and else within a second or so, in
 * transactions, each record whole; the caller never waits. Work is cut into small transactions with turns of the event loop between, so a flood of changes delays nobody.
 * A database of a newer version is refused and left as it is; an older one is taken forward.
 *
 * Assumes that records are plain JSON and that whoever hands them over can do without the last second of them: every
 * node says everything again. So the database is not synced on every write (WAL, `synchronous=NORMAL`): it survives a
 * killed process whole and a power cut without its last moments.
 *
 * What can go wrong. A full disk or a damaged file: writing is given up until it works again, said once, and the roster
 * goes on in memory. A damaged database at the start is moved aside, since nothing in it is the only copy.
 */
import { closeSync, constants, mkdirSync, renameSync } from 'node:fs'
import { dirname } from 'node:path'
import { DatabaseSync, type StatementSync } from 'node:sqlite'
import { Fault, isErrno, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { accessFault, openIfThere } from '../../platform/own-file.ts'
import { keepPrivate } from '../sqlite/private-file.ts'

const VERSION = 1
/** Between two rounds of writing; the first change after such a time is written in the next turn of the event loop. */
const FLUSH_MS = 500
/** Until writing is tried again after it failed. */
const RETRY_MS = 5000
/** Rows of one transaction: a few milliseconds. */
const ROWS_MAX = 500

const TABLES = ['node', 'allocation', 'claim'] as const
type Table = (typeof TABLES)[number]

export interface StoredRow {
  readonly id: string
  readonly value: unknown
}

/** Rows by table and ID, written late. */
export class RosterDatabase {
  readonly #database: DatabaseSync
  readonly #logger: Logger
  readonly #put: Readonly<Record<Table, StatementSync>>
  readonly #remove: Readonly<Record<Table, StatementSync>>
  /** The newest word on each row; undefined removes it. */
  readonly #pending = new Map<string, { table: Table; id: string; value: unknown }>()
  /** Takes back the next round of writing; undefined while none is due. */
  #cancelRound: (() => void) | undefined
  #lastRoundMs = Number.NEGATIVE_INFINITY
  #isFailing = false

  /** Opens or creates it. Throws a Fault for one of a newer version. */
  static open(path: string, logger: Logger): RosterDatabase {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
    // The system says why it cannot be opened; SQLite does not.
    const fd = openIfThere(path, constants.O_RDWR)
    if (fd !== undefined) closeSync(fd)
    try {
      return new RosterDatabase(path, logger)
    } catch (error) {
      if (error instanceof Fault) throw error
      if (isErrno(error, 'EACCES', 'EPERM')) throw accessFault(path, error)
      if (NO_ROOM.includes(resultCode(error)) || isErrno(error, 'ENOSPC', 'EDQUOT')) {
        logger.error('no space left on the disk for the roster, it is kept in memory until the next start', { path })
        return new RosterDatabase(':memory:', logger)
      }
      if (!isDamaged(error)) throw openFault(path, error)
      const aside = `${path}.damaged`
      logger.error('the roster database is damaged, it is moved aside', { path, aside, error: messageOf(error) })
      for (const suffix of ['', '-wal', '-shm']) moveAside(`${path}${suffix}`, `${aside}${suffix}`)
      return new RosterDatabase(path, logger)
    }
  }

  private constructor(path: string, logger: Logger) {
    this.#logger = logger
    if (path !== ':memory:') keepPrivate(path)
    this.#database = new DatabaseSync(path)
    this.#database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 2000')
    const version = Number(this.#database.prepare('PRAGMA user_version').get()?.['user_version'] ?? 0)
    if (version > VERSION) {
      this.#database.close()
      throw new Fault(`${path} was written by a newer version of outpost (${version}), upgrade or move it away`)
    }
    for (const table of TABLES) {
      this.#database.exec(
        `CREATE TABLE IF NOT EXISTS ${table} (id TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID`,
      )
    }
    // Each write, and be it of what is there already, needs space.
    if (version < VERSION) this.#database.exec(`PRAGMA user_version = ${VERSION}`)
    const each = (sql: (table: Table) => string) => ({
      node: this.#database.prepare(sql('node')),
      allocation: this.#database.prepare(sql('allocation')),
      claim: this.#database.prepare(sql('claim')),
    })
    this.#put = each(
      (table) => `INSERT INTO ${table} VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET value = excluded.value`,
    )
    this.#remove = each((table) => `DELETE FROM ${table} WHERE id = ?`)
  }

  /** All rows of a table; one that cannot be read is passed over. */
  *rows(table: Table): Generator<StoredRow> {
    for (const row of this.#database.prepare(`SELECT id, value FROM ${table}`).iterate()) {
      const { id, value } = row
      if (typeof id !== 'string' || typeof value !== 'string') continue
      try {
        yield { id, value: JSON.parse(value) }
      } catch {
        this.tellUnreadable(table, id)
      }
    }
  }

  /** Logs that a row was passed over. */
  tellUnreadable(table: string, id: string): void {
    this.#logger.warn('a row of the roster database cannot be read', { table, id })
  }

  put(table: Table, id: string, value: unknown): void {
    this.#later(table, id, value)
  }

  remove(table: Table, id: string): void {
    this.#later(table, id, undefined)
  }

  #later(table: Table, id: string, value: unknown): void {
    this.#pending.set(`${table} ${id}`, { table, id, value })
    if (!this.#cancelRound) this.#flushIn(this.#lastRoundMs + FLUSH_MS - performance.now())
  }

  #flushIn(delayMs: number): void {
    if (delayMs <= 0) {
      const next = setImmediate(() => this.#flushSome())
      this.#cancelRound = () => clearImmediate(next)
    } else {
      const timer = setTimeout(() => this.#flushSome(), delayMs).unref()
      this.#cancelRound = () => clearTimeout(timer)
    }
  }

  #flushSome(): void {
    this.#cancelRound = undefined
    this.#lastRoundMs = performance.now()
    const isWritten = this.#flush(ROWS_MAX)
    if (this.#pending.size > 0) this.#flushIn(isWritten ? 0 : RETRY_MS)
  }

  /** Writes so many rows in one transaction; false when that failed, and then they stay pending. */
  #flush(rowsMax: number): boolean {
    const rows = [...this.#pending.entries().take(rowsMax)]
    try {
      this.#database.exec('BEGIN')
      for (const [, { table, id, value }] of rows) {
        if (value === undefined) this.#remove[table].run(id)
        else this.#put[table].run(id, JSON.stringify(value))
      }
      this.#database.exec('COMMIT')
    } catch (error) {
      this.#rollBack()
      if (!this.#isFailing) this.#logger.error('the roster cannot be written', { error: messageOf(error) })
      this.#isFailing = true
      return false
    }
    this.#isFailing = false
    for (const [key, row] of rows) if (this.#pending.get(key) === row) this.#pending.delete(key)
    return true
  }

  #rollBack(): void {
    try {
      this.#database.exec('ROLLBACK')
    } catch {
      // There was nothing to roll back: it had not begun.
    }
  }

  /** Writes what is pending, and closes. */
  close(): void {
    this.#cancelRound?.()
    this.#flush(Number.MAX_SAFE_INTEGER)
    this.#database.close()
  }
}

/** Result codes of SQLite: what the file holds is no database, or one that is broken. */
const CORRUPT = 11
const NOT_A_DATABASE = 26
const FULL = 13
const READ_ONLY = 8
const IO_ERROR = 10
/** Where there is no room for the memory that connections share SQLite says that the disk failed. */
const NO_ROOM: readonly number[] = [FULL, IO_ERROR]

function resultCode(error: unknown): number {
  if (!(error instanceof Error) || !('errcode' in error)) return 0
  // The low byte is the kind; the rest says more about it.
  return typeof error.errcode === 'number' ? error.errcode & 0xff : 0
}

function isDamaged(error: unknown): boolean {
  return [CORRUPT, NOT_A_DATABASE].includes(resultCode(error))
}

function openFault(path: string, error: unknown): Fault {
  const reasons: Readonly<Record<number, string>> = {
    [FULL]: 'no space left on the disk',
    [READ_ONLY]: 'it is read-only',
  }
  const reason = reasons[resultCode(error)] ?? messageOf(error)
  return new Fault(`the roster database ${path} cannot be opened: ${reason}`, { cause: error })
}

function moveAside(from: string, to: string): void {
  try {
    renameSync(from, to)
  } catch {
    // Not every database has all of its side files.
  }
}
