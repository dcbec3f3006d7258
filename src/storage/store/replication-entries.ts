/** The entries of a database that are the state of replication (`local/replication/`), and all others. */
import type { DatabaseSync } from 'node:sqlite'
import { REPLICATION_PREFIX } from '../sqlite/batch.ts'

const AFTER_REPLICATION_PREFIX = 'local/replication0'

/** Removes all entries but the state of replication. */
export function removeEntries(database: DatabaseSync): void {
  const remove = database.prepare('DELETE FROM entries WHERE path < ? OR path >= ?')
  remove.run(REPLICATION_PREFIX, AFTER_REPLICATION_PREFIX)
}

export function replicationPathsIn(database: DatabaseSync): string[] {
  return database
    .prepare('SELECT path FROM entries WHERE path >= ? AND path < ?')
    .all(REPLICATION_PREFIX, AFTER_REPLICATION_PREFIX)
    .map(({ path }) => String(path))
}
