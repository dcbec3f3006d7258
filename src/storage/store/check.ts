/**
 * Whether a database is whole: its pages, every entry's checksum, its log's chain, and that the log and the entries agree. It
 * reads everything, so it is for an operator's question and for tests, not for every start.
 */
import { statSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { messageOf } from '../../platform/errors.ts'
import { decodeBatch } from '../sqlite/batch.ts'
import { isCut, openForReading } from '../sqlite/database.ts'
import { entryCrc } from '../sqlite/entry-crc.ts'
import { factIn } from '../sqlite/facts.ts'
import { ROW_BYTES } from '../sqlite/log-limits.ts'
import { baseIn, checksumOf } from '../sqlite/log-row.ts'
import { isWholeIn, roleIn } from './replica-facts.ts'

const FINDINGS_MAX = 20
/** Of an entry that the log removed. */
const GONE = -1

/** What is wrong with the database, in words for an operator; empty when it is whole. */
export function checkDatabase(path: string): string[] {
  let database: DatabaseSync
  try {
    database = openForReading(path)
  } catch (error) {
    return [messageOf(error)]
  }
  try {
    const looks = [pageFindings, factFindings, entryFindings, logFindings]
    const findings = looks.flatMap((look) => look(database))
    return [...lengthFindings(database, path), ...findings].slice(0, FINDINGS_MAX)
  } catch (error) {
    return [messageOf(error)]
  } finally {
    database.close()
  }
}

/** What SQLite does not look at: where the last page is cut in its empty part, it takes zeros for what is missing. */
function lengthFindings(database: DatabaseSync, path: string): string[] {
  const isAllInPlace = (statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0) === 0
  return isAllInPlace && isCut(database, path) ? ['the file is shorter than it says'] : []
}

function pageFindings(database: DatabaseSync): string[] {
  const rows = database.prepare('PRAGMA integrity_check(20)').all()
  return rows.map((row) => String(row['integrity_check'])).filter((said) => said !== 'ok')
}

function entryFindings(database: DatabaseSync): string[] {
  const findings: string[] = []
  for (const row of database.prepare('SELECT * FROM entries').iterate()) {
    const { path, sequence, crc, value } = row
    const isWhole = value instanceof Uint8Array && entryCrc(String(path), Number(sequence), value) === crc
    if (!isWhole) findings.push(`the entry ${JSON.stringify(path)} is damaged`)
    if (findings.length >= FINDINGS_MAX) break
  }
  return findings
}

function logFindings(database: DatabaseSync): string[] {
  const findings: string[] = []
  const entry = database.prepare('SELECT sequence FROM entries WHERE path = ?')
  const newest = new Map<string, number>()
  let before: { sequence: number; checksum: Uint8Array; total: number } = baseIn(database)
  for (const row of database.prepare('SELECT * FROM log ORDER BY sequence').iterate()) {
    if (findings.length >= FINDINGS_MAX) break
    const sequence = Number(row['sequence'])
    const total = Number(row['total'])
    const { batch, checksum } = row
    if (!(batch instanceof Uint8Array) || !(checksum instanceof Uint8Array)) {
      findings.push(`log row ${sequence} is damaged`)
      continue
    }
    if (sequence !== before.sequence + 1)
      findings.push(`log rows between ${before.sequence} and ${sequence} are missing`)
    const wanted = { sequence, epoch: Number(row['epoch']), atMs: Number(row['at']), batch }
    if (!checksumOf(wanted, before.checksum).equals(checksum)) {
      findings.push(`log row ${sequence} does not fit the row before it`)
    }
    if (total !== before.total + batch.length + ROW_BYTES) findings.push(`log row ${sequence} is miscounted`)
    before = { sequence, checksum, total }
    const { puts, deletes } = decodeBatch(batch)
    for (const { path } of puts) newest.set(path, sequence)
    for (const path of deletes) newest.set(path, GONE)
  }
  // Within a copy, entries may be newer than the log (`replica.ts`).
  if (!isWholeIn(database)) return findings
  for (const [path, sequence] of newest) {
    const found = Number(entry.get(path)?.['sequence'] ?? GONE)
    if (found === sequence) continue
    findings.push(`the entry ${JSON.stringify(path)} is ${found === GONE ? 'missing' : 'not what the log says'}`)
  }
  return findings
}

function factFindings(database: DatabaseSync): string[] {
  for (const name of ['epoch', 'base', 'cluster', 'copy', 'tree'] as const) factIn(database, name)
  roleIn(database)
  return []
}
