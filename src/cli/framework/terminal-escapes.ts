/** Escapes characters in texts of servers and tasks that a terminal would interpret. */

/** Control characters, and characters that change the direction of the text. */
// oxlint-disable-next-line no-control-regex -- control characters are what must not reach a terminal
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g
/** Without tab and line feed. */
// oxlint-disable-next-line no-control-regex -- as above
const CONTROLS_IN_TEXT = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g
const CONTROLS_IN_JSON = /[\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

/** Escapes a text of one line. */
export function escapeLine(name: string): string {
  return name.replaceAll(CONTROLS, escaped)
}

/** Escapes a text of several lines. */
export function escapeText(text: string): string {
  return text.replaceAll(CONTROLS_IN_TEXT, escaped)
}

/** Escapes JSON, or YAML with strings in JSON notation, without a change of its meaning. */
export function escapeJson(json: string): string {
  return json.replaceAll(CONTROLS_IN_JSON, (character) => `\\u${hexOf(character, 4)}`)
}

function escaped(character: string): string {
  return character > '\u00ff' ? `\\u${hexOf(character, 4)}` : `\\x${hexOf(character, 2)}`
}

function hexOf(character: string, digits: number): string {
  return character.charCodeAt(0).toString(16).padStart(digits, '0')
}

/** Color sequences, which are kept, or control characters; for UTF-8 bytes decoded as Latin-1. */
// oxlint-disable-next-line no-control-regex -- as above
const IN_BYTES = /\u001b\[[\d;:]*m|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]|\u00c2[\u0080-\u009f]/g
/** An incomplete sequence at the end. */
// oxlint-disable-next-line no-control-regex -- as above
const INCOMPLETE = /(?:\u001b(?:\[[\d;:]{0,64})?|\u00c2)$/

/**
 * Escapes files and logs on a terminal. The output of a task may contain colors. Other sequences could set the title, send input in
 * the user's name, or hide text, so they are escaped.
 */
export class TerminalEscaper {
  #incomplete = ''

  /** The escaped bytes so far, without an incomplete sequence at their end. */
  push(bytes: Buffer): Buffer {
    const text = this.#incomplete + bytes.toString('latin1')
    this.#incomplete = INCOMPLETE.exec(text)?.[0] ?? ''
    return escapedBytes(text.slice(0, text.length - this.#incomplete.length))
  }

  /** The incomplete sequence at the end of the input. */
  flush(): Buffer {
    const text = this.#incomplete
    this.#incomplete = ''
    return escapedBytes(text)
  }
}

function escapedBytes(text: string): Buffer {
  const escapes = text.replaceAll(IN_BYTES, (sequence) =>
    sequence.length > 2 ? sequence : `\\x${hexOf(sequence.at(-1) ?? '', 2)}`,
  )
  return Buffer.from(escapes, 'latin1')
}
