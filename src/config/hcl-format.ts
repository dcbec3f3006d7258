/**
 * Formats HCL with two spaces for each open bracket, aligned equals signs of adjacent lines, and no consecutive empty lines. Only white
 * space changes; comments, strings and heredocs stay as they are. Takes linear time, also for hostile texts.
 */
import { type ObjectNode, parseText } from './hcl.ts'
import { DEPTH_MAX } from './tree.ts'

/** A longer name moves no equals sign of other lines. Bounds the length of the result. */
const ALIGNED_NAME_MAX = 64

/** JSON stays as it is. Undefined if the formatted text would have another meaning. Throws an HclError for a text that is neither. */
export function formatText(before: string): string | undefined {
  const isJson = /^\uFEFF?\s*\{/.test(before)
  const meaning = meaningOf(before)
  if (isJson) return before
  // The formatter knows less of HCL than the parser, so both texts are parsed and compared.
  const after = formatHcl(before)
  return meaningOf(after) === meaning ? after : undefined
}

const POSITION_KEYS = new Set(['at', 'keyAt', 'bodyAt'])

function meaningOf(text: string): string {
  const tree: ObjectNode = parseText(text)
  return JSON.stringify(tree, (key, value: unknown) => (POSITION_KEYS.has(key) ? undefined : value))
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
    const indent = '  '.repeat(Math.min(Math.max(0, depth - scan.closedFirst), DEPTH_MAX))
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
const CLOSING = new Set(']}, \t')
const NAME = /^(?:[\p{L}_][\p{L}\p{N}_.-]*|"(?:\\.|[^"\\])*")[ \t]*$/u

function scanLine(line: string): LineScan {
  let opened = 0
  let closedFirst = 0
  let equals: number | undefined
  let verbatimUntil: RegExp | undefined
  /** Only closing brackets were before. */
  let isStart = true
  for (let at = 0; at < line.length; at++) {
    const character = line[at] ?? ''
    const two = line.slice(at, at + 2)
    isStart &&= CLOSING.has(character)
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
      if (isStart) closedFirst++
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
    const lengths = names.map((name) => name.length).filter((length) => length <= ALIGNED_NAME_MAX)
    const width = lengths.reduce((longest, length) => Math.max(longest, length), 0)
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
