/**
 * The contents of the tables: checksums of entries, rows of the replication log, facts, and the retention of the log.
 *
 * Each row of the log has a checksum over itself and the previous checksum. Two stores with the same checksum at the same
 * sequence have the same history, and a changed or missing row is detected.
 */
import { createHash, hash } from 'node:crypto'
import type { DatabaseSync } from 'node:sqlite'
import { crc32 } from 'node:zlib'
import { Fault } from '../../platform/errors.ts'

export interface LogRow {
  readonly sequence: number
  /** Increases with each promotion. A store that has seen a higher epoch refuses commits of a lower one. */
  readonly epoch: number
  /** Wall-clock time of the commit in milliseconds since 1970. Informational; the age limit of the log is its only use. */
  readonly atMs: number
  readonly batch: Uint8Array
  readonly checksum: Uint8Array
}

/** A point in the history of a store. */
export interface CommitPosition {
  /** 0 before the first commit. */
  readonly sequence: number
  readonly epoch: number
  /** 32 bytes; zeros at the beginning. */
  readonly checksum: Uint8Array
}

const CHECKSUM_BYTES = 32

const BEGINNING: CommitPosition = { sequence: 0, epoch: 0, checksum: new Uint8Array(CHECKSUM_BYTES) }

/** Sequence, epoch and time of a row, 8 bytes each. */
const NUMBERS_BYTES = 24
/** Hash input of most rows. One call on one buffer takes half the CPU of a hash that is updated in parts. */
const hashInput = Buffer.alloc(64 << 10)

/** The checksum of a row that follows the row with the checksum `before`. */
export function checksumOf(row: Omit<LogRow, 'checksum'>, before: Uint8Array): Buffer {
  const { batch } = row
  const length = CHECKSUM_BYTES + NUMBERS_BYTES + batch.length
  writeUint64(row.sequence, CHECKSUM_BYTES)
  writeUint64(row.epoch, CHECKSUM_BYTES + 8)
  writeUint64(row.atMs, CHECKSUM_BYTES + 16)
  if (length > hashInput.length || before.length !== CHECKSUM_BYTES) {
    const numbers = hashInput.subarray(CHECKSUM_BYTES, CHECKSUM_BYTES + NUMBERS_BYTES)
    return createHash('sha256').update(before).update(numbers).update(batch).digest()
  }
  hashInput.set(before, 0)
  hashInput.set(batch, CHECKSUM_BYTES + NUMBERS_BYTES)
  // Creating the Buffer from a string is faster than letting `hash` create it.
  return Buffer.from(hash('sha256', hashInput.subarray(0, length), 'binary'), 'latin1')
}

/** Writes eight bytes, big endian, into `hashInput`. */
function writeUint64(value: number, at: number): void {
  hashInput.writeUInt32BE(Math.floor(value / 2 ** 32), at)
  hashInput.writeUInt32BE(value % 2 ** 32, at + 4)
}

/** The position of a database: its newest log row, or the base of an empty log. */
export function positionIn(database: DatabaseSync): CommitPosition {
  return positionOf(database.prepare(NEWEST_ROW).get() ?? baseIn(database))
}

export const NEWEST_ROW = 'SELECT sequence, epoch, checksum FROM log ORDER BY sequence DESC LIMIT 1'

/** Throws a Fault for a damaged row. */
export function positionOf({ sequence, epoch, checksum }: Readonly<Record<string, unknown>> | LogBase): CommitPosition {
  if (!(checksum instanceof Uint8Array)) throw new Fault('the log is damaged')
  return { sequence: Number(sequence), epoch: Number(epoch), checksum }
}

/** The position that the oldest retained row follows: the beginning, a trimmed row, or the position of a restored snapshot. */
export interface LogBase extends CommitPosition {
  /** Bytes of all trimmed rows. */
  readonly total: number
}

export function baseIn(database: DatabaseSync): LogBase {
  const base = factIn(database, 'base')
  if (base === undefined) return { ...BEGINNING, total: 0 }
  if (!isStoredBase(base)) throw new Fault('the base of the log is damaged')
  return { ...base, checksum: Buffer.from(base.checksum, 'hex') }
}

