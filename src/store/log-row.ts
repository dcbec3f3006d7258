/**
 * Rows of the replication log. Each carries a checksum over itself and the row before, so that two stores at the same
 * sequence with the same checksum hold the same history, and a row that was changed or is missing is found.
 */
import { createHash } from 'node:crypto'

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

export const CHECKSUM_BYTES = 32

export const BEGINNING: Position = { sequence: 0, epoch: 0, checksum: new Uint8Array(CHECKSUM_BYTES) }

/** The checksum of the row behind `before`. */
export function checksumOf(row: Omit<LogRow, 'checksum'>, before: Uint8Array): Buffer {
  const head = Buffer.alloc(24)
  head.writeBigUInt64BE(BigInt(row.sequence), 0)
  head.writeBigUInt64BE(BigInt(row.epoch), 8)
  head.writeBigUInt64BE(BigInt(row.atMs), 16)
  return createHash('sha256').update(before).update(head).update(row.batch).digest()
}
