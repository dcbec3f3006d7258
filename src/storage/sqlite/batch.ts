/**
 * A batch: what one commit changes, all of it or nothing. Its bytes are what the replication log holds, so they are the
 * same on every machine: puts in their order, then deletes, lengths as sums of seven bits.
 */

export interface Put {
  readonly path: string
  /** Ciphertext: this room never sees anything else. */
  readonly value: Uint8Array
}

export interface Batch {
  readonly puts: readonly Put[]
  readonly deletes: readonly string[]
}

const FORMAT = 1
/** Paths that belong to this machine: they are in the database and not in the log. */
export const LOCAL_PREFIX = 'local/'
/**
 * What stands for all entries together, see `storage/barrier/entry-set.ts`. Every batch replaces it, so of the batches of one transaction
 * only the last one's is written; the log has each.
 */
export const HEAD_PATH = 'core/head'
/** Of one path in UTF-8 bytes. */
export const PATH_BYTES_MAX = 4096
/** Of one batch: above what any request body may hold, with room for what encryption adds. */
export const BATCH_BYTES_MAX = 64 << 20

/** A path that is no path, or a batch that is none. A fault of ours, or a damaged log. */
export class MalformedBatch extends Error {
  override readonly name: string = 'MalformedBatch'
}

/** A batch that is larger than one may be: its author can divide it. */
export class BatchTooLarge extends MalformedBatch {
  override readonly name = 'BatchTooLarge'
}

/** Throws MalformedBatch for a path that could not be found again: empty, with an empty part, or not well-formed. */
export function checkPath(path: string): void {
  const isFine = path !== '' && !path.startsWith('/') && !path.endsWith('/') && !path.includes('//')
  // A character has at most three bytes of UTF-8.
  const isShort = path.length * 3 <= PATH_BYTES_MAX || Buffer.byteLength(path) <= PATH_BYTES_MAX
  if (isFine && isShort && path.isWellFormed() && !path.includes('\0')) return
  throw new MalformedBatch('a storage path is malformed or too long')
}

/** True for a batch of this machine's own. Throws MalformedBatch for one that mixes: it could not be replicated in part. */
export function isLocal({ puts, deletes }: Batch): boolean {
  let local = 0
  for (const { path } of puts) if (path.startsWith(LOCAL_PREFIX)) local++
  for (const path of deletes) if (path.startsWith(LOCAL_PREFIX)) local++
  if (local > 0 && local < puts.length + deletes.length) {
    throw new MalformedBatch('a batch mixes local paths with replicated ones')
  }
  return local > 0
}

/** The most bytes that it takes. Throws MalformedBatch for a batch that is none: paths, one path twice, mixed; BatchTooLarge. */
export function checkBatch(batch: Batch): number {
  const { puts, deletes } = batch
  isLocal(batch)
  checkTwice(batch)
  let size = 1 + 2 * VARINT_BYTES_MAX
  for (const { path, value } of puts) {
    checkPath(path)
    size += 2 * VARINT_BYTES_MAX + path.length * 3 + value.length
  }
  for (const path of deletes) {
    checkPath(path)
    size += VARINT_BYTES_MAX + path.length * 3
  }
  if (size > BATCH_BYTES_MAX) throw new BatchTooLarge(`a batch is too large: it has more than ${BATCH_BYTES_MAX} bytes`)
  return size
}

/** Paths that are compared one by one: of more, a set costs less. */
const COMPARED_MAX = 8

/** Throws MalformedBatch for a batch that names one path twice. Most name a few. */
function checkTwice({ puts, deletes }: Batch): void {
  const paths = [...puts.map(({ path }) => path), ...deletes]
  const isTwice =
    paths.length > COMPARED_MAX
      ? new Set(paths).size < paths.length
      : paths.some((path, at) => paths.indexOf(path, at + 1) >= 0)
  if (isTwice) throw new MalformedBatch('a batch changes one path twice')
}

/** The batch as bytes. Throws as `checkBatch` does. */
export function encodeBatch(batch: Batch): Buffer<ArrayBuffer> {
  const out = Buffer.from(new ArrayBuffer(checkBatch(batch)))
  return out.subarray(0, writeBatch(batch, out, 0))
}

/** Writes a batch that was checked into `out`, where there is room for it from `at` on. Returns where it ends. */
export function writeBatch({ puts, deletes }: Batch, out: Buffer, at: number): number {
  const writer = new Writer(out, at)
  writer.byte(FORMAT)
  writer.number(puts.length)
  for (const { path, value } of puts) {
    writer.text(path)
    writer.bytes(value)
  }
  writer.number(deletes.length)
  for (const path of deletes) writer.text(path)
  return writer.at
}

/** The batch that the bytes hold; values lie in them. Throws MalformedBatch. */
export function decodeBatch(bytes: Uint8Array): Batch {
  const reader = new Reader(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length))
  if (reader.byte() !== FORMAT) throw new MalformedBatch('a batch is of another format')
  const puts: Put[] = []
  for (let left = reader.number(); left > 0; left--) puts.push({ path: reader.text(), value: reader.bytes() })
  const deletes: string[] = []
  for (let left = reader.number(); left > 0; left--) deletes.push(reader.text())
  reader.end()
  return { puts, deletes }
}

const VARINT_BYTES_MAX = 5
/** Lengths below this one are one byte. */
const SHORT = 128

class Writer {
  readonly #out: Buffer
  at: number

  constructor(out: Buffer, at: number) {
    this.#out = out
    this.at = at
  }

  byte(value: number): void {
    this.#out[this.at++] = value
  }

  number(value: number): void {
    let rest = value
    for (; rest >= 128; rest = Math.floor(rest / 128)) this.byte((rest % 128) | 128)
    this.byte(rest)
  }

  bytes(value: Uint8Array): void {
    this.number(value.length)
    this.#out.set(value, this.at)
    this.at += value.length
  }

  text(value: string): void {
    if (value.length < SHORT && this.#shortText(value)) return
    this.number(Buffer.byteLength(value))
    this.at += this.#out.write(value, this.at)
  }

  /** Most texts are ASCII: their length is one byte, and is known once they are written. False for another one. */
  #shortText(value: string): boolean {
    const length = this.#out.write(value, this.at + 1)
    if (length >= SHORT) return false
    this.byte(length)
    this.at += length
    return true
  }
}

class Reader {
  readonly #in: Buffer
  #at = 0

  constructor(bytes: Buffer) {
    this.#in = bytes
  }

  byte(): number {
    const value = this.#in[this.#at++]
    if (value === undefined) throw new MalformedBatch('a batch is cut')
    return value
  }

  number(): number {
    let value = 0
    for (let factor = 1; ; factor *= 128) {
      const byte = this.byte()
      value += (byte & 127) * factor
      if (byte < 128) return value
      if (factor > 128 ** VARINT_BYTES_MAX) throw new MalformedBatch('a batch holds an impossible length')
    }
  }

  bytes(): Buffer {
    const length = this.number()
    const end = this.#at + length
    if (end > this.#in.length) throw new MalformedBatch('a batch is cut')
    const value = this.#in.subarray(this.#at, end)
    this.#at = end
    return value
  }

  text(): string {
    return this.bytes().toString('utf8')
  }

  end(): void {
    if (this.#at !== this.#in.length) throw new MalformedBatch('a batch is followed by something')
  }
}
