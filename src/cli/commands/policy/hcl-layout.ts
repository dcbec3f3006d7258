/**
 * HCL laid out anew: two spaces for each open bracket, equals signs of neighbouring lines below each other, no more than
 * one empty line at a time. Only white space changes; comments, strings and heredocs stay as they are.
 */

/** What one line does to the lines behind it. */
interface Scan {
  readonly opened: number
  /** Brackets at its beginning that close earlier ones: they stand further left. */
  readonly closedFirst: number
  /** A heredoc, or a comment of several lines, that begins in it: what ends that. */
  readonly verbatimUntil: RegExp | undefined
  /** Where its one equals sign is, when it is `name = value` as a whole. */
  readonly equalsAt: number | undefined
}

interface Line {
  readonly text: string
  readonly equalsAt: number | undefined
}

export function laidOut(text: string): string {
  const lines: Line[] = []
  let depth = 0
  let until: RegExp | undefined
  for (const raw of text.replaceAll('\r\n', '\n').split('\n')) {
    if (until) {
      lines.push({ text: raw, equalsAt: undefined })
      if (until.test(raw)) until = undefined
      continue
    }
    const trimmed = raw.trim()
    const scan = scanned(trimmed)
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

function scanned(line: string): Scan {
  let opened = 0
  let closedFirst = 0
  let equals: number | undefined
  let verbatimUntil: RegExp | undefined
  for (let at = 0; at < line.length; at++) {
    const sign = line[at] ?? ''
    const two = line.slice(at, at + 2)
    if (sign === '#' || two === '//') break
    if (two === '/*') {
      const end = line.indexOf('*/', at + 2)
      if (end < 0) verbatimUntil = /\*\//
      if (end < 0) break
      at = end + 1
    } else if (sign === '"') at = endOfString(line, at)
    else if (sign === '{' || sign === '[') opened++
    else if (sign === '}' || sign === ']') {
      opened--
      if (/^[\]}, \t]*$/.test(line.slice(0, at))) closedFirst++
    } else if (sign === '=') equals ??= at
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

/** Where the string that begins at `from` ends; the end of the line when it does not. */
function endOfString(line: string, from: number): number {
  for (let at = from + 1; at < line.length; at++) {
    if (line[at] === '\\') at++
    else if (line[at] === '"') return at
  }
  return line.length
}

/** One space on either side of the equals sign, and as many before it as the longest of its neighbours needs. */
function aligned(lines: readonly Line[]): string[] {
  const done: string[] = []
  let group: Line[] = []
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
