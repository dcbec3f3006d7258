/** What a tail shows, and the requests for it. */
export type LogTarget =
  | { readonly kind: 'task'; readonly allocation: string; readonly task: string }
  | { readonly kind: 'allocation'; readonly allocation: string }
  | { readonly kind: 'job'; readonly namespace: string; readonly job: string }

/** `stdout`, `stderr`, or `*` for both. */
export type LogType = 'stdout' | 'stderr' | '*'

/** Where a tail starts, and which lines it shows: parameters of the server. */
export interface LogSelection {
  readonly type: LogType
  /** Lines before the end of each log. */
  readonly lines: number | undefined
  /** RFC 3339, or a duration before now. */
  readonly since: string | undefined
  readonly grep: string
  readonly isInverted: boolean
  readonly context: number
  /** Starts at this position. */
  readonly cursor: string | undefined
}

export interface LogRequest {
  /** Path and query. */
  readonly url: string
  readonly method: 'GET' | 'POST'
  readonly body?: { readonly Cursors: readonly string[] }
}

/** The head of a request is limited to 16 KiB. */
const URL_CHARS_MAX = 8000

/** The same request without a body; undefined if its cursors do not fit into the URL. */
export function withoutBody({ body, url }: LogRequest): LogRequest | undefined {
  const cursors = body?.Cursors ?? []
  const all = [url, ...cursors.map((cursor) => `cursor=${encodeURIComponent(cursor)}`)].join('&')
  return all.length > URL_CHARS_MAX ? undefined : { url: all, method: 'GET' }
}

type Query = Readonly<Record<string, string | number | boolean | undefined>>

/** The last cursor of each log stream: by allocation for a job, by an empty text otherwise. */
export type Cursors = ReadonlyMap<string, string>

/** The path below `/logs`, encoded; it also names the tail in the query of the wall. */
export function pathOfTarget(target: LogTarget): string {
  const segments =
    target.kind === 'job'
      ? ['job', target.namespace, target.job]
      : target.kind === 'task'
        ? [target.allocation, target.task]
        : [target.allocation]
  return segments.map(encodeURIComponent).join('/')
}

/** Undefined for a text that is not the path of a target. */
export function targetOfPath(path: string): LogTarget | undefined {
  const [first = '', second, third, ...rest] = path.split('/').map(decoded)
  if (first === '' || rest.length > 0) return undefined
  if (first === 'job' && second !== undefined && third !== undefined) {
    return { kind: 'job', namespace: second, job: third }
  }
  if (third !== undefined) return undefined
  return second === undefined
    ? { kind: 'allocation', allocation: first }
    : { kind: 'task', allocation: first, task: second }
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    return segment
  }
}

function pathOfRequest(target: LogTarget): string {
  return target.kind === 'job'
    ? `/v1/job/${encodeURIComponent(target.job)}/logs`
    : `/v1/client/fs/logs/${encodeURIComponent(target.allocation)}`
}

/** The part of the query that must stay the same when a stream resumes. */
function filterOf(target: LogTarget, selection: LogSelection): Query {
  const { context, grep, isInverted, type } = selection
  return {
    ...(target.kind === 'job' && { namespace: target.namespace }),
    task: target.kind === 'task' ? target.task : '*',
    type,
    ...(grep !== '' && {
      grep,
      ...(isInverted && { grep_invert: true }),
      ...(context > 0 && { grep_context: context }),
    }),
  }
}

/** The request that follows a target: at its start, or resumed at `cursors`. */
export function followRequest(target: LogTarget, selection: LogSelection, cursors: Cursors): LogRequest {
  const path = pathOfRequest(target)
  // The log of a job stays open for allocations that start later.
  const query = {
    ...filterOf(target, selection),
    follow: true,
    ...(target.kind !== 'job' && { end_when_done: true }),
  }
  if (target.kind === 'job' && cursors.size > 0) {
    const body = { Cursors: Array.from(cursors, ([allocation, cursor]) => `${allocation}.${cursor}`) }
    return { url: urlOf(path, query), method: 'POST', body }
  }
  const cursor = cursors.get('') ?? selection.cursor
  if (cursor !== undefined) return { url: urlOf(path, { ...query, cursor }), method: 'GET' }
  const { lines, since } = selection
  return { url: urlOf(path, { ...query, tail_lines: lines, since, cursor: '' }), method: 'GET' }
}

/** The request that reads a target once: as frames if the lines of a job must be labelled, as text otherwise. */
export function downloadRequest(target: LogTarget, selection: LogSelection): LogRequest {
  const { lines, since } = selection
  const query = { ...filterOf(target, selection), tail_lines: lines, since }
  const isPlain = target.kind !== 'job'
  return { url: urlOf(pathOfRequest(target), isPlain ? { ...query, plain: true } : query), method: 'GET' }
}

/** An empty value is sent: an empty cursor starts a resumable stream. */
function urlOf(path: string, query: Query): string {
  const given = Object.entries(query).flatMap(([name, value]): [string, string][] =>
    value === undefined ? [] : [[name, String(value)]],
  )
  return `${path}?${new URLSearchParams(given).toString()}`
}
