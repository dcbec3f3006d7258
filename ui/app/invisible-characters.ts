/** Texts that tasks, hosts and users chose: shown so that they cannot imitate another text. */

/** Characters that join or choose emoji and letters of some scripts; after others they are only invisible. */
const JOINERS = String.raw`[\u200c\u200d\ufe0e\ufe0f]`
/**
 * Control, separator and formatting characters, those that are shown as nothing, and the marks of a letter beyond those that languages use:
 * they are drawn above and below it, over other text.
 */
const INVISIBLE = new RegExp(
  String.raw`[\p{Cc}\p{Zl}\p{Zp}\u2800]|(?!${JOINERS})[\p{Cf}\p{DI}]|(?<=[\0-\x7f])(?!\ufe0f\u20e3)${JOINERS}|(?<=\p{M}{5})\p{M}`,
  'gu',
)

/** Text with its invisible characters written as `\u{202e}`. */
export function visibleText(text: string): string {
  return text.replaceAll(INVISIBLE, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`)
}

export interface InvisibleCharacter {
  readonly line: number
  /** Such as `U+202E`. */
  readonly name: string
}

/** The first character of a text with lines that a text field does not show, or that makes it show others in another order. */
export function firstInvisible(text: string): InvisibleCharacter | undefined {
  for (const { 0: character, index } of text.matchAll(INVISIBLE)) {
    if (/[\n\t\r]/.test(character)) continue
    const code = (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')
    return { line: text.slice(0, index).split('\n').length, name: `U+${code}` }
  }
  return undefined
}

/** A name for the user's disk: a file manager shows what is invisible as badly as a page does. */
export function savedName(name: string): string {
  return name.replaceAll(INVISIBLE, '_').replaceAll(/[/\\]/g, '_')
}

/** Text with lines: line feeds and tabs stay. */
export function visibleLines(text: string): string {
  return text.replaceAll(INVISIBLE, (character) => {
    if (character === '\n' || character === '\t') return character
    return character === '\r' ? '' : `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`
  })
}
