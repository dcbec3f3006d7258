/** Escape sequences of terminals (ECMA-48), and characters that have no shape of their own. */

const ESC = '\u001b'
const BEL = '\u0007'
const OTHER_SEQUENCE = String.raw`${ESC}\][^${BEL}${ESC}]*(?:${BEL}|${ESC}\\)`
const ALL = new RegExp(String.raw`${ESC}\[[\d;?]*[ -/]*[@-~]|${OTHER_SEQUENCE}`, 'g')
/** Colours end with `m`. */
const WITHOUT_COLOURS = new RegExp(String.raw`${ESC}\[[\d;?]*[ -/]*[@-ln-~]|${OTHER_SEQUENCE}`, 'g')
const INCOMPLETE = new RegExp(String.raw`${ESC}(?!\[[\d;]{0,100}m)`, 'g')
/** Control characters except the tab, and marks of direction: they would change how the line or its neighbours look. */
const INVISIBLE = /(?!\t)\p{Cc}|[\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu

export function hasEscapes(text: string): boolean {
  return text.includes(ESC)
}

/** The text without escape sequences. */
export function withoutEscapes(text: string): string {
  return hasEscapes(text) ? text.replaceAll(ALL, '') : text
}

/**
 * The text with complete escape sequences for colours only. Others would move a cursor that a page does not have. One that is not complete stays
 * as a sign: the parser of colours would take all text up to the next `m` for a part of it.
 */
export function withoutOtherEscapes(text: string): string {
  return text.replaceAll(WITHOUT_COLOURS, '').replaceAll(INCOMPLETE, '\u241b')
}

/** Shows characters without a shape as signs. */
export function visible(text: string): string {
  return text.replaceAll(INVISIBLE, (char) => {
    const code = char.charCodeAt(0)
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? '\u2421' : '\ufffd'
  })
}
