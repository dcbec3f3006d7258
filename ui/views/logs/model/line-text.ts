/** How the text of a line is shown: pieces with the colours of terminal escapes or of JSON, and with the matches of a search. */
import { namedColors, parseAnsiSequences, type Color, type ParseToken } from 'ansi-sequence-parser'
import { hasEscapes, visible, withoutEscapes, withoutOtherEscapes } from './escapes.ts'
import type { TextPattern } from './text-pattern.ts'

/** More of a line is shown when it is opened. */
export const SHOWN_CHARS_MAX = 4000
const OPENED_CHARS_MAX = 200_000
/** A page with more elements in a line is slow; the rest has no colours. */
const PIECES_MAX = 5000
/** Of formatted JSON. Each level indents all that it contains. */
const JSON_LINES_MAX = 5000
const JSON_DEPTH_MAX = 100
const TAB = 8

export interface TextPiece {
  readonly text: string
  readonly className: string
  /** Inline colours of escapes with numbers: values of `rgb()` that this file builds. */
  readonly color?: string | undefined
  readonly background?: string | undefined
  readonly isMatch: boolean
}

interface StyledText {
  readonly text: string
  readonly className: string
  readonly color?: string | undefined
  readonly background?: string | undefined
}

/** The text as it is shown without colours. */
export function shownText(text: string): string {
  return visible(withoutEscapes(text))
}

/** The pieces of a line; `pattern` marks matches. */
export function piecesOf(line: string, pattern: TextPattern | undefined, isOpened = false): readonly TextPiece[] {
  const charsMax = isOpened ? OPENED_CHARS_MAX : SHOWN_CHARS_MAX
  const text = line.length > charsMax ? line.slice(0, charsMax) : line
  const styled = hasEscapes(text) ? ansiPieces(text) : isJson(text) ? jsonPieces(text) : [plain(text)]
  const pieces = marked(limited(styled).map(visiblePiece), pattern)
  const hidden = line.length - text.length
  return hidden === 0
    ? pieces
    : [...pieces, { text: ` … ${hidden} more characters`, className: 'log-hidden', isMatch: false }]
}

/** Columns of a line in a font of one width; wide characters count twice. */
export function columnsOf(text: string): number {
  const line = text.length > SHOWN_CHARS_MAX ? text.slice(0, SHOWN_CHARS_MAX) : text
  const shown = withoutEscapes(line)
  if (!/[^ -~]/.test(shown)) return shown.length
  let columns = 0
  for (const char of shown) {
    if (char === '\t') columns += TAB - (columns % TAB)
    else columns += isWide(char.codePointAt(0) ?? 0) ? 2 : 1
  }
  return columns
}

function isWide(code: number): boolean {
  return (
    (code >= 0x1100 && code <= 0x115f) ||
    (code >= 0x2e80 && code <= 0xa4cf) ||
    (code >= 0xac00 && code <= 0xd7a3) ||
    (code >= 0xf900 && code <= 0xfaff) ||
    (code >= 0xfe30 && code <= 0xfe6f) ||
    (code >= 0xff00 && code <= 0xff60) ||
    (code >= 0x1f300 && code <= 0x1faff)
  )
}

function limited(pieces: readonly StyledText[]): readonly StyledText[] {
  if (pieces.length <= PIECES_MAX) return pieces
  const rest = pieces.slice(PIECES_MAX).map(({ text }) => text)
  return [...pieces.slice(0, PIECES_MAX), plain(rest.join(''))]
}

function visiblePiece(piece: StyledText): StyledText {
  return { ...piece, text: visible(piece.text) }
}

function plain(text: string): StyledText {
  return { text, className: '' }
}

function ansiPieces(text: string): StyledText[] {
  return parseAnsiSequences(withoutOtherEscapes(text)).map(styleOf)
}

function styleOf({ background, decorations, foreground, value }: ParseToken): StyledText {
  const [front, back] = decorations.has('reverse') ? [background, foreground] : [foreground, background]
  const names = [...decorations].map((name) => `ansi-${name}`)
  const [frontName, backName] = [nameOf(front), nameOf(back)]
  if (frontName !== undefined) names.push(`ansi-${frontName}`)
  if (backName !== undefined) names.push(`ansi-on-${backName}`)
  return { text: value, className: names.join(' '), color: rgbOf(front), background: rgbOf(back) }
}

/** A bright colour is shown as the normal one: both have enough contrast on the background of the page. */
function nameOf(color: Color | null): string | undefined {
  if (color?.type === 'named') return color.name.replace('bright', '').toLowerCase()
  return color?.type === 'table' && color.index < 16 ? namedColors[color.index % 8] : undefined
}

