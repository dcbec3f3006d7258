/**
 * Appends a key to every frame of a stream: `,"AllocID":"…"`. Frames contain no brace but their own (platform/frame.ts), so a frame
 * ends at the first closing brace, wherever the stream was cut into chunks. Heartbeats are dropped.
 * A node is not trusted: what no client can read would end the stream of all nodes. So a frame must have the form that honest nodes
 * send: valid UTF-8, no white space, at least one key, each of a known name and type. Any other one, and one that is too long, ends that
 * node's stream with an error. At most `FRAME_BYTES_MAX` of an incomplete frame are kept.
 */
import { isUtf8 } from 'node:buffer'
import { Fault } from '../../platform/errors.ts'

const CLOSE = 0x7d
/** More than twice the longest frame of an honest node: 64 KiB of data in base64, a file name, a cursor. */
const FRAME_BYTES_MAX = 256 * 1024
/** Pieces of a frame before they become one: a node that sends single bytes would cost a buffer for each. */
const PIECES_MAX = 64
const NO_FRAME = 'a node sent an invalid frame'

/** A JSON string. Unrolled: the time is linear in its length. */
const TEXT = String.raw`"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[^"\\\x00-\x1f]*)*"`
const MEMBERS = [
  String.raw`"Data":"[A-Za-z\d+/]*={0,2}"`,
  `"(?:File|FileEvent|Cursor)":${TEXT}`,
  // Clients decode it as a 64-bit integer.
  String.raw`"Offset":(?:0|[1-9]\d{0,15})`,
].join('|')
/** A frame without its closing brace. */
const FRAME = new RegExp(`^\\{(?:${MEMBERS})(?:,(?:${MEMBERS}))*$`)

export class FrameLabels {
  readonly #suffix: Buffer
  /** The frame that is not complete yet, in the pieces in which it came. */
  #partial: Buffer[] = []
  #partialBytes = 0

  /** `value` holds neither braces nor quotes: an ID. */
  constructor(key: string, value: string) {
    this.#suffix = Buffer.from(`,"${key}":"${value}"}`)
  }

  /** The frames that are complete now, copied; empty when there are none. Throws a Fault for an invalid frame. */
  take(chunk: Uint8Array): Buffer {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length)
    const labelled: Buffer[] = []
    let at = 0
    for (let end = bytes.indexOf(CLOSE); end >= 0; end = bytes.indexOf(CLOSE, at)) {
      this.#append(bytes.subarray(at, end))
      const isHeartbeat = this.#partialBytes === 1
      if (!isHeartbeat) {
        const body = Buffer.concat(this.#partial)
        if (!this.#isFrame(body)) throw new Fault(NO_FRAME)
        labelled.push(body, this.#suffix)
      }
      this.#partial = []
      this.#partialBytes = 0
      at = end + 1
    }
    // The caller may use the memory of the chunk again.
    if (at < bytes.length) this.#append(Buffer.from(bytes.subarray(at)))
    return Buffer.concat(labelled)
  }

  #append(bytes: Buffer): void {
    this.#partialBytes += bytes.length
    if (this.#partialBytes > FRAME_BYTES_MAX) throw new Fault(NO_FRAME)
    this.#partial.push(bytes)
    if (this.#partial.length >= PIECES_MAX) this.#partial = [Buffer.concat(this.#partial)]
  }

  /** `body` is without its closing brace. */
  #isFrame(body: Buffer): boolean {
    return isUtf8(body) && FRAME.test(body.toString('latin1'))
  }

  /** True when no frame is incomplete. */
  get isWhole(): boolean {
    return this.#partialBytes === 0
  }
}

/** A frame without data that reports an event of one allocation's log. */
export function eventFrame(event: 'log ended' | 'log failed', allocationId: string, error?: string): Buffer {
  const text = error === undefined ? '' : `,"Error":${braceless(JSON.stringify(error))}`
  return Buffer.from(`{"FileEvent":"${event}"${text},"AllocID":"${allocationId}"}`)
}

function braceless(json: string): string {
  return json.replaceAll('{', '\\u007b').replaceAll('}', '\\u007d')
}
