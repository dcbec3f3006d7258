/**
 * Formats HCL with two spaces for each open bracket, aligned equals signs of adjacent lines, and no consecutive empty lines. Only white
 * space changes; comments, strings and heredocs stay as they are. The web interface runs it in the browser.
 */
import { type ObjectNode, parseText } from './hcl.ts'

/** JSON stays as it is. Undefined if the formatted text would have another meaning. Throws an HclError for a text that is neither. */
export function formatText(before: string): string | undefined {
  const isJson = /^\uFEFF?\s*\{/.test(before)
  const after = isJson ? before : formatHcl(before)
  return hasSameMeaning(before, after) ? after : undefined
}

/** The formatter knows less of HCL than the parser, so both texts are parsed and compared. */
function hasSameMeaning(before: string, after: string): boolean {
  return JSON.stringify(withoutPositions(parseText(before))) === JSON.stringify(withoutPositions(parseText(after)))
}

const POSITION_KEYS = new Set(['at', 'keyAt', 'bodyAt'])

function withoutPositions(node: ObjectNode): unknown {
  return JSON.parse(JSON.stringify(node, (key, value: unknown) => (POSITION_KEYS.has(key) ? undefined : value)))
}

/** Properties of one line that affect the following lines. */
interface LineScan {
  /** Opening minus closing brackets. */
  readonly opened: number
  /** Closing brackets at its start, which reduce its own indentation. */
  readonly closedFirst: number
  /** End of a heredoc or block comment that starts in the line. */
  readonly verbatimUntil: RegExp | undefined
  /** Index of the equals sign of a line `name = value`. */
  readonly equalsAt: number | undefined
}

interface FormattedLine {
  readonly text: string
  readonly equalsAt: number | undefined
}

export function formatHcl(text: string): string {
  const lines: FormattedLine[] = []
  let depth = 0
  let until: RegExp | undefined
  for (const raw of text.replaceAll('\r\n', '\n').split('\n')) {
    if (until) {
      lines.push({ text: raw, equalsAt: undefined })
      if (until.test(raw)) until = undefined
      continue
    }
    const trimmed = raw.trim()
    const scan = scanLine(trimmed)
    const indent = '  '.repeat(Math.max(0, depth - scan.closedFirst))
    if (trimmed !== '' || (lines.at(-1)?.text ?? '') !== '') {
      const equalsAt = scan.equalsAt === undefined ? undefined : indent.length + scan.equalsAt
      lines.push({ text: trimmed === '' ? '' : indent + trimmed, equalsAt })
    }
    depth = Math.max(0, depth + scan.opened)
    until = scan.verbatimUntil
  }
  return `${aligned(lines).join('\n').trim()}\n`
}

const HEREDOC = /<<-?([\p{L}_][\p{L}\p{N}_]*)[ \t]*$/uy
const NAME = /^(?:[\p{L}_][\p{L}\p{N}_.-]*|"(?:\\.|[^"\\])*")[ \t]*$/u

function scanLine(line: string): LineScan {
  let opened = 0
  let closedFirst = 0
  let equals: number | undefined
  let verbatimUntil: RegExp | undefined
  for (let at = 0; at < line.length; at++) {
    const character = line[at] ?? ''
    const two = line.slice(at, at + 2)
    if (character === '#' || two === '//') break
    if (two === '/*') {
      const end = line.indexOf('*/', at + 2)
      if (end < 0) verbatimUntil = /\*\//
      if (end < 0) break
      at = end + 1
    } else if (character === '"') at = endOfString(line, at)
    else if (character === '{' || character === '[') opened++
    else if (character === '}' || character === ']') {
      opened--
      if (/^[\]}, \t]*$/.test(line.slice(0, at))) closedFirst++
    } else if (character === '=') equals ??= at
    else if (two === '<<') {
      HEREDOC.lastIndex = at
      const word = HEREDOC.exec(line)?.[1]
      if (word !== undefined) verbatimUntil = new RegExp(`^[ \\t]*${word}[ \\t]*$`, 'u')
      if (word !== undefined) break
    }
  }
  const isAttribute = equals !== undefined && opened === 0 && NAME.test(line.slice(0, equals))
  return { opened, closedFirst, verbatimUntil, equalsAt: isAttribute ? equals : undefined }
}

/** Index of the closing quote of the string at `from`; the end of the line without one. */
function endOfString(line: string, from: number): number {
  for (let at = from + 1; at < line.length; at++) {
    if (line[at] === '\\') at++
    else if (line[at] === '"') return at
  }
  return line.length
}

/** Aligns the equals signs of consecutive attributes. */
function aligned(lines: readonly FormattedLine[]): string[] {
  const done: string[] = []
  let group: FormattedLine[] = []
  const close = () => {
    const names = group.map(({ equalsAt = 0, text }) => text.slice(0, equalsAt).trimEnd())
    const width = Math.max(0, ...names.map((name) => name.length))
    group.forEach(({ equalsAt = 0, text }, at) => {
      done.push(`${(names[at] ?? '').padEnd(width)} = ${text.slice(equalsAt + 1).trim()}`.trimEnd())
    })
    group = []
  }
  for (const line of lines) {
    if (line.equalsAt !== undefined) group.push(line)
    else {
      close()
      done.push(line.text)
    }
  }
  close()
  return done
}