/** Runs in the caller's transaction. */
export function writeBase(database: DatabaseSync, { sequence, epoch, checksum, total }: LogBase): void {
  writeFact(database, 'base', { sequence, epoch, checksum: Buffer.from(checksum).toString('hex'), total })
}

type StoredBase = Omit<LogBase, 'checksum'> & { readonly checksum: string }

function isStoredBase(value: unknown): value is StoredBase {
  if (typeof value !== 'object' || value === null) return false
  const { sequence, epoch, checksum, total } = value as Record<string, unknown>
  return [sequence, epoch, total].every((one) => typeof one === 'number') && typeof checksum === 'string'
}

/** The epoch of a database: that of its newest row, or a higher one that was set since. */
export function epochIn(database: DatabaseSync): number {
  return Math.max(positionIn(database).epoch, Number(factIn(database, 'epoch') ?? 0))
}

/** Bytes of all rows since the log began, trimmed ones included. */
export function totalIn(database: DatabaseSync): number {
  const newest = database.prepare('SELECT total FROM log ORDER BY sequence DESC LIMIT 1').get()
  return newest ? Number(newest['total']) : baseIn(database).total
}

/**
 * A fact is a JSON value with a checksum about the database itself. `epoch`: the highest epoch seen. `base`: the position before
 * the log. `cluster`: the cluster ID. `role`: the store's role, `own` when absent. `copy`: true while a copy is incomplete.
 * `tree`: the state of the Merkle tree. `stream`: the last applied group of the commit stream (`store/commit-log.ts`).
 */
export type FactName = 'epoch' | 'base' | 'cluster' | 'role' | 'copy' | 'joining' | 'tree' | 'stream'

/** Undefined for a fact that was never written. Throws a Fault for a damaged one. */
export function factIn(database: DatabaseSync, name: FactName): unknown {
  const row = database.prepare('SELECT value, crc FROM facts WHERE name = ?').get(name)
  if (!row) return undefined
  const text = String(row['value'])
  if (crc32(name + text) !== row['crc']) throw new Fault(`the fact "${name}" is damaged`)
  return JSON.parse(text) as unknown
}

/** Runs in the caller's transaction. */
export function writeFact(database: DatabaseSync, name: FactName, value: unknown): void {
  const text = JSON.stringify(value)
  database
    .prepare('INSERT INTO facts VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET value = ?2, crc = ?3')
    .run(name, text, crc32(name + text))
}

/**
 * The checksum of an entry. It detects accidental damage on every read; deliberate changes are detected by the authentication tag of
 * the ciphertext (`storage/barrier/cipher.ts`).
 */
export function entryCrc(path: string, sequence: number, value: Uint8Array): number {
  return crc32(value, crc32(`${sequence} ${path}`))
}

/** Retention of the log. A disconnected secondary that returns within these limits catches up without a full copy. */
export interface LogLimits {
  /** All rows together; older rows are trimmed above this. */
  readonly bytesMax: number
  /** Older rows are trimmed. */
  readonly ageMaxMs: number
  /** Rows that the slowest secondary has not acknowledged are kept beyond both limits, up to this many bytes. */
  readonly behindBytesMax: number
}

export const LOG_LIMITS: LogLimits = {
  bytesMax: 48 << 20,
  ageMaxMs: 24 * 3600 * 1000,
  behindBytesMax: 1 << 30,
}

/** Approximate size of a row in the file without its batch. */
export const ROW_BYTES = 64

export interface LogEnd {
  /** Sequence of the newest row. */
  readonly sequence: number
  /** Bytes of all rows since the log began, up to the newest. */
  readonly total: number
  /** Sequence that the slowest secondary has acknowledged; undefined without secondaries. */
  readonly acknowledged: number | undefined
}

/** True for a row outside the retention limits. The newest row is always kept: the next row is chained to it. */
export function isTrimmable(
  row: { readonly sequence: number; readonly atMs: number; readonly total: number },
  end: LogEnd,
  limits: LogLimits,
  nowMs: number,
): boolean {
  if (row.sequence >= end.sequence) return false
  const bytes = end.total - row.total
  const isAwaited = end.acknowledged !== undefined && row.sequence > end.acknowledged
  if (isAwaited && bytes <= limits.behindBytesMax) return false
  return bytes > limits.bytesMax || row.atMs < nowMs - limits.ageMaxMs
}
