/**
 * A batch is the set of changes of one commit, applied atomically. Its encoding is what the replication log stores, so it is the same
 * on every machine: format, puts in order, then deletes; lengths are varints of seven bits per byte, low bits first.
 */

export interface Put {
  readonly path: string
  /** Ciphertext: the store never handles plaintext. */
  readonly value: Uint8Array
}

export interface Batch {
  readonly puts: readonly Put[]
  readonly deletes: readonly string[]
}

const FORMAT = 1
/** Prefix of paths that belong to this machine: they are in the database and not in the log. */
export const LOCAL_PREFIX = 'local/'
/**
 * Prefix of the state of replication. It is local to this cluster: a wipe, a copy from a primary and a restore keep it, and the members of an
 * HA cluster share it.
 */
export const REPLICATION_PREFIX = 'local/replication/'
/**
 * The head of the entry set (`storage/barrier/entry-set.ts`). Every batch replaces it, so a transaction of several batches writes only
 * the last head to the entries; the log has all of them.
 */
export const HEAD_PATH = 'core/head'
/** Limit of one path, in bytes of UTF-8. */
export const PATH_BYTES_MAX = 4096
/** Limit of one batch: above the limit of a request body, with space for the overhead of encryption. */
export const BATCH_BYTES_MAX = 64 << 20

/** A malformed path or batch: a bug, or a damaged log. */
export class MalformedBatch extends Error {
  override readonly name: string = 'MalformedBatch'
}

/** The batch exceeds BATCH_BYTES_MAX; the caller can split it. */
export class BatchTooLarge extends MalformedBatch {
  override readonly name = 'BatchTooLarge'
}

/** Throws MalformedBatch for an empty path, an empty path segment, a path that is too long, and ill-formed Unicode. */
export function checkPath(path: string): void {
  const hasSegments = path !== '' && !path.startsWith('/') && !path.endsWith('/') && !path.includes('//')
  // A UTF-16 code unit takes at most three bytes of UTF-8.
  const isShort = path.length * 3 <= PATH_BYTES_MAX || Buffer.byteLength(path) <= PATH_BYTES_MAX
  if (hasSegments && isShort && path.isWellFormed() && !path.includes('\0')) return
  throw new MalformedBatch('a storage path is malformed or too long')
}

/** True for a batch of local paths. Throws MalformedBatch for a mixed one: it cannot be replicated in part. */
export function isLocal({ puts, deletes }: Batch): boolean {
  let local = 0
  for (const { path } of puts) if (path.startsWith(LOCAL_PREFIX)) local++
  for (const path of deletes) if (path.startsWith(LOCAL_PREFIX)) local++
  if (local > 0 && local < puts.length + deletes.length) {
    throw new MalformedBatch('a batch mixes local paths with replicated ones')
  }
  return local > 0
}

/**
 * `local`: of this machine. `shared`: the state of replication, which the members of an HA cluster share. `replicated`: the rest, which has a
 * row in the log. Throws MalformedBatch for a mixed batch.
 */
export type BatchScope = 'local' | 'shared' | 'replicated'

export function scopeOf(batch: Batch): BatchScope {
  if (!isLocal(batch)) return 'replicated'
  const paths = [...batch.puts.map(({ path }) => path), ...batch.deletes]
  const shared = paths.filter((path) => path.startsWith(REPLICATION_PREFIX)).length
  if (shared > 0 && shared < paths.length) throw new MalformedBatch('a batch mixes local paths with shared ones')
  return shared > 0 ? 'shared' : 'local'
}

/** Returns an upper bound of the encoded length. Throws MalformedBatch and BatchTooLarge. */
export function checkBatch(batch: Batch): number {
  const { puts, deletes } = batch
  isLocal(batch)
  refuseRepeatedPaths(batch)
  let size = 1 + 2 * VARINT_BYTES_MAX
  for (const { path, value } of puts) {
    checkPath(path)
    size += 2 * VARINT_BYTES_MAX + path.length * 3 + value.length
  }
  for (const path of deletes) {
    checkPath(path)
    size += VARINT_BYTES_MAX + path.length * 3
  }
  if (size > BATCH_BYTES_MAX) throw new BatchTooLarge(`the batch is larger than ${BATCH_BYTES_MAX} bytes`)
  return size
}

/** Up to this many paths, pairwise comparison is faster than a Set. */
const COMPARED_MAX = 8

