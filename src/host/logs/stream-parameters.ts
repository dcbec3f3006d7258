/**
 * Query parameters of `fs/logs` and `fs/stream` beyond Nomad's: resume, start by lines or time, line selection, end with the
 * task. Requests without them behave as in Nomad.
 */
import { Refusal } from '../../platform/errors.ts'
import { type Field, queryBoolean, queryInteger, queryText, type RawInput, schema } from '../../platform/schema.ts'
import { type ResumeCursor, decodeCursor } from './locate/resume-cursor.ts'
import { CONTEXT_LINES_MAX } from './search/line-filter.ts'
import { compileLinePattern } from './search/line-pattern.ts'
import type { GrepOptions } from './search/line-stage.ts'
import type { StartRequest } from './log-selection.ts'
import { parseSince } from './locate/log-since.ts'
import type { ResumeEvent } from './follow/stream-source.ts'

/** The value of `cursor=`, not decoded. */
export interface CursorText {
  readonly text: string
  /** Bytes received after the cursor; 0 unless the stream was plain. */
  readonly received: number
}

/** An empty value starts a resumable stream. */
const NEW_STREAM: CursorText = { text: '', received: 0 }

/** An unescaped `+` of a query arrives as a space. */
const SEPARATED = /^([\w-]+)(?:[~+ ](\d{1,16}))?$/

const cursor: Field<CursorText | undefined> = {
  in: 'query',
  type: 'string',
  description:
    'Resumable stream: empty to start one, then the Cursor of the last frame; plain: the X-Outpost-Cursor header, "~" and the number of bytes received since',
  required: false,
  parse(raw, name) {
    const given = raw.query.filter(([key]) => key === name)
    if (given.length > 1) throw new Refusal('invalid_request', `query parameter "${name}" is set more than once`)
    const value = given[0]?.[1]
    if (value === undefined) return undefined
    if (value === '') return NEW_STREAM
    const match = SEPARATED.exec(value)
    if (!match) {
      throw new Refusal(
        'invalid_request',
        'malformed cursor: send it as received, for a plain stream followed by "~" and the number of bytes received since',
      )
    }
    return { text: match[1] ?? '', received: Number(match[2] ?? 0) }
  },
}

/** Undefined without a cursor, or for an empty one. */
function decodeCursorText(given: CursorText | undefined, scope: number): ResumeCursor | undefined {
  return given === undefined || given.text === '' ? undefined : decodeCursor(given.text, scope)
}

const lineCount: Field<number | undefined> = {
  ...queryInteger({ description: 'Start this number of lines before the end', fallback: undefined }),
  parse(raw, name) {
    const lines = queryInteger({ description: '', fallback: undefined }).parse(raw, name)
    if (lines === undefined || lines >= 0) return lines
    throw new Refusal('invalid_request', 'tail_lines must be 0 or more')
  },
}

/** The common fields of both endpoints. */
export const streamOptionFields = {
  cursor,
  tail_lines: lineCount,
  since: queryText({
    description: 'Start at this time: RFC 3339, or a duration before now such as 10m',
    fallback: undefined,
  }),
  end_when_done: queryBoolean({
    description: 'End the stream when the task is dead and everything was sent',
    fallback: false,
  }),
  grep: queryText({
    description: 'Only lines that match: a regular expression in RE2 syntax',
    fallback: undefined,
  }),
  grep_invert: queryBoolean({ description: 'Only lines that do not match grep', fallback: false }),
  grep_context: queryInteger({ description: 'Number of lines before and after each match', fallback: 0 }),
}

const streamOptionsSchema = schema(streamOptionFields)
export type LogStreamOptions = ReturnType<typeof streamOptionsSchema.parse>

/** True if a parameter other than origin and offset sets the start position. */
export function hasStartPosition(raw: RawInput): boolean {
  return raw.query.some(
    ([key, value]) => key === 'cursor' || ((key === 'tail_lines' || key === 'since') && value !== ''),
  )
}

/** Throws a Refusal for a cursor of another `scope`. */
export function startRequestOf(
  input: LogStreamOptions & { origin: string; offset: number },
  scope: number,
): StartRequest {
  const { origin, offset, tail_lines: tailLines, since } = input
  return {
    origin,
    offset,
    cursor: decodeCursorText(input.cursor, scope),
    received: input.cursor?.received ?? 0,
    tailLines,
    sinceMs: since === undefined ? undefined : parseSince(since, Date.now()),
  }
}

/** Response headers of a resumable plain stream: its start position, and an event if that is not the requested one. */
export function resumeHeaders(cursorText: string, notice: ResumeEvent | undefined): Record<string, string> {
  return {
    'X-Outpost-Cursor': cursorText,
    ...(notice === undefined ? {} : { 'X-Outpost-Event': `file ${notice}` }),
    'Access-Control-Expose-Headers': 'X-Outpost-Cursor, X-Outpost-Event',
  }
}

/** Undefined without line selection. Throws a Refusal for an invalid pattern. */
export function grepOptionsOf(input: LogStreamOptions): GrepOptions | undefined {
  const { grep, grep_invert: invert, grep_context: context } = input
  if (grep === undefined) {
    if (!invert && context === 0) return undefined
    throw new Refusal('invalid_request', 'grep_invert and grep_context need grep')
  }
  if (context < 0 || context > CONTEXT_LINES_MAX) {
    throw new Refusal('invalid_request', `grep_context must be from 0 to ${CONTEXT_LINES_MAX}`)
  }
  return { pattern: compileLinePattern(grep), invert, context }
}
