/**
 * Whether a database is whole: its pages, its log's chain, and that the newest rows of the log and the entries agree. It
 * reads everything, so it is for an operator's question and for tests, not for every start.
 */
import type { DatabaseSync } from 'node:sqlite'
import { messageOf } from '../kit/errors.ts'
import { decodeBatch } from './batch.ts'
import { openForReading } from './database.ts'
import { checksumOf } from './log-row.ts'

const FINDINGS_MAX = 20

/** What is wrong with the database, in words for an operator; empty when it is whole. */
export function checkDatabase(path: string): string[] {
  let database: DatabaseSync
  try {
    database = openForReading(path)
  } catch (error) {
    return [messageOf(error)]
  }
  try {
    return [...pageFindings(database), ...logFindings(database)].slice(0, FINDINGS_MAX)
  } catch (error) {
    return [messageOf(error)]
  } finally {
    database.close()
  }
}

function pageFindings(database: DatabaseSync): string[] {
  const rows = database.prepare('PRAGMA integrity_check(20)').all()
  return rows.map((row) => String(row['integrity_check'])).filter((said) => said !== 'ok')
}

function logFindings(database: DatabaseSync): string[] {
  const findings: string[] = []
  const entry = database.prepare('SELECT sequence FROM entries WHERE path = ?')
  let before: { sequence: number; checksum: Uint8Array } | undefined
  for (const row of database.prepare('SELECT * FROM log ORDER BY sequence').iterate()) {
    const sequence = Number(row['sequence'])
    const { batch, checksum } = row
    if (!(batch instanceof Uint8Array) || !(checksum instanceof Uint8Array)) {
      findings.push(`log row ${sequence} is damaged`)
      continue
    }
    if (before && sequence !== before.sequence + 1)
      findings.push(`log rows between ${before.sequence} and ${sequence} are missing`)
    const wanted = { sequence, epoch: Number(row['epoch']), atMs: Number(row['at']), batch }
    // The first row that is left has nobody before it to compare with.
    if (before && !checksumOf(wanted, before.checksum).equals(checksum)) {
      findings.push(`log row ${sequence} does not fit the row before it`)
    }
    before = { sequence, checksum }
    for (const { path } of decodeBatch(batch).puts) {
      const found = entry.get(path)?.['sequence']
      if (found !== undefined && Number(found) < sequence)
        findings.push(`entry ${path} is older than log row ${sequence}`)
    }
  }
  return findings
}
