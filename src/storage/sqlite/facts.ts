/** What the database knows about itself: one value of JSON under a name, with a checksum of its own. */
import { crc32 } from 'node:zlib'
import type { DatabaseSync } from 'node:sqlite'
import { Fault } from '../../platform/errors.ts'

/**
 * `epoch` the highest that was seen · `base` what the log follows upon, when it does not begin at the beginning · `cluster` the cluster's ID ·
 * `role` what may be written, `own` where there is none · `copy` true from the beginning of a copy to its end · `tree` of the tree of hashes.
 */
export type FactName = 'epoch' | 'base' | 'cluster' | 'role' | 'copy' | 'tree'

/** Undefined where it was never written. Throws for one that is damaged. */
export function factIn(database: DatabaseSync, name: FactName): unknown {
  const row = database.prepare('SELECT value, crc FROM facts WHERE name = ?').get(name)
  if (!row) return undefined
  const text = String(row['value'])
  if (crc32(name + text) !== row['crc']) throw new Fault(`the fact "${name}" is damaged`)
  return JSON.parse(text) as unknown
}

/** Within whatever transaction is open. */
export function writeFact(database: DatabaseSync, name: FactName, value: unknown): void {
  const text = JSON.stringify(value)
  database
    .prepare('INSERT INTO facts VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET value = ?2, crc = ?3')
    .run(name, text, crc32(name + text))
}
