/** The query of a tail's view: where it starts, its filter, and how it is shown. All of it can be linked. */
import type { LogSelection, LogType } from '../stream/log-target.ts'
import { type LineAddress, parseLineAddress } from './line-link.ts'

const LINES = 1000
const LINES_MAX = 100_000
const CONTEXT_MAX = 100

export interface TailQuery {
  readonly selection: LogSelection
  readonly line: LineAddress | undefined
  /** False for a tail that starts at a chosen place: the user wants to read there. */
  readonly isFollowing: boolean
}

/** Parameters of the start: one replaces the others. */
export const START_PARAMETERS: Readonly<Record<string, undefined>> = {
  lines: undefined,
  since: undefined,
  from: undefined,
  cursor: undefined,
  line: undefined,
}

function isType(text: string | null): text is LogType {
  return text === 'stdout' || text === 'stderr'
}

function numberIn(text: string | null, max: number): number | undefined {
  return text !== null && /^\d{1,9}$/.test(text) ? Math.min(Number(text), max) : undefined
}

export function parseTailQuery(query: URLSearchParams): TailQuery {
  const type = query.get('type')
  const grep = query.get('grep') ?? ''
  const since = query.get('since') ?? undefined
  const cursor = query.get('cursor') ?? undefined
  const isFromStart = query.get('from') === 'start'
  // A filter searches the whole log, unless a start is given.
  const isWhole = isFromStart || since !== undefined || grep !== ''
  const lines = numberIn(query.get('lines'), LINES_MAX) ?? (isWhole ? undefined : LINES)
  return {
    selection: {
      type: isType(type) ? type : '*',
      lines: isFromStart ? undefined : lines,
      since,
      grep,
      isInverted: query.get('invert') === '1',
      context: numberIn(query.get('context'), CONTEXT_MAX) ?? 0,
      cursor,
    },
    line: parseLineAddress(query.get('line') ?? ''),
    isFollowing: !isFromStart && since === undefined && cursor === undefined && !query.has('line'),
  }
}

/** The parameters of the start, for a link. */
export function startOfQuery(query: URLSearchParams): string {
  const start = new URLSearchParams()
  for (const name of Object.keys(START_PARAMETERS)) {
    const value = query.get(name)
    if (value !== null && name !== 'line') start.set(name, value)
  }
  if (start.size === 0 && query.get('grep')) start.set('from', 'start')
  return start.toString()
}
