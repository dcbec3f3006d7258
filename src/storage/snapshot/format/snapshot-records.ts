/**
 * The entries of a snapshot, in the order of their paths:
 *
 *     4 bytes length of the path · 4 bytes length of the value · 6 bytes sequence · 4 bytes CRC · path · value
 *
 * Local entries (`local/`) are not in snapshots.
 */
import { createHash } from 'node:crypto'
import { readSync, writeSync } from 'node:fs'
import type { DatabaseSync } from 'node:sqlite'
import { Fault } from '../../../platform/errors.ts'
import { BATCH_BYTES_MAX, checkPath, LOCAL_PREFIX, PATH_BYTES_MAX } from '../../sqlite/batch.ts'
import { entryCrc, epochIn, factIn, positionIn } from '../../sqlite/rows.ts'
import { damagedSnapshot, SNAPSHOT_FORMAT, type SnapshotMeta } from './snapshot-archive.ts'

const HEAD_BYTES = 18
const BUFFER_BYTES = 1 << 20

export interface SnapshotRecord {
  readonly path: string
  readonly sequence: number
  readonly crc: number
  readonly value: Uint8Array
}

export interface SnapshotCopy {
  readonly meta: SnapshotMeta
  /** SHA-256 of the written file, in hex. */
  readonly sha256: string
}

/**
 * Writes all entries of one point in time to an empty file, while commits continue. Throws a Fault for a damaged entry, which would be
 * damaged in the snapshot too.
 */
export function copyEntries(database: DatabaseSync, fd: number, nowMs: number): SnapshotCopy {
  database.exec('BEGIN')
  const { sequence, checksum } = positionIn(database)
  const out = new RecordWriter(fd)
  const all = database.prepare('SELECT path, sequence, crc, value FROM entries ORDER BY path')
  for (const { path, sequence: ofEntry, crc, value } of all.iterate()) {
    const record = { path: String(path), sequence: Number(ofEntry), crc: Number(crc), value }
    if (record.path.startsWith(LOCAL_PREFIX)) continue
    if (!isWhole(record)) throw new Fault(`the entry ${record.path} is damaged, so no snapshot can be taken`)
    out.write(record)
  }
  const epoch = epochIn(database)
  const clusterId = String(factIn(database, 'cluster'))
  database.exec('COMMIT')
  const position = { clusterId, sequence, epoch, checksum: Buffer.from(checksum).toString('hex') }
  const written = out.end()
  const { entries, bytes } = written
  const meta = { program: 'outpost' as const, format: SNAPSHOT_FORMAT, ...position, takenAtMs: nowMs, entries, bytes }
  return { meta, sha256: written.sha256 }
}

function isWhole(record: { path: string; sequence: number; crc: number; value: unknown }): record is SnapshotRecord {
  const { path, sequence, crc, value } = record
  return value instanceof Uint8Array && entryCrc(path, sequence, value) === crc
}

class RecordWriter {
  readonly #fd: number
  readonly #hash = createHash('sha256')
  #buffered: Uint8Array[] = []
  #bufferedBytes = 0
  #bytes = 0
  #entries = 0

  constructor(fd: number) {
    this.#fd = fd
  }

  write({ path, sequence, crc, value }: SnapshotRecord): void {
    const name = Buffer.from(path)
    const head = Buffer.alloc(HEAD_BYTES)
    head.writeUInt32BE(name.length, 0)
    head.writeUInt32BE(value.length, 4)
    head.writeUIntBE(sequence, 8, 6)
    head.writeUInt32BE(crc, 14)
    this.#buffered.push(head, name, value)
    this.#bufferedBytes += HEAD_BYTES + name.length + value.length
    this.#entries++
    if (this.#bufferedBytes >= BUFFER_BYTES) this.#flush()
  }

  end(): { entries: number; bytes: number; sha256: string } {
    this.#flush()
    return { entries: this.#entries, bytes: this.#bytes, sha256: this.#hash.digest('hex') }
  }

  #flush(): void {
    const bytes = Buffer.concat(this.#buffered)
    this.#buffered = []
    this.#bufferedBytes = 0
    this.#hash.update(bytes)
    for (let at = 0; at < bytes.length; ) at += writeSync(this.#fd, bytes, at, bytes.length - at, this.#bytes + at)
    this.#bytes += bytes.length
  }
}

/** Verifies all records before any is used. Throws a Refusal for a file that is not exactly as it was written. */
export function verifyRecords(
  fd: number,
  { entries, bytes }: SnapshotMeta,
  sha256: string,
  requires: readonly string[] = [],
): void {
  const hash = createHash('sha256')
  const buffer = Buffer.alloc(BUFFER_BYTES)
  for (let at = 0; at < bytes; ) {
    const read = readSync(fd, buffer, 0, Math.min(buffer.length, bytes - at), at)
    if (read === 0) throw damagedSnapshot('entries are missing')
    hash.update(buffer.subarray(0, read))
    at += read
  }
  if (hash.digest('hex') !== sha256) throw damagedSnapshot('the checksum of its entries does not match')
  let count = 0
  let before = ''
  const missing = new Set(requires)
  for (const record of readRecords(fd, bytes)) {
    const isNext = count === 0 || Buffer.compare(Buffer.from(record.path), Buffer.from(before)) > 0
    if (!isNext || !isWhole(record) || !isPath(record.path)) throw damagedSnapshot('an entry is malformed')
    before = record.path
    missing.delete(record.path)
    count++
  }
  if (count !== entries) throw damagedSnapshot('the number of its entries does not match its metadata')
  if (missing.size > 0) throw damagedSnapshot('it has no keys to unseal it')
}

function isPath(path: string): boolean {
  try {
    checkPath(path)
    return !path.startsWith(LOCAL_PREFIX)
  } catch {
    return false
  }
}

/** The records of a file. The value of a record is valid until the next one is read. */
export function* readRecords(fd: number, bytes: number): Generator<SnapshotRecord> {
  let buffer = Buffer.alloc(BUFFER_BYTES)
  let from = 0
  let to = 0
  let read = 0
  const need = (length: number) => {
    if (length > BATCH_BYTES_MAX || length > to - from + bytes - read) throw damagedSnapshot('an entry is truncated')
    if (to - from >= length) return
    const rest = buffer.subarray(from, to)
    const next = length > buffer.length ? Buffer.alloc(length) : buffer
    rest.copy(next)
    buffer = next
    to = rest.length
    from = 0
    while (to < length) {
      const got = readSync(fd, buffer, to, Math.min(buffer.length - to, bytes - read), read)
      if (got === 0) throw damagedSnapshot('an entry is truncated')
      to += got
      read += got
    }
  }
  while (to - from + bytes - read > 0) {
    need(HEAD_BYTES)
    const pathBytes = buffer.readUInt32BE(from)
    const valueBytes = buffer.readUInt32BE(from + 4)
    if (pathBytes > PATH_BYTES_MAX) throw damagedSnapshot('a path is too long')
    const length = HEAD_BYTES + pathBytes + valueBytes
    need(length)
    const valueAt = from + HEAD_BYTES + pathBytes
    yield {
      path: buffer.toString('utf8', from + HEAD_BYTES, valueAt),
      sequence: buffer.readUIntBE(from + 8, 6),
      crc: buffer.readUInt32BE(from + 14),
      value: buffer.subarray(valueAt, valueAt + valueBytes),
    }
    from += length
  }
}
