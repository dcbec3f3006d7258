/**
 * Rows of the replication log. Each carries a checksum over itself and the row before, so that two stores at the same
 * sequence with the same checksum hold the same history, and a row that was changed or is missing is found.
 */
import { createHash } from 'node:crypto'
import type { DatabaseSync } from 'node:sqlite'
import { Fault } from '../kit/errors.ts'
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

/** The checksum of the row behind `before`. */
export function checksumOf(row: Omit<LogRow, 'checksum'>, before: Uint8Array): Buffer {
  const head = Buffer.alloc(24)
  head.writeBigUInt64BE(BigInt(row.sequence), 0)
  head.writeBigUInt64BE(BigInt(row.epoch), 8)
  head.writeBigUInt64BE(BigInt(row.atMs), 16)
  return createHash('sha256').update(before).update(head).update(row.batch).digest()
}

/** Where the history in a database stands: at the newest row of its log, or where that is to go on. */
export function positionIn(database: DatabaseSync): Position {
  const row = database.prepare('SELECT sequence, epoch, checksum FROM log ORDER BY sequence DESC LIMIT 1').get()
  const { sequence, epoch, checksum } = row ?? baseIn(database)
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
