/** The options of `outpost logs`, and the request that they mean. */
import { parseDurationMs } from '../../platform/duration.ts'
import type { Query } from '../client/http-client.ts'
import { isUuid } from '../../platform/schema.ts'
import { choice, flag, integer, type Option, text, texts, type ValuesOf } from '../framework/options.ts'

const LINES_DEFAULT = 10
/** As many bytes as the compatible command takes a line for, where a server cannot count lines. */
const LINE_BYTES_GUESS = 120

export const tailOptions = {
  n: integer({
    placeholder: 'N',
    help: `Begin N lines before the end; ${LINES_DEFAULT} when only -tail is given`,
    fallback: undefined,
    min: 0,
    max: 1_000_000_000,
  }),
  c: integer({
    placeholder: 'BYTES',
    help: 'Begin so many bytes before the end',
    fallback: undefined,
    min: 1,
    max: Number.MAX_SAFE_INTEGER,
  }),
  'no-resume': flag('Give up when the connection breaks, instead of asking until the agent answers again'),
}

export const logsOptions = {
  f: flag('Follow: go on with what is written'),
  tail: tailOption(),
  ...tailOptions,
  stdout: flag('The output of the task'),
  stderr: flag('The error output of the task'),
  type: choice({ placeholder: 'TYPE', help: 'Which of its outputs; all: both', choices: ['stdout', 'stderr', 'all'] }),
  since: text({
    placeholder: 'TIME',
    help: 'Begin at this time: RFC 3339, or a duration such as 10m for that long ago',
    fallback: undefined,
    check: faultOfSince,
  }),
  grep: text({ placeholder: 'PATTERN', help: 'Only lines that match this regular expression', fallback: undefined }),
  'grep-invert': flag('Only lines that do not match'),
  'grep-context': integer({
    placeholder: 'N',
    help: 'Also the N lines before and behind each that matches',
    fallback: undefined,
    min: 0,
    max: 1_000_000,
  }),
  'end-when-done': flag('With -f: end when the task is dead and everything has been printed'),
  all: flag('All tasks of the allocation, each line with its task in front'),
  task: texts('TASK', 'A task; of several, each line has its task in front'),
  prefix: flag('The task in front of each line, whole lines only'),
  json: flag('One JSON object a line, with Task, Type, File and Line'),
}

/** A switch that also takes the number of lines: `-tail=100`. */
function tailOption(): Option<boolean | number> {
  const plain = flag('Begin 10 lines before the end; -tail N, -n and -c say how far')
  return {
    ...plain,
    take: (given) => (/^\d{2,9}$|^[2-9]$/.test(given) ? Number(given) : plain.take(given, false)),
  }
}

/**
 * `-tail 100 ALLOC` means 100 lines, as with the `tail` of a shell. It is told from an allocation by what follows: a number is one
 * only where a full ID comes next. Returns the other operands.
 */
export function withTailCount<V extends LogsValues>(values: V, operands: readonly string[]): [V, readonly string[]] {
  const [count = '', id = '', ...rest] = operands
  if (values.tail !== true || values.n !== undefined || !/^\d{1,9}$/.test(count) || !isUuid(id))
    return [values, operands]
  return [{ ...values, tail: Number(count) }, [id, ...rest]]
}

/** What `queryOf` and its like look at. */
export type LogsValues = ValuesOf<typeof logsOptions> & { readonly 'no-color': boolean }

function faultOfSince(value: string): string | undefined {
  const isDuration = (parseDurationMs(value) ?? -1) >= 0
  if (isDuration || (/^\d{4}-\d\d-\d\d[Tt ]/.test(value) && !Number.isNaN(Date.parse(value)))) return undefined
  return 'must be a time such as 2026-11-21T10:00:00Z, or how long ago, such as 10m'
}

/** What makes no sense together, or undefined. */
export function faultsOf(values: LogsValues, operandTask: string | undefined): string | undefined {
  if (typeof values.tail === 'number' && (values.n ?? values.c) !== undefined)
    return '-tail N, -n and -c exclude each other'
  if (values.n !== undefined && values.c !== undefined) return 'options -n and -c exclude each other, give one of them'
  const typed = [values.stdout, values.stderr, values.type !== undefined].filter(Boolean).length
  if (typed > 1) return 'give one of -stdout, -stderr and -type; -type all is both'
  if (values.all && (operandTask !== undefined || values.task.length > 0))
    return '-all is every task, name none with it'
  if (operandTask !== undefined && values.task.length > 0)
    return 'give the task once: behind the allocation or as -task'
  if (values['end-when-done'] && !values.f) return 'option -end-when-done works only together with -f'
  const needsGrep = values['grep-invert'] ? '-grep-invert' : values['grep-context'] !== undefined && '-grep-context'
  if (needsGrep && values.grep === undefined) return `option ${needsGrep} works only together with -grep`
  return undefined
}

/** `*` for both, as the endpoint has it, and unless one is named. */
export function typesOf(values: LogsValues): 'stdout' | 'stderr' | '*' {
  if (values.stderr || values.type === 'stderr') return 'stderr'
  if (values.stdout || values.type === 'stdout') return 'stdout'
  return '*'
}

/** Everything of the request but task and type. */
export function queryOf(values: LogsValues): Query {
  const isTailed = values.tail !== false || values.n !== undefined || values.c !== undefined
  const begin = isTailed
    ? tailQuery({ c: values.c, n: values.n ?? linesOf(values.tail) })
    : { offset: 0, origin: isNewestOnly(values) ? 'end' : 'start' }
  return {
    follow: values.f,
    ...begin,
    since: values.since,
    grep: values.grep,
    grep_invert: values['grep-invert'] || undefined,
    grep_context: values['grep-context'],
    end_when_done: values['end-when-done'] || undefined,
  }
}

function linesOf(tail: boolean | number): number | undefined {
  return typeof tail === 'number' ? tail : undefined
}

/** As the compatible command: `-f` alone begins with the newest file, whatever is said more means the whole log. */
function isNewestOnly(values: LogsValues): boolean {
  return values.f && typesOf(values) === '*' && values.since === undefined && values.grep === undefined
}

/** The last lines; a server that does not count lines is asked for about as many bytes. */
export function tailQuery({ n, c }: { readonly n: number | undefined; readonly c: number | undefined }): Query {
  if (c !== undefined) return { origin: 'end', offset: c }
  const lines = n ?? LINES_DEFAULT
  return { origin: 'end', offset: lines * LINE_BYTES_GUESS, tail_lines: lines }
}
