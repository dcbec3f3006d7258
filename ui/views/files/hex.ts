/** Rows of a hex view, and pages of the file that they are read from. */

export const ROW_BYTES = 16
/** A request reads this much. */
export const PAGE_BYTES = 64 * 1024
const PAGES_MAX = 64

export interface HexRow {
  readonly offset: string
  /** Pairs of digits, with a wider space in the middle. */
  readonly hex: string
  readonly ascii: string
}

const FIRST_PRINTED = 0x20
const LAST_PRINTED = 0x7e

export function hexRow(bytes: Uint8Array, offset: number): HexRow {
  let [hex, ascii] = ['', '']
  for (const [index, byte] of bytes.entries()) {
    hex += `${byte.toString(16).padStart(2, '0')}${index === ROW_BYTES / 2 - 1 ? '  ' : ' '}`
    ascii += byte >= FIRST_PRINTED && byte <= LAST_PRINTED ? String.fromCharCode(byte) : '.'
  }
  return { offset: offset.toString(16).padStart(8, '0'), hex: hex.trimEnd(), ascii }
}

/** An offset as a person writes it: `0x1f`, or decimal. */
export function parseOffset(text: string): number | undefined {
  const plain = text.trim().replaceAll('_', '')
  if (!/^(0x[0-9a-f]+|\d+)$/i.test(plain)) return undefined
  const value = Number(plain)
  return Number.isSafeInteger(value) ? value : undefined
}

interface HexPagesOptions {
  readonly read: (offset: number, limit: number) => Promise<Uint8Array>
  readonly onChange: (error?: Error) => void
}

/** The pages of a file that were shown last. */
export class HexPages {
  readonly #options: HexPagesOptions
  /** In the order of their use; undefined while a page is read. */
  readonly #pages = new Map<number, Uint8Array | undefined>()

  constructor(options: HexPagesOptions) {
    this.#options = options
  }

  /** The bytes of a row; undefined while they are read. */
  row(index: number): Uint8Array | undefined {
    const offset = index * ROW_BYTES
    const page = this.#page(Math.floor(offset / PAGE_BYTES))
    const from = offset % PAGE_BYTES
    return page?.subarray(from, from + ROW_BYTES)
  }

  #page(index: number): Uint8Array | undefined {
    if (this.#pages.has(index)) {
      const page = this.#pages.get(index)
      this.#pages.delete(index)
      this.#pages.set(index, page)
      return page
    }
    this.#pages.set(index, undefined)
    for (const oldest of this.#pages.keys()) {
      if (this.#pages.size <= PAGES_MAX) break
      this.#pages.delete(oldest)
    }
    void this.#read(index)
    return undefined
  }

  async #read(index: number): Promise<void> {
    try {
      const bytes = await this.#options.read(index * PAGE_BYTES, PAGE_BYTES)
      if (this.#pages.has(index)) this.#pages.set(index, bytes)
      this.#options.onChange()
    } catch (error) {
      // Read again when the page is shown again.
      this.#pages.delete(index)
      this.#options.onChange(error instanceof Error ? error : new Error(String(error)))
    }
  }
}

/** Where the rows of a long list are: a browser limits the height of an element, so a long file scrolls in larger steps. */
export interface RowWindow {
  readonly first: number
  /** Position of the first row, in pixels. */
  readonly topPx: number
}

export const HEIGHT_MAX_PX = 8_000_000

export function contentHeight(rows: number, rowPx: number): number {
  return Math.min(rows * rowPx, HEIGHT_MAX_PX)
}

export function rowWindow(
  scroll: { readonly topPx: number; readonly viewPx: number },
  rows: number,
  rowPx: number,
): RowWindow {
  const heightPx = contentHeight(rows, rowPx)
  if (heightPx === rows * rowPx) {
    const first = Math.min(Math.floor(scroll.topPx / rowPx), Math.max(0, rows - 1))
    return { first, topPx: first * rowPx }
  }
  const visible = Math.floor(scroll.viewPx / rowPx)
  const share = Math.min(1, scroll.topPx / (heightPx - scroll.viewPx))
  return { first: Math.round(share * (rows - visible)), topPx: scroll.topPx }
}

/** The scroll position that shows a row first. */
export function scrollOf(row: number, viewPx: number, rows: number, rowPx: number): number {
  const heightPx = contentHeight(rows, rowPx)
  if (heightPx === rows * rowPx) return row * rowPx
  return (row / Math.max(1, rows - Math.floor(viewPx / rowPx))) * (heightPx - viewPx)
}