/** The colour of a number: of the table of 256, or of 24 bits. Named colours have classes. */
function rgbOf(color: Color | null): string | undefined {
  if (color?.type === 'rgb') return `rgb(${color.rgb.map((part) => Math.min(255, part)).join(' ')})`
  if (color?.type !== 'table' || color.index < 16) return undefined
  const { index } = color
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10
    return `rgb(${grey} ${grey} ${grey})`
  }
  const cube = index - 16
  return `rgb(${levelIn(cube / 36)} ${levelIn(cube / 6)} ${levelIn(cube)})`
}

/** The last digit, to the base 6, as a part of a colour. */
function levelIn(cube: number): number {
  const digit = Math.floor(cube) % 6
  return digit === 0 ? 0 : 55 + digit * 40
}

export function isJson(text: string): boolean {
  return text.startsWith('{"') && text.endsWith('}')
}

/** A string without an end takes the rest of the text, so that no part is searched twice. */
const JSON_TOKEN = /("(?:[^"\\]|\\[^])*(?:"|\\?$))(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)/g

function jsonPieces(text: string): StyledText[] {
  const pieces: StyledText[] = []
  let from = 0
  for (const match of text.matchAll(JSON_TOKEN)) {
    const [token, string, colon] = match
    if (pieces.length > PIECES_MAX) break
    if (match.index > from) pieces.push({ text: text.slice(from, match.index), className: 'json-sign' })
    const className = colon !== undefined ? 'json-key' : string !== undefined ? 'json-text' : 'json-value'
    pieces.push({ text: token, className })
    from = match.index + token.length
  }
  if (from < text.length) pieces.push({ text: text.slice(from), className: 'json-sign' })
  return pieces
}

/** The JSON of a line, with one member in each line; undefined if it is not JSON. */
export function formattedJson(
  text: string,
  pattern: TextPattern | undefined,
): readonly (readonly TextPiece[])[] | undefined {
  if (!isJson(text) || text.length > OPENED_CHARS_MAX || isDeep(text)) return undefined
  try {
    const lines = JSON.stringify(JSON.parse(text), null, 2).split('\n', JSON_LINES_MAX)
    return lines.map((line) => marked(jsonPieces(line).map(visiblePiece), pattern))
  } catch {
    return undefined
  }
}

/** Brackets in strings count as well: then the line is shown as it is. */
function isDeep(text: string): boolean {
  let depth = 0
  for (let at = 0; at < text.length; at++) {
    const char = text[at]
    if (char === '{' || char === '[') depth++
    else if (char === '}' || char === ']') depth--
    if (depth > JSON_DEPTH_MAX) return true
  }
  return false
}

/** Splits pieces where a match begins or ends. */
function marked(pieces: readonly StyledText[], pattern: TextPattern | undefined): readonly TextPiece[] {
  const matches = pattern?.matches(pieces.map(({ text }) => text).join('')) ?? []
  if (matches.length === 0) return pieces.map((piece) => ({ ...piece, isMatch: false }))
  const result: TextPiece[] = []
  let at = 0
  let next = 0
  for (const piece of pieces) {
    const end = at + piece.text.length
    let from = at
    while (from < end) {
      while (next < matches.length && (matches[next]?.[1] ?? 0) <= from) next++
      const [start, stop] = matches[next] ?? [end, end]
      const isMatch = start <= from
      const to = Math.min(end, isMatch ? stop : start)
      result.push({ ...piece, text: piece.text.slice(from - at, to - at), isMatch })
      from = to
    }
    at = end
  }
  return result
}

const BAD =
  /\b(?:ERROR|ERR|FATAL|PANIC|CRITICAL|SEVERE|EMERG(?:ENCY)?|Traceback|panic)\b|\b\w*(?:Error|Exception)\b|"(?:level|severity|lvl)":\s*"(?:error|fatal|panic|critical|crit)"|\blevel=(?:error|fatal|panic)\b|^[EF]\d{4} /
const WARNING = /\b(?:WARN|WARNING)\b|"(?:level|severity|lvl)":\s*"warn(?:ing)?"|\blevel=warn(?:ing)?\b|^W\d{4} /
const LEVEL_CHARS = 300

/** The level that a line names at its beginning. */
export function levelOf(line: string): 'bad' | 'warning' | undefined {
  const head = withoutEscapes(line.slice(0, LEVEL_CHARS))
  if (BAD.test(head)) return 'bad'
  return WARNING.test(head) ? 'warning' : undefined
}

/** What `e` searches. */
export const ERROR_EXPRESSION = String.raw`\berr(or)?\b|error|exception|fatal|panic|critical|failed|failure|traceback`
