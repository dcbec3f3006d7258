/** Texts from elsewhere on a terminal. */

/** What a terminal obeys, and what turns the direction of the text around so that it shows another one. */
// oxlint-disable-next-line no-control-regex -- control characters are what must not reach a terminal
const OBEYED = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g
/** The same, where the lines of a text stay lines. */
// oxlint-disable-next-line no-control-regex -- as above
const OBEYED_IN_TEXT = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g
const OBEYED_IN_JSON = /[\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

/** A name from elsewhere, safe to show: what a terminal would obey is written as an escape. */
export function shownName(name: string): string {
  return name.replaceAll(OBEYED, escaped)
}

/** A text of several lines, safe to show. */
export function shownText(text: string): string {
  return text.replaceAll(OBEYED_IN_TEXT, escaped)
}

/** JSON, or YAML whose texts are quoted as in JSON, that means the same and is safe to show. */
export function shownJson(json: string): string {
  return json.replaceAll(OBEYED_IN_JSON, (sign) => `\\u${hexOf(sign, 4)}`)
}

function escaped(sign: string): string {
  return sign > '\u00ff' ? `\\u${hexOf(sign, 4)}` : `\\x${hexOf(sign, 2)}`
}

function hexOf(sign: string, digits: number): string {
  return sign.charCodeAt(0).toString(16).padStart(digits, '0')
}

/** Colours of a task's log, which stay, or what a terminal would obey; in bytes of UTF-8, read as Latin-1. */
// oxlint-disable-next-line no-control-regex -- as above
const IN_BYTES = /\u001b\[[\d;:]*m|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]|\u00c2[\u0080-\u009f]/g
/** What may be the beginning of one of those. */
// oxlint-disable-next-line no-control-regex -- as above
const BEGUN = /(?:\u001b(?:\[[\d;:]{0,64})?|\u00c2)$/

/**
 * Files and logs on a terminal. A task writes what it likes: it may colour its lines, and do nothing else to the terminal
 * of who reads them, such as set its title, answer in the reader's place, or hide what it has written.
 */
export class ShownBytes {
  #begun = ''

  /** What of the bytes so far can be shown. */
  take(bytes: Buffer): Buffer {
    const text = this.#begun + bytes.toString('latin1')
    this.#begun = BEGUN.exec(text)?.[0] ?? ''
    return shown(text.slice(0, text.length - this.#begun.length))
  }

  /** What was held back, since it might have been the beginning of something. */
  rest(): Buffer {
    const text = this.#begun
    this.#begun = ''
    return shown(text)
  }
}

function shown(text: string): Buffer {
  const escapes = text.replaceAll(IN_BYTES, (found) =>
    found.length > 2 ? found : `\\x${hexOf(found.at(-1) ?? '', 2)}`,
  )
  return Buffer.from(escapes, 'latin1')
}
