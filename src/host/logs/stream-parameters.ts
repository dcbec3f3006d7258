/**
 * What `fs/logs` and `fs/stream` take beyond the compatible system: resuming, beginning by lines or time, searching,
 * and ending with the task. A request without any of them is served as if they did not exist.
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

/** The value of `cursor=`, not yet read. */
export interface CursorText {
  readonly text: string
  /** Bytes that were received behind the place; 0 unless the stream was plain. */
  readonly received: number
}

/** A cursor that is asked for with an empty value, to begin with. */
const FIRST: CursorText = { text: '', received: 0 }

/** A `+` in a query is a space by the time it gets here. */
const SEPARATED = /^([\w-]+)(?:[~+ ](\d{1,16}))?$/

const cursor: Field<CursorText | undefined> = {
  in: 'query',
  type: 'string',
  description:
    'Resumable stream: empty to begin one, then the Cursor of the last frame; plain: the X-Outpost-Cursor header, "~" and the bytes received since',
  required: false,
  parse(raw, name) {
    const given = raw.query.filter(([key]) => key === name)
    if (given.length > 1) throw new Refusal('invalid_request', `query parameter "${name}" is given twice, give it once`)
    const value = given[0]?.[1]
    if (value === undefined) return undefined
    if (value === '') return FIRST
    const match = SEPARATED.exec(value)
    if (!match) {
      throw new Refusal(
        'invalid_request',
        'the cursor is no cursor: give it as it was received, for a plain stream with "~" and the bytes received behind it',
      )
    }
    return { text: match[1] ?? '', received: Number(match[2] ?? 0) }
  },
}

/** The place that a cursor names; undefined when none was given, or an empty one. */
function decodeCursorText(given: CursorText | undefined, scope: number): ResumeCursor | undefined {
  return given === undefined || given.text === '' ? undefined : decodeCursor(given.text, scope)
}

const lineCount: Field<number | undefined> = {
  ...queryInteger({ description: 'Begin so many lines before the end', fallback: undefined }),
  parse(raw, name) {
    const lines = queryInteger({ description: '', fallback: undefined }).parse(raw, name)
    if (lines === undefined || lines >= 0) return lines
    throw new Refusal('invalid_request', 'tail_lines must be 0 or more')
  },
}

/** The streamOptionFields that both endpoints have, as fields of their input. */
export const streamOptionFields = {
  cursor,
  tail_lines: lineCount,
  since: queryText({
    description: 'Begin at this time: RFC 3339, or a duration such as 10m for that long ago',
    fallback: undefined,
  }),
  end_when_done: queryBoolean({
    description: 'End once the task is dead and everything has been sent',
    fallback: false,
  }),
  grep: queryText({
    description: 'Only lines that match: a regular expression in the syntax of RE2, decided on the host',
    fallback: undefined,
  }),
  grep_invert: queryBoolean({ description: 'Only lines that do not match grep', fallback: false }),
  grep_context: queryInteger({ description: 'Lines before and after each that grep gives', fallback: 0 }),
}

const streamOptionsSchema = schema(streamOptionFields)
export type StreamOptions = ReturnType<typeof streamOptionsSchema.parse>

/** True when something else than origin and offset says where to begin. */
export function hasStartPosition(raw: RawInput): boolean {
  return raw.query.some(
    ([key, value]) => key === 'cursor' || ((key === 'tail_lines' || key === 'since') && value !== ''),
  )
}

/** Where a request begins, all parameters considered. Throws a Refusal for a cursor that is none of this `scope`. */
export function startRequestOf(input: StreamOptions & { origin: string; offset: number }, scope: number): StartRequest {
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

/** Where a resumable plain stream begins, and whether that is where it was to go on. */
export function resumeHeaders(cursorText: string, notice: ResumeEvent | undefined): Record<string, string> {
  return {
    'X-Outpost-Cursor': cursorText,
    ...(notice === undefined ? {} : { 'X-Outpost-Event': `file ${notice}` }),
    'Access-Control-Expose-Headers': 'X-Outpost-Cursor, X-Outpost-Event',
  }
}

/** Which lines are asked for; undefined when bytes are given as they are. Throws a Refusal for a faulty pattern. */
export function grepOptionsOf(input: StreamOptions): GrepOptions | undefined {
  const { grep, grep_invert: invert, grep_context: context } = input
  if (grep === undefined) {
    if (!invert && context === 0) return undefined
    throw new Refusal('invalid_request', 'grep_invert and grep_context say how lines are chosen by grep: give grep too')
  }
  if (context < 0 || context > CONTEXT_LINES_MAX) {
    throw new Refusal('invalid_request', `grep_context must be from 0 to ${CONTEXT_LINES_MAX}`)
  }
  return { pattern: compileLinePattern(grep), invert, context }
}
