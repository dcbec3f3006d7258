/**
 * The tree of a configuration or policy text. It keeps the order of the source, repeated keys and the position of each node, so that every
 * fault has a position.
 */

/** A position in a text. Both count from 1; columns count UTF-16 code units, as editors do. */
export interface TextPosition {
  readonly line: number
  readonly column: number
}

export interface StringNode {
  readonly kind: 'string'
  readonly at: TextPosition
  readonly value: string
  /** Position of the first character of a heredoc. All its lines begin at the same column. */
  readonly bodyAt?: TextPosition
}

export interface NumberNode {
  readonly kind: 'number'
  readonly at: TextPosition
  readonly value: number
  /** The number as written. */
  readonly text: string
}

export interface BooleanNode {
  readonly kind: 'boolean'
  readonly at: TextPosition
  readonly value: boolean
}

/** Only in JSON. */
export interface NullNode {
  readonly kind: 'null'
  readonly at: TextPosition
}

export interface ListNode {
  readonly kind: 'list'
  readonly at: TextPosition
  readonly items: readonly HclNode[]
}

export interface ObjectNode {
  readonly kind: 'object'
  readonly at: TextPosition
  readonly entries: readonly HclEntry[]
}

export type HclNode = StringNode | NumberNode | BooleanNode | NullNode | ListNode | ObjectNode

export interface HclLabel {
  readonly text: string
  readonly at: TextPosition
}

/** `key = value`, or `key "label" ... { }`, whose value is always an object. */
export interface HclEntry {
  readonly key: string
  readonly keyAt: TextPosition
  readonly labels: readonly HclLabel[]
  readonly value: HclNode
}

/** The only error of the parsers. The message never quotes a value, which may be a secret. */
export class HclError extends Error {
  override readonly name = 'HclError'
  readonly at: TextPosition

  constructor(at: TextPosition, message: string) {
    super(message)
    this.at = at
  }
}

/** Maximum nesting of lists and objects, because the parsers recurse. Real files need 6. */
export const DEPTH_MAX = 100

/** A text and the reading offset. Converts offsets to positions. */
export class SourceText {
  readonly text: string
  offset = 0
  #line = 1
  #lineStart = 0
  /** Offset of the newline that ends the current line. Cached, because searching a long line for each position is slow. */
  #lineEnd: number

  constructor(text: string) {
    this.text = text
    this.#lineEnd = this.#newlineFrom(0)
    if (text.startsWith('\uFEFF')) this.offset = 1 // byte order mark
  }

  /** The character at the reading offset plus `ahead`; '' after the end. */
  peek(ahead = 0): string {
    return this.text.charAt(this.offset + ahead)
  }

  get ended(): boolean {
    return this.offset >= this.text.length
  }

  /** Consumes the match of a sticky expression; '' without a match. */
  take(pattern: RegExp): string {
    pattern.lastIndex = this.offset
    const found = pattern.exec(this.text)?.[0] ?? ''
    this.offset += found.length
    return found
  }

  /** With ascending offsets, as in a parser, the whole text is scanned once. */
  at(offset = this.offset): TextPosition {
    if (offset < this.#lineStart) {
      this.#line = 1
      this.#lineStart = 0
      this.#lineEnd = this.#newlineFrom(0)
    }
    while (this.#lineEnd < offset) {
      this.#line++
      this.#lineStart = this.#lineEnd + 1
      this.#lineEnd = this.#newlineFrom(this.#lineStart)
    }
    return { line: this.#line, column: offset - this.#lineStart + 1 }
  }

  #newlineFrom(offset: number): number {
    const found = this.text.indexOf('\n', offset)
    return found < 0 ? Number.POSITIVE_INFINITY : found
  }

  fail(message: string, at: TextPosition = this.at()): never {
    throw new HclError(at, message)
  }

  /** The kind of the next token, for messages of the form "expected …, found …". Never quotes a value. */
  found(): string {
    const next = this.peek()
    if (next === '') return 'the end of the text'
    if (next === '\n' || next === '\r') return 'the end of the line'
    if (next === '"') return 'a string'
    if (/[\p{L}_]/u.test(next)) return 'an unquoted word'
    if (/[\d-]/.test(next)) return 'a number'
    if (/[!-/:-@[-`{-~]/.test(next)) return `\`${next}\``
    return `the character U+${(this.text.codePointAt(this.offset) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`
  }
}

/** The node of a number. An integer must be exact, any number finite. */
export function numberNode(source: SourceText, at: TextPosition, text: string): NumberNode {
  const negative = text.startsWith('-')
  const size = Number(negative ? text.slice(1) : text)
  const whole = !/[.eE]/.test(text) || /^-?0[xX]/.test(text)
  if (!Number.isFinite(size) || (whole && !Number.isSafeInteger(size))) source.fail('the number is too large', at)
  return { kind: 'number', at, value: negative && size !== 0 ? -size : size, text }
}
