/**
 * Splits stream frames. The only closing brace of a frame is its last character, and data comes
 * first, so the base64 is cut out and decoded without parsing JSON.
 */
const BRACE = 125
const QUOTE = 34
const DATA = Buffer.from('{"Data":"')

export interface FrameHandler {
  /** Valid only during the call. */
  readonly onData: (data: Buffer, file: string, endOffset: number) => void
  readonly onEvent: (text: string) => void
}

export class FrameReader {
  frames = 0
  readonly #handler: FrameHandler
  #pending: Buffer[] = []
  readonly #decoded = Buffer.allocUnsafeSlow(131_072)

  constructor(handler: FrameHandler) {
    this.#handler = handler
  }

  /** True when it stands between two frames. */
  get whole(): boolean {
    return this.#pending.length === 0
  }

  feed(bytes: Buffer): void {
    for (let at = 0; at < bytes.length; ) {
      const end = bytes.indexOf(BRACE, at)
      if (end < 0) {
        this.#pending.push(Buffer.from(bytes.subarray(at)))
        return
      }
      const part = bytes.subarray(at, end + 1)
      at = end + 1
      if (this.whole) {
        this.#one(part)
      } else {
        const frame = Buffer.concat([...this.#pending, part])
        this.#pending = []
        this.#one(frame)
      }
    }
  }

  #one(frame: Buffer): void {
    this.frames++
    if (frame.length <= DATA.length || frame.compare(DATA, 0, DATA.length, 0, DATA.length) !== 0) {
      if (frame.length > 2) this.#handler.onEvent(frame.toString())
      return
    }
    const end = frame.indexOf(QUOTE, DATA.length)
    const length = this.#decoded.write(frame.toString('latin1', DATA.length, end), 'base64')
    const rest = JSON.parse(`{"Data":"${frame.toString('utf8', end)}`) as { File?: string; Offset?: number }
    this.#handler.onData(this.#decoded.subarray(0, length), rest.File ?? '', rest.Offset ?? 0)
  }
}
