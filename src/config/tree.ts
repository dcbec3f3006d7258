/**
 * What a configuration or policy text is once it is read: a tree that keeps the source order, repeated keys and the
 * place of everything, so that whoever checks it can say where a fault stands.
 */

/** A place in a text. Both count from 1; columns count UTF-16 units, as editors do. */
export interface Position {
  readonly line: number
  readonly column: number
}

export interface StringNode {
  readonly kind: 'string'
  readonly at: Position
  readonly value: string
  /** Of a heredoc: where the first character of its text stands. Every line of it begins at the same column. */
  readonly bodyAt?: Position
}

export interface NumberNode {
  readonly kind: 'number'
  readonly at: Position
  readonly value: number
  /** As written, for whoever wants the number as text. */
  readonly text: string
}

export interface BooleanNode {
  readonly kind: 'boolean'
  readonly at: Position
  readonly value: boolean
}

/** Only JSON has it. */
export interface NullNode {
  readonly kind: 'null'
  readonly at: Position
}

export interface ListNode {
  readonly kind: 'list'
  readonly at: Position
  readonly items: readonly Node[]
}

export interface ObjectNode {
  readonly kind: 'object'
  readonly at: Position
  readonly entries: readonly Entry[]
}

export type Node = StringNode | NumberNode | BooleanNode | NullNode | ListNode | ObjectNode

export interface Label {
  readonly text: string
  readonly at: Position
}

/** `key = value`, or `key "label" ... { }`, whose value is always an object. */
export interface Entry {
  readonly key: string
  readonly keyAt: Position
  readonly labels: readonly Label[]
  readonly value: Node
}

/** The only thing the parsers throw. The message never quotes a value of the text: it may be a secret. */
export class HclError extends Error {
  override readonly name = 'HclError'
  readonly at: Position

  constructor(at: Position, message: string) {
    super(message)
    this.at = at
  }
}

/** How deep lists and objects may nest. Real files need 6; the parsers recurse, so there must be an end. */
export const DEPTH_MAX = 100

/** A text and how far it has been read; turns offsets into positions. */
export class Source {
  readonly text: string
  offset = 0
  #line = 1
  #lineStart = 0
  /** Offset of the newline that ends the current line. Kept, or a long line would be searched for each position. */
  #lineEnd: number

  constructor(text: string) {
    this.text = text
    this.#lineEnd = this.#newlineFrom(0)
    if (text.startsWith('\uFEFF')) this.offset = 1 // some editors put a byte order mark in front
  }

  /** The character `ahead` of the reading position; '' past the end. */
  peek(ahead = 0): string {
    return this.text.charAt(this.offset + ahead)
  }

  get ended(): boolean {
    return this.offset >= this.text.length
  }

  /** The text that a sticky expression matches here, read past it; '' when it does not match. */
  take(pattern: RegExp): string {
    pattern.lastIndex = this.offset
    const found = pattern.exec(this.text)?.[0] ?? ''
    this.offset += found.length
    return found
  }

  /** Asked in ascending order, as a parser does, the whole text is walked once. */
  at(offset = this.offset): Position {
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

  fail(message: string, at: Position = this.at()): never {
    throw new HclError(at, message)
  }

  /** What stands here, for the end of a message that says what was expected. Values are named by their kind only. */
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

/** A number of the text as a node; a whole number must be exact, any number must be finite. */
export function numberNode(source: Source, at: Position, text: string): NumberNode {
  const negative = text.startsWith('-')
  const size = Number(negative ? text.slice(1) : text)
  const whole = !/[.eE]/.test(text) || /^-?0[xX]/.test(text)
  if (!Number.isFinite(size) || (whole && !Number.isSafeInteger(size))) source.fail('the number is too large', at)
  return { kind: 'number', at, value: negative && size !== 0 ? -size : size, text }
}
