/**
 * Puts what the write-ahead log holds in its place, between commits. SQLite would do it within the commit that makes the log long
 * enough, and everybody in that commit waits for a second sync and a thousand pages. After a commit was answered there is
 * nobody to wait, as a rule: those who were answered have yet to ask for the next one.
 *
 * How long the log is cannot be asked of SQLite without a checkpoint, so it is reckoned; where that comes out far too low,
 * SQLite's own limit holds (`database.ts`).
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { PAGE_BYTES } from './database.ts'

/** Of the write-ahead log: 4 MiB. */
const PAGES_DUE = 1024
/** Of each transaction: the ends of tables and their indexes, the head of all entries. */
const PAGES_OF_A_TRANSACTION = 5
/** Of each batch: names are hashes, so each entry lies on a page of its own. */
const PAGES_OF_A_BATCH = 2
/** Bytes are written twice, as an entry and as a row of the log. */
const COPIES = 2

export class Checkpoint {
  readonly #passive: StatementSync
  #pages = 0

  constructor(database: DatabaseSync) {
    // Waits for nobody: what a reader still looks at stays for the next one.
    this.#passive = database.prepare('PRAGMA wal_checkpoint(PASSIVE)')
  }

  /** A transaction with so many batches of so many bytes was committed. */
  wrote(batches: number, bytes: number): void {
    this.#pages += PAGES_OF_A_TRANSACTION + batches * PAGES_OF_A_BATCH + Math.ceil((bytes * COPIES) / PAGE_BYTES)
  }

  get isDue(): boolean {
    return this.#pages >= PAGES_DUE
  }

  /** To be called when a commit has been answered, and not of a log that was cut: see `file-guard.ts`. */
  run(): void {
    this.#pages = 0
    try {
      this.#passive.get()
    } catch {
      // A full or failing disk: nothing is lost, it is all in the log still, and the next commit tells.
    }
  }
}
