/**
 * Resume cursors: the position of a stream as a text that the client stores and sends to resume exactly there.
 *
 * A cursor has one *mark* for each current file of the stream: its log, its file and its offset. A single log has one mark, and
 * two shortly after a rotation, when late bytes of the older file may still arrive; a merged stream has one for each log. A mark
 * identifies its file by index and by a hash of inode and creation time, so another file under the same name is detected. A
 * hash of the last bytes before the offset detects a rewrite.
 *
 * The text is base64url of: version, hash of endpoint and allocation, creation time, marks, checksum. It is neither secret nor
 * a credential: the request is authorized like any other, and a forged cursor only starts at another position of a log that
 * the caller may read anyway.
 */
import { readSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { Refusal } from '../../../platform/errors.ts'

const VERSION = 1
/** Bytes before a mark that its hash covers. */
const EDGE_BYTES = 32
const HASH_BYTES = 3
/** Maximum length of a mark: three hashes, edge length, index, offset and context lines. */
const MARK_BYTES_MAX = 3 * HASH_BYTES + 1 + 8 + 8 + 2
/** Version, scope, time, checksum. */
const ENVELOPE_BYTES_MAX = 1 + HASH_BYTES + 8 + HASH_BYTES
/** More marks do not fit into the head of a request. */
const MARKS_MAX = 600
const CURSOR_CHARS_MAX = 16_384
/** Maximum of new cursors: the head of a request, limited to 16 KiB, also has other content. */
const ENCODED_CHARS_MAX = 14_336
/** Maximum number of logs in a cursor: they fit if no file is larger than 32 GiB or has an index above two million. */
export const LOGS_MAX = 512

/** The position of a stream in one file of one log. */
export interface FileMark {
  /** Hash of the log's name. */
  readonly log: number
  readonly index: number
  /** Hash of the file's inode and creation time. */
  readonly identity: number
  offset: number
  /** Hash of the `edgeLength` bytes before `offset`; a length of 0 means unknown. */
  edge: number
  edgeLength: number
  /** Number of context lines to be output after a match. */
  after: number
}

export interface ResumeCursor {
  readonly madeAtMs: number
  readonly marks: readonly FileMark[]
}

function hash24(data: string | Uint8Array): number {
  return crc32(data) & 0xff_ff_ff
}

/** Identifies a log in a mark. `name` is `<task>.<type>` or a path. */
export function logHash(name: string): number {
  return hash24(name)
}

/** Identifies the endpoint and allocation of a cursor. */
export function scopeHash(endpoint: string, allocationId: string): number {
  return hash24(`${endpoint}\0${allocationId}`)
}

/** A mark at `offset` of a file, with the hash of the bytes before it. */
export function markAt(log: number, index: number, file: MarkedFile, offset: number): FileMark {
  const mark = { log, index, identity: fileIdentity(file.stat), offset, edge: 0, edgeLength: 0, after: 0 }
  const edge = Buffer.allocUnsafe(Math.min(EDGE_BYTES, offset))
  if (readSync(file.fd, edge, 0, edge.length, offset - edge.length) === edge.length) setEdge(mark, edge, edge.length)
  return mark
}

export interface MarkedFile {
  readonly fd: number
  readonly stat: { readonly ino: bigint; readonly birthtimeNs: bigint }
}

/** `FileMark.identity` of a file. */
export function fileIdentity(stat: MarkedFile['stat']): number {
  return hash24(`${stat.ino} ${stat.birthtimeNs}`)
}

/** Moves a mark to `offset`, which is the end of `data[0, end)`. */
export function moveMark(mark: FileMark, data: Buffer, end: number, offset: number): void {
  mark.offset = offset
  setEdge(mark, data, end)
}

/** Moves a mark to the start of its truncated file. */
export function resetMark(mark: FileMark): void {
  mark.offset = 0
  mark.edgeLength = 0
}

function setEdge(mark: FileMark, data: Buffer, end: number): void {
  mark.edgeLength = Math.min(EDGE_BYTES, end, mark.offset)
  mark.edge = hash24(data.subarray(end - mark.edgeLength, end))
}

/** False if the bytes before the mark have changed. */
export function edgeMatches(mark: FileMark, fd: number): boolean {
  if (mark.edgeLength === 0) return true
  const now = Buffer.allocUnsafe(mark.edgeLength)
  const got = readSync(fd, now, 0, now.length, mark.offset - now.length)
  return got === now.length && hash24(now) === mark.edge
}

/** Maximum length of a cursor with this number of marks. */
export function cursorCharsMax(marks: number): number {
  return Math.ceil(((ENVELOPE_BYTES_MAX + marks * MARK_BYTES_MAX) * 4) / 3)
}

/**
 * The text of a cursor. If the marks do not fit, those of rotated files are omitted. The stream then resumes at the same
 * positions, but without late bytes of just rotated files.
 */
export function encodeCursor(scope: number, marks: readonly FileMark[]): string {
  const text = marks.length > MARKS_MAX ? '' : encodeMarks(scope, marks)
  return text === '' || text.length > ENCODED_CHARS_MAX ? encodeMarks(scope, resumeMarks(marks)) : text
}

/** The mark of each log at which it resumes. */
function resumeMarks(marks: readonly FileMark[]): FileMark[] {
  const deciding = new Map<number, FileMark>()
  for (const mark of marks) {
    if (mark.offset > 0 || !deciding.has(mark.log)) deciding.set(mark.log, mark)
  }
  return [...deciding.values()]
}

/**
 * Index of the mark at which a log resumes: the last with an offset, because nothing was sent of the files after it; -1 if
 * there is none. `marks` are all of one log, in the order of reading.
 */
export function resumeMarkIndex(marks: readonly FileMark[]): number {
  const [deciding] = resumeMarks(marks)
  return deciding ? marks.indexOf(deciding) : -1
}

function encodeMarks(scope: number, marks: readonly FileMark[]): string {
  const out = Buffer.allocUnsafe(ENVELOPE_BYTES_MAX + marks.length * MARK_BYTES_MAX)
  let at = out.writeUInt8(VERSION, 0)
  at = out.writeUIntBE(scope, at, HASH_BYTES)
  at = writeVarint(out, Date.now(), at)
  for (const mark of marks) {
    at = out.writeUIntBE(mark.log, at, HASH_BYTES)
    at = writeVarint(out, mark.index, at)
    at = out.writeUIntBE(mark.identity, at, HASH_BYTES)
    at = writeVarint(out, mark.offset, at)
    at = out.writeUInt8(mark.edgeLength, at)
    if (mark.edgeLength > 0) at = out.writeUIntBE(mark.edge, at, HASH_BYTES)
    at = writeVarint(out, mark.after, at)
  }
  at = out.writeUIntBE(hash24(out.subarray(0, at)), at, HASH_BYTES)
  return out.toString('base64url', 0, at)
}

function malformedCursor(): Refusal {
  return new Refusal(
    'invalid_request',
    'malformed cursor: send it exactly as received, or an empty value to start a new stream',
  )
}

/** Decodes a cursor of `scope`. Throws a Refusal if it is invalid. */
export function decodeCursor(text: string, scope: number): ResumeCursor {
  if (text.length > CURSOR_CHARS_MAX || !/^[\w-]+$/.test(text)) throw malformedCursor()
  const bytes = Buffer.from(text, 'base64url')
  if ((bytes[0] ?? 0) > VERSION) {
    throw new Refusal(
      'invalid_request',
      'the cursor was created by a newer version of outpost: send an empty value to start a new stream',
    )
  }
  const end = bytes.length - HASH_BYTES
  const whole = end > 1 + HASH_BYTES && bytes.readUIntBE(end, HASH_BYTES) === hash24(bytes.subarray(0, end))
  if (!whole || bytes[0] !== VERSION || bytes.toString('base64url') !== text) {
    throw malformedCursor()
  }
  if (bytes.readUIntBE(1, HASH_BYTES) !== scope) {
    throw new Refusal('invalid_request', 'the cursor belongs to another allocation or endpoint')
  }
  return new CursorReader(bytes.subarray(0, end), 1 + HASH_BYTES).cursor()
}

/** LEB128: seven bits per byte, the lowest first. By division, because offsets go up to 2^53. */
function writeVarint(out: Buffer, value: number, at: number): number {
  let rest = value
  let position = at
  while (rest >= 128) {
    out[position++] = (rest % 128) | 128
    rest = Math.floor(rest / 128)
  }
  out[position++] = rest
  return position
}

class CursorReader {
  readonly #bytes: Buffer
  #at: number

  constructor(bytes: Buffer, at: number) {
    this.#bytes = bytes
    this.#at = at
  }

  cursor(): ResumeCursor {
    const madeAtMs = this.#varint()
    const marks: FileMark[] = []
    while (this.#at < this.#bytes.length) {
      const log = this.#hash()
      const index = this.#varint()
      const identity = this.#hash()
      const offset = this.#varint()
      const edgeLength = this.#byte()
      const edge = edgeLength > 0 ? this.#hash() : 0
      const after = this.#varint()
      if (edgeLength > Math.min(EDGE_BYTES, offset)) throw malformedCursor()
      marks.push({ log, index, identity, offset, edge, edgeLength, after })
    }
    if (marks.length === 0 || marks.length > MARKS_MAX) throw malformedCursor()
    return { madeAtMs, marks }
  }

  #byte(): number {
    const byte = this.#bytes[this.#at++]
    if (byte === undefined) throw malformedCursor()
    return byte
  }

  #hash(): number {
    return this.#byte() * 65_536 + this.#byte() * 256 + this.#byte()
  }

  #varint(): number {
    let value = 0
    for (let factor = 1; ; factor *= 128) {
      const byte = this.#byte()
      value += (byte & 127) * factor
      if (value > Number.MAX_SAFE_INTEGER) throw malformedCursor()
      if (byte < 128) return value
    }
  }
}
