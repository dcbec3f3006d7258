/** Text in blocks, of which only the last changes: a browser lays out the others once. */

export interface TextBlock {
  readonly id: number
  readonly text: string
}

/** A block ends with the first line that ends beyond this. */
const BLOCK_CHARS = 16 * 1024

export class TextBlocks {
  readonly #charsMax: number
  #blocks: readonly TextBlock[] = []
  #chars = 0
  #nextId = 1
  /** Whether the oldest text was dropped. */
  isCut = false

  constructor(charsMax: number) {
    this.#charsMax = charsMax
  }

  get blocks(): readonly TextBlock[] {
    return this.#blocks
  }

  get chars(): number {
    return this.#chars
  }

  append(text: string): void {
    if (text === '') return
    const blocks = [...this.#blocks]
    let rest = text
    const last = blocks.at(-1)
    if (last && !isFull(last.text)) {
      blocks.pop()
      const { head, tail } = split(last.text + rest)
      blocks.push({ id: last.id, text: head })
      rest = tail
    }
    while (rest !== '') {
      const { head, tail } = split(rest)
      blocks.push({ id: this.#nextId++, text: head })
      rest = tail
    }
    this.#chars += text.length
    let dropped = 0
    while (this.#chars > this.#charsMax && dropped < blocks.length - 1) {
      this.#chars -= blocks[dropped++]?.text.length ?? 0
      this.isCut = true
    }
    this.#blocks = dropped === 0 ? blocks : blocks.slice(dropped)
  }

  clear(): void {
    this.#blocks = []
    this.#chars = 0
    this.isCut = false
  }
}

function isFull(text: string): boolean {
  return text.length >= BLOCK_CHARS && (text.endsWith('\n') || text.length >= 2 * BLOCK_CHARS)
}

/** The first block of a text, and the rest. A line without an end is split. */
function split(text: string): { readonly head: string; readonly tail: string } {
  if (text.length < BLOCK_CHARS) return { head: text, tail: '' }
  const lineEnd = text.indexOf('\n', BLOCK_CHARS - 1)
  const end = lineEnd < 0 || lineEnd >= 2 * BLOCK_CHARS ? 2 * BLOCK_CHARS : lineEnd + 1
  return { head: text.slice(0, end), tail: text.slice(end) }
}
