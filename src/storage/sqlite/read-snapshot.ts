/**
 * One state of the database for everything that is read in one turn of the event loop: what a commit changes together is
 * seen together, and a read costs no lock of its own. It is let go of at the end of the turn, and before anybody is told
 * of a commit, so that it keeps neither a reader from what is new nor the write-ahead log from being emptied.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'

export class ReadSnapshot {
  readonly #database: DatabaseSync
  readonly #begin: StatementSync
  readonly #commit: StatementSync
  readonly #rollback: StatementSync
  readonly #atTheEnd = () => this.end()
  #isHeld = false

  constructor(database: DatabaseSync) {
    this.#database = database
    this.#begin = database.prepare('BEGIN')
    this.#commit = database.prepare('COMMIT')
    this.#rollback = database.prepare('ROLLBACK')
  }

  /** What is read from now on is of one state; of the one that the first read finds. */
  begin(): void {
    if (this.#isHeld && this.#database.isTransaction) return
    this.#begin.run()
    this.#isHeld = true
    setImmediate(this.#atTheEnd)
  }

  end(): void {
    if (!this.#isHeld) return
    this.#isHeld = false
    // SQLite has ended it by itself where a read failed for the disk: that error is the reader's, and no other's.
    if (!this.#database.isTransaction) return
    try {
      this.#commit.run()
    } catch {
      // A damaged file can fail this too. Nothing was written, and the next read says what is wrong.
      if (this.#database.isTransaction) this.#rollback.run()
    }
  }
}
