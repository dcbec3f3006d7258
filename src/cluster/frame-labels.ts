/**
 * Puts a key behind the others of every frame that passes: `,"AllocID":"…"`. Frames hold no brace but their own (kit/frame.ts),
 * so a frame ends at the first closing one, wherever the stream was cut into chunks on its way. Heartbeats are left out.
 * A node is not trusted: each frame is parsed, and what is none, or has the key already, ends that node's part with an error.
 */
import { Fault } from '../kit/errors.ts'

const CLOSE = 0x7d
/** Longer than any frame is: 64 KiB of data, a file's name, a cursor. */
const FRAME_BYTES_MAX = 1 << 20
const NO_FRAME = 'a node sent what is no frame'
const EMPTY = Buffer.alloc(0)

export class FrameLabels {
  readonly #key: string
  readonly #behind: Buffer
  #begun: Buffer = EMPTY

  /** `value` holds neither braces nor quotes: an ID. */
  constructor(key: string, value: string) {
    this.#key = key
    this.#behind = Buffer.from(`,"${key}":"${value}"}`)
  }

  /** The frames that are whole now, in bytes of their own; empty when there are none. */
  take(chunk: Uint8Array): Buffer {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length)
    const parts: Buffer[] = []
    let at = 0
    for (let end = bytes.indexOf(CLOSE); end >= 0; end = bytes.indexOf(CLOSE, at)) {
      const isHeartbeat = this.#begun.length + end - at === 1
      if (!isHeartbeat) {
        const body = Buffer.concat([this.#begun, bytes.subarray(at, end)])
        if (!this.#isFrame(body)) throw new Fault(NO_FRAME)
        parts.push(body, this.#behind)
      }
      this.#begun = EMPTY
      at = end + 1
    }
    const whole = Buffer.concat(parts)
    if (at < bytes.length) this.#begun = Buffer.concat([this.#begun, bytes.subarray(at)])
    if (this.#begun.length > FRAME_BYTES_MAX) throw new Fault(NO_FRAME)
    return whole
  }

  /** Without its closing brace. What is no frame would end the stream for the readers of all others. */
  #isFrame(body: Buffer): boolean {
    try {
      const frame: unknown = JSON.parse(`${body.toString('utf8')}}`)
      return typeof frame === 'object' && frame !== null && !Object.hasOwn(frame, this.#key)
    } catch {
      return false
    }
  }

  /** True when the stream may end here. */
  get isWhole(): boolean {
    return this.#begun.length === 0
  }
}

/** A frame that says something about one allocation's log, with no data. */
export function saidFrame(event: 'log ended' | 'log failed', allocationId: string, error?: string): Buffer {
  const text = error === undefined ? '' : `,"Error":${braceless(JSON.stringify(error))}`
  return Buffer.from(`{"FileEvent":"${event}"${text},"AllocID":"${allocationId}"}`)
}

function braceless(json: string): string {
  return json.replaceAll('{', '\\u007b').replaceAll('}', '\\u007d')
}
