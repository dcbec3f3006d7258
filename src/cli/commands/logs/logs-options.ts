/** The options of `outpost logs` and `outpost job logs`, and the query that follows from them. */
import { parseDurationMs } from '../../../platform/duration.ts'
import type { Query } from '../../client/http-client.ts'
import { isUuid } from '../../../platform/schema.ts'
import { choice, flag, integer, type Option, text, texts, type OptionValues } from '../../framework/options.ts'
import { tailOptions, tailQuery } from '../../streams/tail-options.ts'

export const logsOptions = {
  f: flag('Follow the log and print new lines'),
  tail: tailOption(),
  ...tailOptions,
  stdout: flag('Print stdout only'),
  stderr: flag('Print stderr only'),
  type: choice({ placeholder: 'TYPE', help: 'Output of the task to print', choices: ['stdout', 'stderr', 'all'] }),
  since: text({
    placeholder: 'TIME',
    help: 'Start at a timestamp or a duration before now',
    fallback: undefined,
    check: faultOfSince,
  }),
  grep: text({ placeholder: 'PATTERN', help: 'Print lines that match this regular expression', fallback: undefined }),
  'grep-invert': flag('Print lines that do not match'),
  'grep-context': integer({
    placeholder: 'N',
    help: 'Print N lines before and after each match',
    fallback: undefined,
    min: 0,
    max: 1_000_000,
  }),
  'end-when-done': flag('Exit when the task has ended; requires -f'),
  all: flag('Print the logs of all tasks with prefixes'),
  task: texts('TASK', 'Task to print; several tasks imply -prefix'),
  prefix: flag('Prefix each line with its task'),
  json: flag('Print one JSON object per line'),
}

/** A switch that also takes the number of lines: `-tail=100`. */
function tailOption(): Option<boolean | number> {
  const plain = flag('Start 10 lines before the end; -tail=N changes the number')
  return {
    ...plain,
    take: (given) => (/^\d{2,9}$|^[2-9]$/.test(given) ? Number(given) : plain.take(given, false)),
  }
}

/**
 * `-tail 100 ALLOC` means 100 lines, as with the shell command `tail`. A number counts as the number of lines only if a full ID
 * follows. Returns the other operands.
 */
export function withTailCount<V extends LogsOptionValues>(
  values: V,
  operands: readonly string[],
): [V, readonly string[]] {
  const [count = '', id = '', ...rest] = operands
  if (values.tail !== true || values.n !== undefined || !/^\d{1,9}$/.test(count) || !isUuid(id))
    return [values, operands]
  return [{ ...values, tail: Number(count) }, [id, ...rest]]
}

export type LogsOptionValues = OptionValues<typeof logsOptions> & { readonly 'no-color': boolean }

function faultOfSince(value: string): string | undefined {
  const isDuration = (parseDurationMs(value) ?? -1) >= 0
  if (isDuration || (/^\d{4}-\d\d-\d\d[Tt ]/.test(value) && !Number.isNaN(Date.parse(value)))) return undefined
  return 'must be a time such as 2026-11-21T10:00:00Z, or a duration such as 10m'
}

/** The fault of a combination of options, or undefined. */
export function faultOf(values: LogsOptionValues, operandTask: string | undefined): string | undefined {
  if (typeof values.tail === 'number' && (values.n ?? values.c) !== undefined)
    return 'options -tail N, -n and -c are mutually exclusive'
  if (values.n !== undefined && values.c !== undefined) return 'options -n and -c are mutually exclusive'
  const typed = [values.stdout, values.stderr, values.type !== undefined].filter(Boolean).length
  if (typed > 1) return 'options -stdout, -stderr and -type are mutually exclusive'
  if (values.all && (operandTask !== undefined || values.task.length > 0)) return 'option -all excludes task names'
  if (operandTask !== undefined && values.task.length > 0)
    return 'the task is specified twice: as an argument and with -task'
  if (values['end-when-done'] && !values.f) return 'option -end-when-done requires -f'
  const needsGrep = values['grep-invert'] ? '-grep-invert' : values['grep-context'] !== undefined && '-grep-context'
  if (needsGrep && values.grep === undefined) return `option ${needsGrep} requires -grep`
  return undefined
}

/** `*` for both outputs, as in the query. */
export function typesOf(values: LogsOptionValues): 'stdout' | 'stderr' | '*' {
  if (values.stderr || values.type === 'stderr') return 'stderr'
  if (values.stdout || values.type === 'stdout') return 'stdout'
  return '*'
}

/** The query without task and type. */
export function queryOf(values: LogsOptionValues): Query {
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

/** As with `nomad`, `-f` without a selection starts with the newest file. */
function isNewestOnly(values: LogsOptionValues): boolean {
  return values.f && typesOf(values) === '*' && values.since === undefined && values.grep === undefined
}
