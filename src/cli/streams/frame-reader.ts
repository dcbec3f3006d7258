/**
 * Reads stream frames (JSON objects back to back) out of bytes that arrive in any pieces.
 *
 * Made for speed: a frame of 64 KiB of data is 87 KB of base64, and `JSON.parse` of it costs ten times what decoding
 * does. So strings are skipped with `indexOf`, the base64 goes straight into a buffer, and only the few bytes behind it
 * are parsed as JSON. Nothing is assumed of a frame but that it is a JSON object: white space between frames, keys in
 * another order and braces inside strings are read as they should be.
 */

export interface Frame {
  /** Undefined when the frame has none. A buffer of its own, the receiver may keep it. */
  readonly data: Buffer | undefined
  /** `alloc/logs/web.stdout.0`; empty when the frame names none. */
  readonly file: string
  /** `file deleted` or `file truncated`; empty when nothing happened. */
  readonly event: string
  /** Where to resume behind this frame; undefined when the server does not say. */
  readonly cursor: string | undefined
  /** Whose log it is, in a stream of several; absent in others. */
  readonly allocationId?: string
  /** Why `event` happened; absent unless the server says. */
  readonly error?: string
}

/** What arrived is no frame: a server's error text behind the frames, or not a stream of frames at all. */
export class NotAFrame extends Error {
  override readonly name = 'NotAFrame'
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPEN = 0x7b
const CLOSE = 0x7d
const DATA_FIRST = Buffer.from('{"Data":"')
const FIRST_CAPACITY_BYTES = 256 * 1024
/** Far beyond what any server sends: what is longer is no frame. */
const FRAME_BYTES_MAX = 16 * 1024 * 1024
const TEXT_CHARS_MAX = 500

export class FrameReader {
  #bytes = Buffer.allocUnsafe(FIRST_CAPACITY_BYTES)
  /** The frame under way begins here, and `#end` bytes are there. */
  #start = 0
  #end = 0
  /** How far the frame under way has been looked at, and how that ended. */
  #scanned = 0
  #depth = 0
  #inString = false
  /** Where the base64 of a frame that begins with its data ends; -1 until that is known, or when it does not. */
  #dataEnd = -1

  /** Adds bytes; they are copied. */
  push(chunk: Buffer): void {
    if (this.#end + chunk.length > this.#bytes.length) this.#makeRoom(chunk.length)
    chunk.copy(this.#bytes, this.#end)
    this.#end += chunk.length
  }

  /** The next whole frame, or undefined until more bytes arrive. Throws NotAFrame; the reader is useless after that. */
  next(): Frame | undefined {
    if (this.#depth === 0 && !this.#begin()) return undefined
    const end = this.#findEnd()
    if (end < 0) {
      if (this.#end - this.#start > FRAME_BYTES_MAX) throw new NotAFrame('a frame without an end')
      return undefined
    }
    const frame = this.#frame(this.#start, end)
    this.#start = end
    if (this.#start === this.#end) this.#start = this.#end = 0
    return frame
  }

  /** Bytes of a frame that has not come to its end. */
  get pending(): number {
    return this.#end - this.#start
  }

  #makeRoom(more: number): void {
    const held = this.#end - this.#start
    let target = this.#bytes
    if (held + more > target.length) target = Buffer.allocUnsafe(Math.max(target.length * 2, held + more))
    this.#bytes.copy(target, 0, this.#start, this.#end)
    if (this.#dataEnd >= 0) this.#dataEnd -= this.#start
    this.#scanned -= this.#start
    this.#bytes = target
    this.#start = 0
    this.#end = held
  }

  /** Skips to the first byte of the next frame; false when it is not there yet. */
  #begin(): boolean {
    while (this.#start < this.#end && isSpace(this.#bytes[this.#start])) this.#start++
    if (this.#start === this.#end) {
      this.#start = this.#end = 0
      return false
    }
    if (this.#bytes[this.#start] !== OPEN) {
      throw new NotAFrame(
        this.#bytes.toString('utf8', this.#start, Math.min(this.#end, this.#start + TEXT_CHARS_MAX)).trim(),
      )
    }
    this.#depth = 1
    this.#scanned = this.#start + 1
    this.#inString = false
    this.#dataEnd = -1
    return true
  }

  /** The position behind the frame under way, or -1. */
  #findEnd(): number {
    const bytes = this.#bytes
    while (this.#scanned < this.#end) {
      if (this.#inString) {
        if (!this.#skipString()) return -1
        continue
      }
      const byte = bytes[this.#scanned++]
      if (byte === QUOTE) this.#inString = true
      else if (byte === OPEN) this.#depth++
      else if (byte === CLOSE && --this.#depth === 0) return this.#scanned
    }
    return -1
  }

  /** Goes behind the closing quote; false when it has not arrived. */
  #skipString(): boolean {
    const quote = this.#bytes.indexOf(QUOTE, this.#scanned)
    if (quote < 0 || quote >= this.#end) {
      // Whatever a backslash at the very end escapes is decided when it is there, by counting back from the quote.
      this.#scanned = this.#end
      return false
    }
    this.#scanned = quote + 1
    let slashes = 0
    while (this.#bytes[quote - 1 - slashes] === BACKSLASH) slashes++
    if (slashes % 2 === 1) return true
    this.#inString = false
    if (this.#dataEnd < 0 && quote >= this.#start + DATA_FIRST.length && this.#beginsWithData()) this.#dataEnd = quote
    return true
  }

  #beginsWithData(): boolean {
    return this.#bytes.compare(DATA_FIRST, 0, DATA_FIRST.length, this.#start, this.#start + DATA_FIRST.length) === 0
  }

  #frame(start: number, end: number): Frame {
    const from = start + DATA_FIRST.length
    if (this.#dataEnd < 0 || this.#bytes.subarray(from, this.#dataEnd).includes(BACKSLASH)) {
      return frameOf(parse(this.#bytes.toString('utf8', start, end)), undefined)
    }
    const data = Buffer.from(this.#bytes.toString('latin1', from, this.#dataEnd), 'base64')
    const tail = this.#bytes.toString('utf8', this.#dataEnd + 1, end)
    return frameOf(parse(`{${tail.replace(/^\s*,/, '')}`), data)
  }
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09
}

function parse(text: string): object {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null) return value
  } catch {
    // Said below, without the parser's own text.
  }
  throw new NotAFrame('something that is not JSON')
}

function frameOf(fields: object, data: Buffer | undefined): Frame {
  const inText = 'Data' in fields ? textOf(fields.Data) : ''
  return {
    data: data ?? (inText === '' ? undefined : Buffer.from(inText, 'base64')),
    file: 'File' in fields ? textOf(fields.File) : '',
    event: 'FileEvent' in fields ? textOf(fields.FileEvent) : '',
    cursor: 'Cursor' in fields && typeof fields.Cursor === 'string' ? fields.Cursor : undefined,
    ...('AllocID' in fields ? { allocationId: textOf(fields.AllocID) } : {}),
    ...('Error' in fields ? { error: textOf(fields.Error) } : {}),
  }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
