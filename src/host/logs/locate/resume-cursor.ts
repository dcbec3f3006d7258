/**
 * Cursors: where a stream stands, as a text that its caller keeps and gives back to go on exactly there.
 *
 * A cursor holds one *mark* for each file the stream is in: which log, which of its files, and how far. A single log has
 * one, two for the moment after a rotation in which late bytes of the older file may still come; a merged stream has one
 * for each log. A mark names its file by index and by a hash of its inode and birth, so that another file under the same
 * name is noticed, and carries a hash of the last bytes before the place, so that a rewrite is.
 *
 * The text is base64url of: version, hash of endpoint and allocation, time it was made, marks, checksum. It is no secret and
 * gives no right: the request that carries it is authorised like any other, and what a forged one can do is to begin
 * somewhere else in a log that its sender may read anyway.
 */
import { readSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { Refusal } from '../../../platform/errors.ts'

const VERSION = 1
/** Bytes before a place that its mark remembers. */
const EDGE_BYTES = 32
const HASH_BYTES = 3
/** Bytes of a mark at most: three hashes, the edge's length, index, offset and owed lines. */
const MARK_BYTES_MAX = 3 * HASH_BYTES + 1 + 8 + 8 + 2
/** Version, scope, time, checksum. */
const ENVELOPE_BYTES_MAX = 1 + HASH_BYTES + 8 + HASH_BYTES
/** More marks than this do not fit into a request's head. */
const MARKS_MAX = 600
const CURSOR_CHARS_MAX = 16_384
/** What is made: a request's head of 16 KiB has room for it and for all else that stands there. */
const MADE_CHARS_MAX = 14_336
/** Logs that one cursor tells the places of: so many fit as long as no file is beyond 32 GiB or its two millionth. */
export const LOGS_MAX = 512

/** How far a stream has got in one file of one log. */
export interface FileMark {
  /** Hash of the log's name. */
  readonly log: number
  readonly index: number
  /** Hash of the file's inode and birth. */
  readonly identity: number
  offset: number
  /** Hash of the `edgeLength` bytes before `offset`; a length of 0 means that they are not known. */
  edge: number
  edgeLength: number
  /** Lines of context that are owed behind a match. */
  after: number
}

export interface ResumeCursor {
  readonly madeAtMs: number
  readonly marks: readonly FileMark[]
}

function hash24(data: string | Uint8Array): number {
  return crc32(data) & 0xff_ff_ff
}

/** Names a log in a mark. `name` is `<task>.<type>` or a path. */
export function logHash(name: string): number {
  return hash24(name)
}

/** Names what a cursor belongs to: an endpoint and an allocation. */
export function scopeHash(endpoint: string, allocationId: string): number {
  return hash24(`${endpoint}\0${allocationId}`)
}

/** A mark at `offset` of a file, with what stands before it. */
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

/** Hash of what makes a file this file and no other, as `FileMark.identity` holds it. */
export function fileIdentity(stat: MarkedFile['stat']): number {
  return hash24(`${stat.ino} ${stat.birthtimeNs}`)
}

/** Moves a mark to `offset`, where `data[0, end)` ends. */
export function moveMark(mark: FileMark, data: Buffer, end: number, offset: number): void {
  mark.offset = offset
  setEdge(mark, data, end)
}

/** The file of a mark begins anew. */
export function resetMark(mark: FileMark): void {
  mark.offset = 0
  mark.edgeLength = 0
}

function setEdge(mark: FileMark, data: Buffer, end: number): void {
  mark.edgeLength = Math.min(EDGE_BYTES, end, mark.offset)
  mark.edge = hash24(data.subarray(end - mark.edgeLength, end))
}

/** False when the file does not hold the bytes that stood before the mark. */
export function edgeMatches(mark: FileMark, fd: number): boolean {
  if (mark.edgeLength === 0) return true
  const now = Buffer.allocUnsafe(mark.edgeLength)
  const got = readSync(fd, now, 0, now.length, mark.offset - now.length)
  return got === now.length && hash24(now) === mark.edge
}

/** Characters of a cursor of so many marks, at most. */
export function cursorCharsMax(marks: number): number {
  return Math.ceil(((ENVELOPE_BYTES_MAX + marks * MARK_BYTES_MAX) * 4) / 3)
}

/**
 * The text of a cursor. Where so many marks do not fit, those are left out without which the stream goes on at the same
 * places: then late bytes of files that were rotated a moment ago are lost to whoever goes on there.
 */
export function encodeCursor(scope: number, marks: readonly FileMark[]): string {
  const text = marks.length > MARKS_MAX ? '' : encodeMarks(scope, marks)
  return text === '' || text.length > MADE_CHARS_MAX ? encodeMarks(scope, resumeMarks(marks)) : text
}

/** Of each log the mark that says where it goes on. */
function resumeMarks(marks: readonly FileMark[]): FileMark[] {
  const deciding = new Map<number, FileMark>()
  for (const mark of marks) {
    if (mark.offset > 0 || !deciding.has(mark.log)) deciding.set(mark.log, mark)
  }
  return [...deciding.values()]
}

/**
 * Index of the mark that says where a log goes on, -1 when there is none: nothing was given of the files behind the last
 * one that has got anywhere. `marks` are all of one log, in the order in which they were read.
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

function damaged(): Refusal {
  return new Refusal(
    'invalid_request',
    'the cursor is damaged or cut: give it exactly as it was received, or leave its value empty to begin anew',
  )
}

/** Reads a cursor of `scope`. Throws a Refusal that says what is wrong with it. */
export function decodeCursor(text: string, scope: number): ResumeCursor {
  if (text.length > CURSOR_CHARS_MAX || !/^[\w-]+$/.test(text)) throw damaged()
  const bytes = Buffer.from(text, 'base64url')
  if ((bytes[0] ?? 0) > VERSION) {
    throw new Refusal(
      'invalid_request',
      'the cursor was made by a newer version of outpost, which this agent cannot read: begin anew',
    )
  }
  const end = bytes.length - HASH_BYTES
  const whole = end > 1 + HASH_BYTES && bytes.readUIntBE(end, HASH_BYTES) === hash24(bytes.subarray(0, end))
  if (!whole || bytes[0] !== VERSION || bytes.toString('base64url') !== text) {
    throw damaged()
  }
  if (bytes.readUIntBE(1, HASH_BYTES) !== scope) {
    throw new Refusal('invalid_request', 'the cursor belongs to another allocation or endpoint')
  }
  return new CursorReader(bytes.subarray(0, end), 1 + HASH_BYTES).cursor()
}

/** Sums of seven bits a byte, the lowest first; above 2^53 there are no places in files. */
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
      if (edgeLength > Math.min(EDGE_BYTES, offset)) throw damaged()
      marks.push({ log, index, identity, offset, edge, edgeLength, after })
    }
    if (marks.length === 0 || marks.length > MARKS_MAX) throw damaged()
    return { madeAtMs, marks }
  }

  #byte(): number {
    const byte = this.#bytes[this.#at++]
    if (byte === undefined) throw damaged()
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
      if (value > Number.MAX_SAFE_INTEGER) throw damaged()
      if (byte < 128) return value
    }
  }
}
