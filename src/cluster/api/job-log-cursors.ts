/**
 * Cursors of a resumed job log: one for each allocation that the client has received a frame of, as `<allocation ID>.<cursor>`. They are
 * query parameters, or for many allocations members of the body, because the head of a request is limited. The cursor itself belongs to
 * the node: it is passed on, and the node refuses one that is not its own.
 */
import { Refusal } from '../../platform/errors.ts'
import type { Field, RawInput } from '../../platform/schema.ts'

/** More than the allocations that one connection follows (`job-logs.ts`), because some may have ended. */
const CURSORS_MAX = 10_000
/**
 * Cursors of a job of that size. No more than any body may have without a token (`http/request.ts`): the caller is authorized after the
 * body was read.
 */
export const CURSORS_BODY_BYTES_MAX = 1 << 20

const CURSOR = /^([\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12})\.([\w-]{1,16384})$/

/** By allocation ID; empty for a new resumable stream. */
export type JobLogCursors = ReadonlyMap<string, string>

/** Undefined without the parameter: frames have no cursors. */
export const cursorField: Field<JobLogCursors | undefined> = {
  in: 'query',
  type: 'string',
  description:
    'Resumable stream: empty to start one; to resume, ALLOCATION.CURSOR with the last cursor of each allocation, repeated, or a POST of {"Cursors": ["ALLOCATION.CURSOR", …]}',
  required: false,
  parse(raw, name) {
    const given = raw.query.flatMap(([key, value]) => (key === name ? [value] : []))
    const texts = [...given.filter((text) => text !== ''), ...cursorsIn(raw)]
    if (given.length === 0 && texts.length === 0) return undefined
    if (texts.length > CURSORS_MAX) throw new Refusal('invalid_request', `at most ${CURSORS_MAX} cursors are accepted`)
    const cursors = new Map<string, string>()
    for (const text of texts) {
      const [, allocationId = '', cursor = ''] = CURSOR.exec(text) ?? []
      if (cursor === '') throw new Refusal('invalid_request', 'malformed cursor: expected ALLOCATION.CURSOR')
      if (cursors.has(allocationId)) {
        throw new Refusal('invalid_request', `several cursors for allocation ${allocationId}`)
      }
      cursors.set(allocationId, cursor)
    }
    return cursors
  },
}

/** The cursors in the body; empty without a body. */
function cursorsIn({ body }: RawInput): readonly string[] {
  if (body === undefined || body === '') return []
  const cursors = cursorsMember(body)
  if (Array.isArray(cursors) && cursors.every((each) => typeof each === 'string')) return cursors
  throw new Refusal('invalid_request', 'malformed body: expected {"Cursors": ["ALLOCATION.CURSOR", …]}')
}

/**
 * Undefined for anything but one object with one list. Its structure is counted first, because a caller without a token may send it,
 * and a megabyte of nested lists takes a tenth of a second to parse.
 */
function cursorsMember(body: string): unknown {
  if (!hasAtMost(body, '[', 1) || !hasAtMost(body, '{', 1)) return undefined
  if (!hasAtMost(body, ',', CURSORS_MAX)) {
    throw new Refusal('invalid_request', `at most ${CURSORS_MAX} cursors are accepted`)
  }
  try {
    const value: unknown = JSON.parse(body)
    return typeof value === 'object' && value !== null && 'Cursors' in value ? value.Cursors : undefined
  } catch {
    return undefined
  }
}

function hasAtMost(text: string, sign: string, countMax: number): boolean {
  let count = 0
  for (let at = text.indexOf(sign); at >= 0; at = text.indexOf(sign, at + 1)) if (++count > countMax) return false
  return true
}
