/**
 * The roster's database: the nodes and allocations that a server knows, and the key that owns each allocation, so that the roster is
 * available after a restart. Its guarantees are weaker than those of the secrets store (`store.ts`).
 *
 * Promises. A record is written at once if the last write was more than half a second ago, and otherwise within about a second, in a
 * transaction. The caller never waits. A flood of changes is written in small transactions with turns of the event loop between
 * them. A database of a newer version is refused and left unchanged; an older one is migrated.
 *
 * Assumes that records are plain JSON, and that losing the last second of them is acceptable: every node announces its state again. So
 * the database is not synced on every write (WAL, `synchronous=NORMAL`): it survives a killed process completely, and a power failure
 * without its last moments.
 *
 * What can go wrong. A full disk or a damaged file: writes fail until the problem is fixed, which is logged once, and the roster
 * continues in memory. A damaged database is moved aside at the start: none of its content is the only copy.
 */
import { closeSync, constants, mkdirSync, renameSync } from 'node:fs'
import { dirname } from 'node:path'
import { DatabaseSync, type StatementSync } from 'node:sqlite'
import { Fault, isErrno, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { accessFault, openIfExists } from '../../platform/program-file.ts'
import { keepPrivate } from '../sqlite/database-files.ts'

const VERSION = 1
/** Minimum interval between two writes. A change after that time is written in the next turn of the event loop. */
const FLUSH_MS = 500
/** Delay before a failed write is retried. */
const RETRY_MS = 5000
/** Rows of one transaction, which takes a few milliseconds. */
const ROWS_MAX = 500

const TABLES = ['node', 'allocation', 'claim'] as const
type RosterTable = (typeof TABLES)[number]

export interface StoredRow {
  readonly id: string
  readonly value: unknown
}

/** Rows by table and ID, with deferred writes. */
export class RosterDatabase {
  readonly #database: DatabaseSync
  readonly #logger: Logger
  readonly #put: Readonly<Record<RosterTable, StatementSync>>
  readonly #remove: Readonly<Record<RosterTable, StatementSync>>
  /** The newest value of each changed row; undefined deletes the row. */
  readonly #pending = new Map<string, { table: RosterTable; id: string; value: unknown }>()
  /** Cancels the next write; undefined while none is scheduled. */
  #cancelFlush: (() => void) | undefined
  #lastFlushMs = Number.NEGATIVE_INFINITY
  #isFailing = false

  /** Opens or creates it. Throws a Fault for one of a newer version. */
  static open(path: string, logger: Logger): RosterDatabase {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
    // open(2) reports why the file cannot be opened; SQLite does not.
    const fd = openIfExists(path, constants.O_RDWR)
    if (fd !== undefined) closeSync(fd)
    try {
      return new RosterDatabase(path, logger)
    } catch (error) {
      if (error instanceof Fault) throw error
      if (isErrno(error, 'EACCES', 'EPERM')) throw accessFault(path, error)
      if (NO_SPACE_CODES.includes(resultCode(error)) || isErrno(error, 'ENOSPC', 'EDQUOT')) {
        logger.error('no space left on the disk for the roster database, keeping it in memory until the next start', {
          path,
        })
        return new RosterDatabase(':memory:', logger)
      }
      if (!isDamaged(error)) throw openFault(path, error)
      const aside = `${path}.damaged`
      logger.error('roster database damaged, moved aside', { path, aside, error: messageOf(error) })
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
      throw new Fault(
        `${path} was written by a newer version of outpost (${version}): upgrade outpost, or move the file away`,
      )
    }
    for (const table of TABLES) {
      this.#database.exec(
        `CREATE TABLE IF NOT EXISTS ${table} (id TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID`,
      )
    }
    // Even a write of the same value needs space on the disk.
    if (version < VERSION) this.#database.exec(`PRAGMA user_version = ${VERSION}`)
    const each = (sql: (table: RosterTable) => string) => ({
      node: this.#database.prepare(sql('node')),
      allocation: this.#database.prepare(sql('allocation')),
      claim: this.#database.prepare(sql('claim')),
    })
    this.#put = each(
      (table) => `INSERT INTO ${table} VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET value = excluded.value`,
    )
    this.#remove = each((table) => `DELETE FROM ${table} WHERE id = ?`)
  }

  /** All readable rows of a table. */
  *rows(table: RosterTable): Generator<StoredRow> {
    for (const row of this.#database.prepare(`SELECT id, value FROM ${table}`).iterate()) {
      const { id, value } = row
      if (typeof id !== 'string' || typeof value !== 'string') continue
      try {
        yield { id, value: JSON.parse(value) }
      } catch {
        this.logUnreadable(table, id)
      }
    }
  }

  logUnreadable(table: string, id: string): void {
    this.#logger.warn('unreadable row in the roster database, skipped', { table, id })
  }

  put(table: RosterTable, id: string, value: unknown): void {
    this.#schedule(table, id, value)
  }

  remove(table: RosterTable, id: string): void {
    this.#schedule(table, id, undefined)
  }

  #schedule(table: RosterTable, id: string, value: unknown): void {
    this.#pending.set(`${table} ${id}`, { table, id, value })
    if (!this.#cancelFlush) this.#flushIn(this.#lastFlushMs + FLUSH_MS - performance.now())
  }

  #flushIn(delayMs: number): void {
    if (delayMs <= 0) {
      const next = setImmediate(() => this.#flushSome())
      this.#cancelFlush = () => clearImmediate(next)
    } else {
      const timer = setTimeout(() => this.#flushSome(), delayMs).unref()
      this.#cancelFlush = () => clearTimeout(timer)
    }
  }

  #flushSome(): void {
    this.#cancelFlush = undefined
    this.#lastFlushMs = performance.now()
    const isWritten = this.#flush(ROWS_MAX)
    if (this.#pending.size > 0) this.#flushIn(isWritten ? 0 : RETRY_MS)
  }

  /** Writes at most `rowsMax` rows in one transaction. False when it failed; the rows stay pending. */
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
      if (!this.#isFailing) this.#logger.error('roster database write failed', { error: messageOf(error) })
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
      // The transaction had not begun.
    }
  }

  /** Writes the pending rows and closes the database. */
  close(): void {
    this.#cancelFlush?.()
    this.#flush(Number.MAX_SAFE_INTEGER)
    this.#database.close()
  }
}

/** Result codes of SQLite. */
const CORRUPT = 11
const NOT_A_DATABASE = 26
const FULL = 13
const READ_ONLY = 8
const IO_ERROR = 10
/** SQLite reports an I/O error when it cannot allocate the shared-memory file. */
const NO_SPACE_CODES: readonly number[] = [FULL, IO_ERROR]

function resultCode(error: unknown): number {
  if (!(error instanceof Error) || !('errcode' in error)) return 0
  // The low byte is the primary result code.
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
    // A side file may not exist.
  }
}
