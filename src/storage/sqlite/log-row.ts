/**
 * Rows of the replication log. Each carries a checksum over itself and the row before, so that two stores at the same
 * sequence with the same checksum hold the same history, and a row that was changed or is missing is found.
 */
import { createHash, hash } from 'node:crypto'
import type { DatabaseSync } from 'node:sqlite'
import { Fault } from '../../platform/errors.ts'
import { factIn, writeFact } from './facts.ts'

export interface LogRow {
  readonly sequence: number
  /** Rises with each promotion: a store that has seen a higher one takes nothing of a lower. */
  readonly epoch: number
  /** When it was committed, in milliseconds since the epoch of the clock; for people, nothing decides by it. */
  readonly atMs: number
  readonly batch: Uint8Array
  readonly checksum: Uint8Array
}

/** Where a history stands. */
export interface Position {
  /** 0 for a store that has never committed anything. */
  readonly sequence: number
  readonly epoch: number
  /** 32 bytes; zeros at the beginning. */
  readonly checksum: Uint8Array
}

const CHECKSUM_BYTES = 32

const BEGINNING: Position = { sequence: 0, epoch: 0, checksum: new Uint8Array(CHECKSUM_BYTES) }

/** Sequence, epoch and time of a row. */
const NUMBERS_BYTES = 24
/** What is hashed of most rows, in one piece: one call takes half the CPU of a hash that is fed in pieces. */
const piece = Buffer.alloc(64 << 10)

/** The checksum of the row behind `before`. */
export function checksumOf(row: Omit<LogRow, 'checksum'>, before: Uint8Array): Buffer {
  const { batch } = row
  const length = CHECKSUM_BYTES + NUMBERS_BYTES + batch.length
  writeWhole(row.sequence, CHECKSUM_BYTES)
  writeWhole(row.epoch, CHECKSUM_BYTES + 8)
  writeWhole(row.atMs, CHECKSUM_BYTES + 16)
  if (length > piece.length || before.length !== CHECKSUM_BYTES) {
    const numbers = piece.subarray(CHECKSUM_BYTES, CHECKSUM_BYTES + NUMBERS_BYTES)
    return createHash('sha256').update(before).update(numbers).update(batch).digest()
  }
  piece.set(before, 0)
  piece.set(batch, CHECKSUM_BYTES + NUMBERS_BYTES)
  // Of a text a buffer is made faster than by the hash.
  return Buffer.from(hash('sha256', piece.subarray(0, length), 'binary'), 'latin1')
}

/** Into `piece`, eight bytes, big endian. */
function writeWhole(value: number, at: number): void {
  piece.writeUInt32BE(Math.floor(value / 2 ** 32), at)
  piece.writeUInt32BE(value % 2 ** 32, at + 4)
}

/** Where the history in a database stands: at the newest row of its log, or where that is to go on. */
export function positionIn(database: DatabaseSync): Position {
  return positionOf(database.prepare(NEWEST_ROW).get() ?? baseIn(database))
}

export const NEWEST_ROW = 'SELECT sequence, epoch, checksum FROM log ORDER BY sequence DESC LIMIT 1'

/** Of the newest row, or of the base where there is none. Throws a Fault for a damaged one. */
export function positionOf({ sequence, epoch, checksum }: Readonly<Record<string, unknown>> | Base): Position {
  if (!(checksum instanceof Uint8Array)) throw new Fault('the log is damaged')
  return { sequence: Number(sequence), epoch: Number(epoch), checksum }
}

/** What the oldest row that is left follows upon: the beginning, a row that was removed, or where a restore began. */
export interface Base extends Position {
  /** Bytes of all rows that are gone. */
  readonly total: number
}

export function baseIn(database: DatabaseSync): Base {
  const base = factIn(database, 'base')
  if (base === undefined) return { ...BEGINNING, total: 0 }
  if (!isStored(base)) throw new Fault('the base of the log is damaged')
  return { ...base, checksum: Buffer.from(base.checksum, 'hex') }
}

/** Within whatever transaction is open. */
export function writeBase(database: DatabaseSync, { sequence, epoch, checksum, total }: Base): void {
  writeFact(database, 'base', { sequence, epoch, checksum: Buffer.from(checksum).toString('hex'), total })
}

type StoredBase = Omit<Base, 'checksum'> & { readonly checksum: string }

function isStored(value: unknown): value is StoredBase {
  if (typeof value !== 'object' || value === null) return false
  const { sequence, epoch, checksum, total } = value as Record<string, unknown>
  return [sequence, epoch, total].every((one) => typeof one === 'number') && typeof checksum === 'string'
}

/** The epoch that a database is in: of its newest row, or one that was raised since. */
export function epochIn(database: DatabaseSync): number {
  return Math.max(positionIn(database).epoch, Number(factIn(database, 'epoch') ?? 0))
}

/** Bytes of all rows ever. */
export function totalIn(database: DatabaseSync): number {
  const newest = database.prepare('SELECT total FROM log ORDER BY sequence DESC LIMIT 1').get()
  return newest ? Number(newest['total']) : baseIn(database).total
}
