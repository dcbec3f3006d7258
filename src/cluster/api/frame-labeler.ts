/**
 * Appends a key to each frame of a stream: `,"AllocID":"…"`. Frames contain no other closing brace (platform/stream-frame.ts), so a frame ends
 * at the first one, however the stream is split into chunks. Heartbeats are dropped.
 *
 * A node is not trusted: a frame that clients cannot parse would end the stream of all nodes. So a frame must have the form that
 * honest nodes send: valid UTF-8, no white space, at least one key, each with a known name and type. Any other frame, and one that is
 * too long, ends the stream of its node with an error. At most `FRAME_BYTES_MAX` of an incomplete frame are buffered.
 */
import { isUtf8 } from 'node:buffer'
import { Fault } from '../../platform/errors.ts'

const CLOSING_BRACE = 0x7d
/** More than twice the longest frame of an honest node: 64 KiB of data in base64, a file name, a cursor. */
const FRAME_BYTES_MAX = 256 * 1024
/** Buffered pieces of a frame before they are joined: a node that sends single bytes would need a buffer for each. */
const PIECES_MAX = 64
const INVALID_FRAME = 'a node sent an invalid frame'

/** A JSON string. Unrolled, so that the time is linear in its length. */
const TEXT = String.raw`"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[^"\\\x00-\x1f]*)*"`
const MEMBERS = [
  String.raw`"Data":"[A-Za-z\d+/]*={0,2}"`,
  `"(?:File|FileEvent|Cursor)":${TEXT}`,
  // Clients parse it as a 64-bit integer.
  String.raw`"Offset":(?:0|[1-9]\d{0,15})`,
].join('|')
/** A frame without its closing brace. */
const FRAME = new RegExp(`^\\{(?:${MEMBERS})(?:,(?:${MEMBERS}))*$`)

export class FrameLabeler {
  readonly #suffix: Buffer
  /** Pieces of the incomplete frame. */
  #pieces: Buffer[] = []
  #bytes = 0
  #cursor: string | undefined
  readonly #keepsCursor: boolean

  /** `value` contains neither braces nor quotes: an ID. */
  constructor(key: string, value: string, { keepsCursor = false }: { readonly keepsCursor?: boolean } = {}) {
    this.#keepsCursor = keepsCursor
    this.#suffix = Buffer.from(`,"${key}":"${value}"}`)
  }

  /** Copies the frames that are complete with this chunk. Throws a Fault for an invalid frame. */
  label(chunk: Uint8Array): Buffer {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length)
    const labelled: Buffer[] = []
    let at = 0
    for (let end = bytes.indexOf(CLOSING_BRACE); end >= 0; end = bytes.indexOf(CLOSING_BRACE, at)) {
      this.#append(bytes.subarray(at, end))
      const isHeartbeat = this.#bytes === 1
      if (!isHeartbeat) {
        const body = Buffer.concat(this.#pieces)
        if (!isUtf8(body) || !FRAME.test(body.toString('latin1'))) throw new Fault(INVALID_FRAME)
        labelled.push(body, this.#suffix)
        if (this.#keepsCursor) this.#cursor = cursorIn(body) ?? this.#cursor
      }
      this.#pieces = []
      this.#bytes = 0
      at = end + 1
    }
    // A copy, because the producer reuses the memory of the chunk.
    if (at < bytes.length) this.#append(Buffer.from(bytes.subarray(at)))
    return Buffer.concat(labelled)
  }

  #append(bytes: Buffer): void {
    this.#bytes += bytes.length
    if (this.#bytes > FRAME_BYTES_MAX) throw new Fault(INVALID_FRAME)
    this.#pieces.push(bytes)
    if (this.#pieces.length >= PIECES_MAX) this.#pieces = [Buffer.concat(this.#pieces)]
  }

  /** The last cursor of a complete frame, if cursors are kept. */
  get cursor(): string | undefined {
    return this.#cursor
  }

  /** True if no frame is incomplete. */
  get isComplete(): boolean {
    return this.#bytes === 0
  }
}

const CURSOR_KEY = '"Cursor":"'

/** Cursors are at the end of a frame. */
function cursorIn(frame: Buffer): string | undefined {
  const at = frame.lastIndexOf(CURSOR_KEY)
  return at < 0 ? undefined : /^[\w-]+(?="$)/.exec(frame.toString('latin1', at + CURSOR_KEY.length))?.[0]
}

/** The last frame of one allocation's log: without data, with the reason if it failed. */
export function lastFrame(event: 'log ended' | 'log failed', allocationId: string, error?: string): Buffer {
  const text = error === undefined ? '' : `,"Error":${withoutBraces(JSON.stringify(error))}`
  return Buffer.from(`{"FileEvent":"${event}"${text},"AllocID":"${allocationId}"}`)
}

function withoutBraces(json: string): string {
  return json.replaceAll('{', '\\u007b').replaceAll('}', '\\u007d')
}
