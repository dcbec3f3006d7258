/** Frames of a stream of logs or of a file: JSON objects back to back. A server escapes braces, so only the end of a frame has one. */

export interface Frame {
  readonly data: Uint8Array | undefined
  /** Such as `alloc/logs/web.stdout.0`; may be empty. */
  readonly file: string
  /** `file deleted`, `file truncated`, `log ended` or `log failed`; empty without an event. */
  readonly event: string
  /** End of the data in the file. */
  readonly offset: number
  /** Position after this frame. */
  readonly cursor: string | undefined
  /** In the stream of a job; otherwise empty. */
  readonly allocationId: string
  /** Cause of the event. */
  readonly error: string
}

/** Far above the size of frames that servers send. */
const FRAME_CHARS_MAX = 4 * 1024 * 1024
const TEXT_CHARS_MAX = 300

/** Input that is not a frame, such as the error text of a server at the end of a stream. */
export class MalformedFrame extends Error {}

export class FrameReader {
  readonly #decoder = new TextDecoder()
  #text = ''
  /** No frame ends before this position. */
  #scanned = 0

  /** The frames that are complete with this chunk, with heartbeats. Throws MalformedFrame. */
  push(chunk: Uint8Array | string): Frame[] {
    this.#text += typeof chunk === 'string' ? chunk : this.#decoder.decode(chunk, { stream: true })
    const text = this.#text
    const frames: Frame[] = []
    let from = 0
    for (let end = text.indexOf('}', this.#scanned); end >= 0; end = text.indexOf('}', from)) {
      frames.push(frameOf(text.slice(from, end + 1)))
      from = end + 1
    }
    this.#text = from === 0 ? text : text.slice(from)
    this.#scanned = this.#text.length
    if (this.#scanned > FRAME_CHARS_MAX) throw new MalformedFrame('a frame exceeds the size limit')
    return frames
  }

  /** True if no frame is incomplete. */
  get isComplete(): boolean {
    return this.#text === ''
  }
}

function frameOf(text: string): Frame {
  const fields = fieldsOf(text)
  const data = textOf(fields, 'Data')
  const cursor = textOf(fields, 'Cursor')
  const offset = fields['Offset']
  return {
    data: data === '' ? undefined : bytesOf(data),
    file: textOf(fields, 'File'),
    event: textOf(fields, 'FileEvent'),
    offset: typeof offset === 'number' ? offset : 0,
    cursor: cursor === '' ? undefined : cursor,
    allocationId: textOf(fields, 'AllocID'),
    error: textOf(fields, 'Error'),
  }
}

function fieldsOf(text: string): Readonly<Record<string, unknown>> {
  try {
    return JSON.parse(text) as Readonly<Record<string, unknown>>
  } catch {
    throw new MalformedFrame(text.trim().slice(0, TEXT_CHARS_MAX))
  }
}

function textOf(fields: Readonly<Record<string, unknown>>, name: string): string {
  const value = fields[name]
  return typeof value === 'string' ? value : ''
}

interface Base64Decoder {
  fromBase64?: (text: string) => Uint8Array
}

/** Newer browsers decode base64 natively. */
const native = Uint8Array as Base64Decoder

function bytesOf(base64: string): Uint8Array {
  if (native.fromBase64) return native.fromBase64(base64)
  const text = atob(base64)
  const bytes = new Uint8Array(text.length)
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at)
  return bytes
}
