/**
 * Parses stream frames (consecutive JSON objects) from a byte stream.
 *
 * A frame of 64 KiB of data is 87 KB of base64, and `JSON.parse` takes ten times as long as decoding it. So strings are skipped with
 * `indexOf`, the base64 is decoded directly into a buffer, and only the remaining bytes are parsed as JSON. White space between frames,
 * any order of keys, and braces inside strings are supported.
 */

export interface Frame {
  /** Undefined without data. The buffer is not reused. */
  readonly data: Buffer | undefined
  /** `alloc/logs/web.stdout.0`; may be empty. */
  readonly file: string
  /** `file deleted` or `file truncated`; empty without an event. */
  readonly event: string
  /** Position after this frame; undefined for a server without cursors. */
  readonly cursor: string | undefined
  /** In a stream of several allocations. */
  readonly allocationId?: string
  /** Cause of `event`. */
  readonly error?: string
}

/** Input that is not a frame, such as the error text of a server at the end of the stream. */
export class MalformedFrame extends Error {
  override readonly name = 'MalformedFrame'
}

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPEN = 0x7b
const CLOSE = 0x7d
const DATA_FIRST = Buffer.from('{"Data":"')
const FIRST_CAPACITY_BYTES = 256 * 1024
/** Far above the size of frames that servers send. */
const FRAME_BYTES_MAX = 16 * 1024 * 1024
const TEXT_CHARS_MAX = 500

export class FrameReader {
  #bytes = Buffer.allocUnsafe(FIRST_CAPACITY_BYTES)
  /** Start of the current frame; `#end` is the end of the input. */
  #start = 0
  #end = 0
  /** State of the scan of the current frame. */
  #scanned = 0
  #depth = 0
  #inString = false
  /** End of the base64 in a frame that starts with its data; -1 otherwise. */
  #dataEnd = -1

  /** Adds bytes; they are copied. */
  push(chunk: Buffer): void {
    if (this.#end + chunk.length > this.#bytes.length) this.#reserve(chunk.length)
    chunk.copy(this.#bytes, this.#end)
    this.#end += chunk.length
  }

  /** The next complete frame, or undefined until more bytes arrive. Throws MalformedFrame, after which the reader must not be used. */
  next(): Frame | undefined {
    if (this.#depth === 0 && !this.#begin()) return undefined
    const end = this.#findEnd()
    if (end < 0) {
      if (this.#end - this.#start > FRAME_BYTES_MAX) throw new MalformedFrame('a frame exceeds the size limit')
      return undefined
    }
    const frame = this.#frame(this.#start, end)
    this.#start = end
    if (this.#start === this.#end) this.#start = this.#end = 0
    return frame
  }

  /** Number of bytes of an incomplete frame. */
  get pending(): number {
    return this.#end - this.#start
  }

  #reserve(bytes: number): void {
    const used = this.#end - this.#start
    let target = this.#bytes
    if (used + bytes > target.length) target = Buffer.allocUnsafe(Math.max(target.length * 2, used + bytes))
    this.#bytes.copy(target, 0, this.#start, this.#end)
    if (this.#dataEnd >= 0) this.#dataEnd -= this.#start
    this.#scanned -= this.#start
    this.#bytes = target
    this.#start = 0
    this.#end = used
  }

  /** Skips to the first byte of the next frame; false if it has not arrived. */
  #begin(): boolean {
    while (this.#start < this.#end && isSpace(this.#bytes[this.#start])) this.#start++
    if (this.#start === this.#end) {
      this.#start = this.#end = 0
      return false
    }
    if (this.#bytes[this.#start] !== OPEN) {
      throw new MalformedFrame(
        this.#bytes.toString('utf8', this.#start, Math.min(this.#end, this.#start + TEXT_CHARS_MAX)).trim(),
      )
    }
    this.#depth = 1
    this.#scanned = this.#start + 1
    this.#inString = false
    this.#dataEnd = -1
    return true
  }

  /** The position after the current frame, or -1. */
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

  /** Moves after the closing quote; false if it has not arrived. */
  #skipString(): boolean {
    const quote = this.#bytes.indexOf(QUOTE, this.#scanned)
    if (quote < 0 || quote >= this.#end) {
      // A backslash at the end is evaluated with the quote, by counting backward.
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
    // The message of the parser may quote the input.
  }
  throw new MalformedFrame('invalid JSON')
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
