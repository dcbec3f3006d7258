/** How a recorded answer becomes the expected one: small functions that tables of differences are made of. */
import type { Comparable } from './comparable.ts'
import type { Difference } from './judge.ts'
import { RECORDED_ALLOC_DIR, type RecordedRow } from './recording.ts'

type Turn = Difference['turn']

export const PLAIN = 'content-type: text/plain; charset=utf-8'
export const NOSNIFF = 'x-content-type-options: nosniff'
const VARIES = ['vary: Accept-Encoding', 'vary: Origin']

export const all =
  (...turns: readonly Turn[]): Turn =>
  (answer, row) =>
    turns.reduce((turned, turn) => turn(turned, row), answer)

export const status =
  (value: number): Turn =>
  (answer) => ({ ...answer, status: value })

export const body =
  (text: string): Turn =>
  (answer) => ({ ...answer, body: text })

export const bodyOf =
  (change: (text: string, row: RecordedRow) => string): Turn =>
  (answer, row) => ({ ...answer, body: change(answer.body, row) })

export const without =
  (...starts: readonly string[]): Turn =>
  (answer) => ({ ...answer, headers: answer.headers.filter((line) => !starts.some((start) => line.startsWith(start))) })

export const withLines =
  (...lines: readonly string[]): Turn =>
  (answer) => ({ ...answer, headers: [...new Set([...answer.headers, ...lines])].sort() })

export const only =
  (condition: (answer: Comparable, row: RecordedRow) => boolean, turn: Turn): Turn =>
  (answer, row) =>
    condition(answer, row) ? turn(answer, row) : answer

export const contentType = (value: string): Turn => all(without('content-type: '), withLines(`content-type: ${value}`))

/** A plain error of ours: no header that belongs to content, and a text that is not empty. */
export const refusal = (code: number, text?: string): Turn =>
  all(
    (answer) => ({ status: code, headers: [PLAIN, ...VARIES, NOSNIFF].sort(), body: answer.body, end: 'ended' }),
    text === undefined ? (answer) => answer : body(text),
  )

/** The same allocation's file served as content, with all that goes with it. */
export const content = (text: string): Turn =>
  all(
    status(200),
    body(text),
    withLines(
      PLAIN,
      NOSNIFF,
      "content-security-policy: default-src 'none'; style-src 'unsafe-inline'; sandbox",
      'x-xss-protection: 1; mode=block',
    ),
  )

/** The path a request asks for, decoded. */
export function askedPath(row: RecordedRow): string {
  return new URL(row.path, 'http://x').searchParams.get('path') ?? '/'
}

/** The node a request names in its query. */
export function askedNode(row: RecordedRow): string {
  return new URL(row.path, 'http://x').searchParams.get('node_id') ?? ''
}

/** The allocation a request names. */
export function askedAllocation(row: RecordedRow): string {
  const path = new URL(row.path, 'http://x').pathname
  return /\/client\/(?:fs\/[a-z]+|allocation)\/(.*?)(?:\/(?:stats|gc))?$/.exec(path)?.[1] ?? ''
}

/** Error texts without the paths of the host: the path as the caller wrote it stands in their place. */
export const ownPaths: Turn = bodyOf((text, row) => {
  const at = text.indexOf(RECORDED_ALLOC_DIR)
  if (at < 0) return text
  const host = /^[^:]*/.exec(text.slice(at))?.[0] ?? ''
  return text.replace(host, askedPath(row))
})

function nameOf(entry: unknown): string {
  return typeof entry === 'object' && entry !== null && 'Name' in entry ? String(entry.Name) : ''
}

/** A listing with one more plain file in it. */
export const listed = (name: string): Turn =>
  bodyOf((text) => {
    const mark = text.indexOf(' ')
    const entries: unknown = JSON.parse(text.slice(mark + 1))
    if (!Array.isArray(entries)) return text
    const more = { FileMode: '-rw-r--r--', IsDir: false, ModTime: 'a time', Name: name, Size: 0 }
    const sorted = [...entries, more].sort((a: unknown, b: unknown) => (nameOf(a) < nameOf(b) ? -1 : 1))
    return `${text.slice(0, mark)} ${JSON.stringify(sorted)}`
  })

/** What stat says of the root of an allocation. */
export const facts = (mode: string, type: string): Turn =>
  bodyOf((_, row) => {
    const name = askedAllocation(row)
    const root = { ContentType: type, FileMode: mode, IsDir: true, ModTime: 'a time', Name: name, Size: 0 }
    return `compact ${JSON.stringify(root)}`
  })

export const isError = (answer: Comparable): boolean => answer.status >= 400
