/**
 * Appends a key to every frame of a stream: `,"AllocID":"…"`. Frames contain no brace but their own (kit/frame.ts), so a frame
 * ends at the first closing brace, wherever the stream was cut into chunks. Heartbeats are dropped.
 * A node is not trusted: each frame is parsed. One that is invalid, too long or already has the key ends that node's stream with
 * an error. At most `FRAME_BYTES_MAX` of an incomplete frame are kept.
 */
import { Fault } from '../kit/errors.ts'

const CLOSE = 0x7d
/** More than twice the longest frame of an honest node: 64 KiB of data in base64, a file name, a cursor. */
const FRAME_BYTES_MAX = 256 * 1024
/** Pieces of a frame before they become one: a node that sends single bytes would cost a buffer for each. */
const PIECES_MAX = 64
const NO_FRAME = 'a node sent an invalid frame'

export class FrameLabels {
  readonly #key: string
  readonly #suffix: Buffer
  /** The frame that is not complete yet, in the pieces in which it came. */
  #partial: Buffer[] = []
  #partialBytes = 0

  /** `value` holds neither braces nor quotes: an ID. */
  constructor(key: string, value: string) {
    this.#key = key
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

  /** `body` is without its closing brace. An invalid frame would end the stream for the readers of all others. */
  #isFrame(body: Buffer): boolean {
    try {
      const frame: unknown = JSON.parse(`${body.toString('utf8')}}`)
      return typeof frame === 'object' && frame !== null && !Object.hasOwn(frame, this.#key)
    } catch {
      return false
    }
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
