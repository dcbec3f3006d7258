/** Parses stream frames: JSON objects one after the other, without separators. */

export interface FileFrame {
  readonly data: Uint8Array | undefined
  /** `file deleted` or `file truncated`. */
  readonly event: string | undefined
  /** Where to continue after this frame. */
  readonly cursor: string | undefined
}

/** Above what servers send. */
const FRAME_CHARS_MAX = 16 * 1024 * 1024

function decodeBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
}

function textOf(value: object, key: string): string | undefined {
  const found: unknown = Reflect.get(value, key)
  return typeof found === 'string' ? found : undefined
}

function frameOf(text: string): FileFrame {
  const value: unknown = JSON.parse(text)
  if (typeof value !== 'object' || value === null) throw new Error('The server sent a malformed frame.')
  const data = textOf(value, 'Data')
  return {
    data: data === undefined ? undefined : decodeBase64(data),
    event: textOf(value, 'FileEvent'),
    cursor: textOf(value, 'Cursor'),
  }
}

export class FrameParser {
  readonly #decoder = new TextDecoder()
  #text = ''
  #scanned = 0
  #depth = 0
  #isInText = false

  /** The frames that are complete. Throws for bytes that are not frames. */
  push(bytes: Uint8Array): readonly FileFrame[] {
    this.#text += this.#decoder.decode(bytes, { stream: true })
    const frames: FileFrame[] = []
    for (let end = this.#end(); end > 0; end = this.#end()) {
      frames.push(frameOf(this.#text.slice(0, end)))
      this.#text = this.#text.slice(end)
      this.#scanned = 0
    }
    if (this.#text.length > FRAME_CHARS_MAX) throw new Error('The server sent a frame that is too long.')
    return frames
  }

  /** Length of the first frame with the space before it; 0 if it is not complete. */
  #end(): number {
    for (; this.#scanned < this.#text.length; this.#scanned++) {
      const character = this.#text[this.#scanned]
      if (this.#isInText) {
        if (character === '\\') this.#scanned++
        else if (character === '"') this.#isInText = false
      } else if (character === '"') this.#isInText = true
      else if (character === '{') this.#depth++
      else if (character === '}' && --this.#depth === 0) return ++this.#scanned
      else if (this.#depth === 0 && !/\s/.test(character ?? '')) throw new Error(this.#text.slice(0, 200))
    }
    return 0
  }
}