function refuseRepeatedPaths({ puts, deletes }: Batch): void {
  const paths = [...puts.map(({ path }) => path), ...deletes]
  const isRepeated =
    paths.length > COMPARED_MAX
      ? new Set(paths).size < paths.length
      : paths.some((path, at) => paths.indexOf(path, at + 1) >= 0)
  if (isRepeated) throw new MalformedBatch('a batch changes one path twice')
}

/** Throws as `checkBatch` does. */
export function encodeBatch(batch: Batch): Buffer<ArrayBuffer> {
  const out = Buffer.from(new ArrayBuffer(checkBatch(batch)))
  return out.subarray(0, writeBatch(batch, out, 0))
}

/** Writes a checked batch into `out` at `at`. The caller provides the space. Returns the end offset. */
export function writeBatch({ puts, deletes }: Batch, out: Buffer, at: number): number {
  const writer = new BatchEncoder(out, at)
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

/** The values are views of `bytes`. Throws MalformedBatch. */
export function decodeBatch(bytes: Uint8Array): Batch {
  const reader = new BatchDecoder(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length))
  if (reader.byte() !== FORMAT) throw new MalformedBatch('unknown format of a batch')
  const puts: Put[] = []
  for (let left = reader.number(); left > 0; left--) puts.push({ path: reader.text(), value: reader.bytes() })
  const deletes: string[] = []
  for (let left = reader.number(); left > 0; left--) deletes.push(reader.text())
  reader.end()
  return { puts, deletes }
}

const VARINT_BYTES_MAX = 5
/** Lengths below this take one byte. */
const SHORT_LENGTH_MAX = 128

class BatchEncoder {
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
    if (value.length < SHORT_LENGTH_MAX && this.#shortText(value)) return
    this.number(Buffer.byteLength(value))
    this.at += this.#out.write(value, this.at)
  }

  /** Writes the text first and then its one-byte length, so the text is encoded once. False when the length needs more bytes. */
  #shortText(value: string): boolean {
    const length = this.#out.write(value, this.at + 1)
    if (length >= SHORT_LENGTH_MAX) return false
    this.byte(length)
    this.at += length
    return true
  }
}

class BatchDecoder {
  readonly #in: Buffer
  #at = 0

  constructor(bytes: Buffer) {
    this.#in = bytes
  }

  byte(): number {
    const value = this.#in[this.#at++]
    if (value === undefined) throw new MalformedBatch('a batch is truncated')
    return value
  }

  number(): number {
    let value = 0
    for (let factor = 1; ; factor *= 128) {
      const byte = this.byte()
      value += (byte & 127) * factor
      if (byte < 128) return value
      if (factor > 128 ** VARINT_BYTES_MAX) throw new MalformedBatch('a batch has an impossible length')
    }
  }

  bytes(): Buffer {
    const length = this.number()
    const end = this.#at + length
    if (end > this.#in.length) throw new MalformedBatch('a batch is truncated')
    const value = this.#in.subarray(this.#at, end)
    this.#at = end
    return value
  }

  text(): string {
    return this.bytes().toString('utf8')
  }

  end(): void {
    if (this.#at !== this.#in.length) throw new MalformedBatch('a batch has trailing bytes')
  }
}

/** Growth of a rewritten entry that still counts as a rewrite: a deletion marker, a number with one more digit. */
const GROWTH_BYTES = 128
/** Size of a new entry that is allowed beside deletes and rewrites: an encrypted marker without content. */
const MARK_BYTES = 64

/**
 * Whether a batch may use the reserve of a full disk (`platform/disk-reserve.ts`): it deletes entries or rewrites entries with hardly
 * any growth. All other batches are refused meanwhile, so the reserve serves revocations and deletes (docs/decisions/031).
 */
export function mayUseReserve({ deletes, puts }: Batch, sizeOf: (path: string) => number | undefined): boolean {
  let isAlone = deletes.length === 0
  let marks = 0
  for (const { path, value } of puts) {
    // Every batch rewrites the head, so it does not make a batch a rewrite.
    if (path === HEAD_PATH) continue
    const before = sizeOf(path)
    if (before === undefined ? value.length > MARK_BYTES : value.length > before + GROWTH_BYTES) return false
    if (before === undefined) marks++
    else isAlone = false
  }
  return marks === 0 || !isAlone
}
