/**
 * Checks a whole database: its pages, the checksum of every entry, the chain of the log, and that the log and the entries agree. It
 * reads everything, so it is for operators and tests, not for the start of a server.
 */
import { statSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { messageOf } from '../../platform/errors.ts'
import { decodeBatch } from '../sqlite/batch.ts'
import { isTruncated, openForReading, openReadOnly } from '../sqlite/database.ts'
import { baseIn, checksumOf, entryCrc, factIn, positionIn, ROW_BYTES } from '../sqlite/rows.ts'
import { isWholeIn, roleIn, type StoreRole } from './replica.ts'

const FINDINGS_MAX = 20
/** Sequence of an entry that the log has deleted. */
const DELETED = -1

/** Returns the findings for an operator; empty for an undamaged database. */
export function checkDatabase(path: string): string[] {
  let database: DatabaseSync
  try {
    database = openForReading(path)
  } catch (error) {
    return [messageOf(error)]
  }
  try {
    const pages = pageFindings(database, 'integrity_check')
    requireFacts(database)
    const findings = [...pages, ...entryFindings(database), ...logFindings(database)]
    return [...lengthFindings(database, path), ...findings].slice(0, FINDINGS_MAX)
  } catch (error) {
    return [messageOf(error)]
  } finally {
    database.close()
  }
}

export interface DatabaseFacts {
  /** For an operator; empty for a database without a finding. */
  readonly findings: readonly string[]
  /** Undefined if a finding prevents reading the database, as the members below. */
  readonly position?: { readonly sequence: number; readonly epoch: number }
  readonly clusterId?: string
  readonly role?: StoreRole
  /** The entry at `entryPath`; undefined also if it does not exist. */
  readonly entry?: Uint8Array | undefined
}

export interface InspectOptions {
  /** Path of the entry to read. */
  readonly entryPath: string
  /** No process has it open, so it can be read without side files. */
  readonly isStopped: boolean
  /** Reads all pages (`PRAGMA quick_check`): about a second for each gigabyte of a fast disk. */
  readonly isDeep: boolean
}

/** A quick check, also of a database that a process writes. */
export function inspectDatabase(path: string, { entryPath, isDeep, isStopped }: InspectOptions): DatabaseFacts {
  let database: DatabaseSync
  try {
    database = openForReading(path, isStopped && isWalEmpty(path))
  } catch (error) {
    return { findings: [messageOf(error)] }
  }
  try {
    const findings = isDeep ? [...pageFindings(database, 'quick_check'), ...lengthFindings(database, path)] : []
    requireFacts(database)
    const { epoch, sequence } = positionIn(database)
    const row = database.prepare('SELECT value FROM entries WHERE path = ?').get(entryPath)
    const value = row?.['value']
    return {
      findings: findings.slice(0, FINDINGS_MAX),
      position: { sequence, epoch },
      clusterId: String(factIn(database, 'cluster')),
      role: roleIn(database),
      entry: value instanceof Uint8Array ? value : undefined,
    }
  } catch (error) {
    return { findings: [messageOf(error)] }
  } finally {
    database.close()
  }
}

/** Checks the pages of any SQLite database, such as that of the roster. */
export function checkPages(path: string, isStopped: boolean): string[] {
  let database: DatabaseSync | undefined
  try {
    database = openReadOnly(path, isStopped && isWalEmpty(path))
    return pageFindings(database, 'quick_check')
  } catch (error) {
    return [messageOf(error)]
  } finally {
    database?.close()
  }
}

function pageFindings(database: DatabaseSync, check: 'integrity_check' | 'quick_check'): string[] {
  const rows = database.prepare(`PRAGMA ${check}(${FINDINGS_MAX})`).all()
  return rows.map((row) => String(row[check])).filter((result) => result !== 'ok')
}

function isWalEmpty(path: string): boolean {
  return (statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0) === 0
}

/** SQLite does not detect a last page that is truncated in its unused part: it reads zeros. */
function lengthFindings(database: DatabaseSync, path: string): string[] {
  return isWalEmpty(path) && isTruncated(database, path) ? ['the file is shorter than its header says'] : []
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
    const expected = { sequence, epoch: Number(row['epoch']), atMs: Number(row['at']), batch }
    if (!checksumOf(expected, before.checksum).equals(checksum)) {
      findings.push(`the checksum of log row ${sequence} does not match the row before it`)
    }
    if (total !== before.total + batch.length + ROW_BYTES) findings.push(`log row ${sequence} has a wrong total`)
    before = { sequence, checksum, total }
    const { puts, deletes } = decodeBatch(batch)
    for (const { path } of puts) newest.set(path, sequence)
    for (const path of deletes) newest.set(path, DELETED)
  }
  // During a copy, entries may be newer than the log (`replica.ts`).
  if (!isWholeIn(database)) return findings
  for (const [path, sequence] of newest) {
    const found = Number(entry.get(path)?.['sequence'] ?? DELETED)
    if (found === sequence) continue
    findings.push(`the entry ${JSON.stringify(path)} is ${found === DELETED ? 'missing' : 'different from the log'}`)
  }
  return findings
}

/** Throws a Fault for a missing or malformed fact. */
function requireFacts(database: DatabaseSync): void {
  for (const name of ['epoch', 'base', 'cluster', 'copy', 'tree'] as const) factIn(database, name)
  roleIn(database)
}
