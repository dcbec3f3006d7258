/**
 * Stream frames: JSON objects written back to back with nothing between them, keys in the order Data, File, FileEvent,
 * Offset, each left out when it is empty or zero. `{}` is a heartbeat. Where the caller asked for a resumable stream,
 * frames with data end with one more key, Cursor.
 *
 * Stock clients depend on the exact bytes: one cuts the text at `}{`, so there is never white space between frames and
 * a brace inside a file name is written as an escape. Frames are built by hand into a caller's buffer, because
 * `JSON.stringify` of 64 KiB of base64 costs an order of magnitude more.
 */

/** Most bytes of data in one frame. Clients and proxies size their buffers by it. */
export const FRAME_DATA_BYTES_MAX = 65_536

export const HEARTBEAT: Buffer = Buffer.from('{}')

export type FileEvent = 'file deleted' | 'file truncated'

/** Upper bound of the bytes that `encodeFrames` writes for this amount of data. */
export function framesBytesMax(dataBytes: number, label: FrameLabel): number {
  const frames = Math.ceil(dataBytes / FRAME_DATA_BYTES_MAX)
  return Math.ceil(dataBytes / 3) * 4 + frames * (4 + label.bytes)
}

/** Returns the cursor of the position after `data[0, end)`, `endOffset` in the file. Letters, digits, `-` and `_`. */
export type CursorAt = (data: Buffer, end: number, endOffset: number) => string

/** A heartbeat with a cursor: progress without data to send. */
export function cursorFrame(cursor: string): Buffer {
  return Buffer.from(`{"Cursor":"${cursor}"}`)
}

/** The constant parts of the frames of one file. */
export class FrameLabel {
  readonly file: string
  readonly #tail: string
  /** Upper bound of the bytes of a frame without its base64. */
  readonly bytes: number

  constructor(file: string) {
    this.file = file
    const name = JSON.stringify(file).replaceAll('{', '\\u007b').replaceAll('}', '\\u007d')
    this.#tail = `","File":${name},"Offset":`
    this.bytes = 9 + Buffer.byteLength(this.#tail) + 17
  }

  /**
   * Writes `data[from, to)` as frames into `target` at `at`, each with the exact end offset of its data in the file.
   * Returns the position after the last frame. `startOffset` is the file offset of `data[from]`. With `cursorAt`, the caller
   * reserves space for the cursors.
   */
  encodeFrames(
    data: Buffer,
    from: number,
    to: number,
    startOffset: number,
    target: Buffer,
    at: number,
    cursorAt?: CursorAt,
  ): number {
    let position = at
    for (let begin = from; begin < to; begin += FRAME_DATA_BYTES_MAX) {
      const end = Math.min(begin + FRAME_DATA_BYTES_MAX, to)
      position += target.write('{"Data":"', position, 'latin1')
      position += target.write(data.toString('base64', begin, end), position, 'latin1')
      const endOffset = startOffset + (end - from)
      const cursor = cursorAt === undefined ? '' : `,"Cursor":"${cursorAt(data, end, endOffset)}"`
      position += target.write(`${this.#tail}${endOffset}${cursor}}`, position)
    }
    return position
  }

  /** A frame with an event of the file and no data. */
  eventFrame(event: FileEvent, offset: number): Buffer {
    const file = this.#tail.slice(2, -',"Offset":'.length)
    return Buffer.from(`{${file},"FileEvent":"${event}"${offset === 0 ? '' : `,"Offset":${offset}`}}`)
  }
}
