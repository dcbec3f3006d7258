/** `outpost job list|status|logs`. */
import { agentOf, agentOptions, type AgentTarget, jsonOption, printJson } from '../client/agent-target.ts'
import { ageOf, allocationsTable } from '../client/fleet-view.ts'
import { equals, listRecords, AgentRefusal, requestJson } from '../client/http-client.ts'
import { findJob, shortIdsOf } from '../client/id-prefix.ts'
import { type CommandIo, defineCommand } from '../framework/define-command.ts'
import { choice, flag, text, UsageError } from '../framework/options.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { type JsonFields, fieldsOf } from '../output/json.ts'
import { formatPairs, formatTable } from '../output/table.ts'
import { fitted, terminalOf } from '../output/terminal.ts'
import { FollowSession } from '../streams/follow-session.ts'
import type { Frame } from '../streams/frame-reader.ts'
import { faultOf, logsOptions, type LogsOptionValues, queryOf, typesOf } from './logs/logs-options.ts'
import { JobCursors } from '../streams/stream-cursors.ts'
import { jsonOutput, prefixedOutput } from '../streams/stream-output.ts'

const namespaceOption = text({
  placeholder: 'NAME',
  help: 'Namespace of the job',
  fallback: undefined,
  shownDefault: 'all namespaces that the token may list',
})

const jobOperand = { shown: 'JOB', min: 1, max: 1 }

const list = defineCommand({
  name: 'job list',
  summary: 'List jobs',
  details: 'A job exists as long as any host has one of its allocations. The columns count its allocations by status.',
  options: {
    namespace: namespaceOption,
    status: choice({ placeholder: 'STATUS', help: 'Filter by status', choices: ['running', 'pending', 'dead'] }),
    json: jsonOption,
    ...agentOptions,
  },
  async run(values, _operands, io) {
    const query = { namespace: values.namespace ?? '*', filter: equals('Status', values.status) }
    const records = await listRecords(agentOf(values, io), '/v1/jobs', query)
    if (values.json) printJson(records, io)
    else if (records.length === 0) io.out('No jobs\n')
    else io.out(fitted(jobsTable(records), terminalOf(1, io.env, values['no-color'])))
    return 0
  },
})

function jobsTable(records: readonly unknown[]): string {
  const rows = records
    .map(fieldsOf)
    .map((job) => [
      escapeLine(job.text('ID')),
      escapeLine(job.text('Namespace')),
      escapeLine(job.text('Status')),
      ...stateCounts(job).map(String),
      ageOf(job.number('SubmitTime')),
    ])
  const sides = ['left', 'left', 'left', ...STATE_COLUMNS.map(() => 'right'), 'left'] as ('left' | 'right')[]
  return formatTable(['ID', 'Namespace', 'Status', ...STATE_COLUMNS, 'Created'], rows, sides)
}

const status = defineCommand({
  name: 'job status',
  summary: 'Show a job and its allocations',
  options: { namespace: namespaceOption, verbose: flag('Print full IDs'), json: jsonOption, ...agentOptions },
  operands: jobOperand,
  async run(values, [given = ''], io) {
    const target = agentOf(values, io)
    const job = await findJob(target, { given, namespace: values.namespace }, io)
    const path = `/v1/job/${encodeURIComponent(job.text('ID'))}`
    const query = { namespace: job.text('Namespace') }
    if (values.json) {
      printJson(await requestJson(target, { path, query }), io)
      return 0
    }
    const allocations = (await listRecords(target, `${path}/allocations`, query)).map(fieldsOf)
    const head = formatPairs([
      ['ID', escapeLine(job.text('ID'))],
      ['Namespace', escapeLine(job.text('Namespace'))],
      ['Status', escapeLine(job.text('Status'))],
      ['Created', ageOf(job.number('SubmitTime'))],
    ])
    const output = [head, groupsTable(job), allocationsTable(allocations, values.verbose)].join('\n')
    io.out(fitted(output, terminalOf(1, io.env, values['no-color'])))
    return 0
  },
})

const { all: _all, prefix: _prefix, task: _task, ...sharedOptions } = logsOptions

const logs = defineCommand({
  name: 'job logs',
  summary: 'Print or follow the logs of a job',
  details: [
    'Prefixes each line with its allocation and task. Lines of one allocation are in order; lines of several',
    'allocations are merged in arrival order. -tail applies to each allocation. -grep filters on the hosts. -f',
    'also follows allocations that start later.',
    '',
    'A log that cannot be read is reported on stderr; without -f, the exit code is then 1. With -f, a broken',
    'connection is resumed as with "outpost logs -f": no line is lost or repeated. Without -f, a broken connection',
    'ends the command with exit code 1.',
    '',
    'Examples:',
    '  outpost job logs -tail 20 shop',
    "  outpost job logs -f -since 10m -grep 'timeout|refused' shop",
  ].join('\n'),
  options: {
    ...sharedOptions,
    task: text({ placeholder: 'TASK', help: 'Print the logs of this task only', fallback: undefined }),
    namespace: namespaceOption,
    ...agentOptions,
  },
  operands: { shown: 'JOB', min: 1, max: 2 },
  async run(given, operands, io) {
    const { job: name, tail } = withTailCount(given, operands)
    const values: LogsOptionValues = { ...given, tail, all: false, prefix: true, task: [] }
    const fault = faultOf(values, undefined)
    if (fault !== undefined) throw new UsageError(fault)
    const target = agentOf(given, io)
    const { id, namespace } = await jobOf(target, name, given.namespace, io)
    let hasFailed = false
    const onEvent = ({ allocationId = '', error, event }: Frame) => {
      if (event === 'log ended') return
      hasFailed ||= event === 'log failed'
      const reason = error === undefined ? '' : `: ${error}`
      io.err(`outpost: allocation ${escapeLine(`${allocationId}: ${event}${reason}`)}\n`)
    }
    const types = typesOf(values)
    const splits = types === '*' && !given.json
    // Without -f, logs that have not been read yet have no cursor.
    const resume = given.f && !given['no-resume']
    const options = { target, io, follow: given.f, resume, splits, onEvent }
    const session = new FollowSession({ ...options, cursors: () => new JobCursors() })
    const output = given.json
      ? jsonOutput(session.sinks)
      : prefixedOutput(session.sinks, terminalOf(1, io.env, given['no-color']), await shortIds(target, id, namespace))
    const query = { ...queryOf(values), namespace, type: types, task: given.task }
    const path = `/v1/job/${encodeURIComponent(id)}/logs`
    const code = await session.run(output, () => session.copy(path, query, output))
    return hasFailed && !given.f ? 1 : code
  },
})

/** `-tail 100 JOB`: the first of two operands is the number of lines. Throws UsageError. */
function withTailCount({ n, tail }: Pick<LogsOptionValues, 'n' | 'tail'>, [first = '', second]: readonly string[]) {
  if (second === undefined) return { job: first, tail }
  if (tail === true && n === undefined && /^\d{1,9}$/.test(first)) return { job: second, tail: Number(first) }
  throw new UsageError(`unexpected argument ${JSON.stringify(second)}`)
}

/** A token that may not list jobs needs -namespace and the full ID. */
async function jobOf(target: AgentTarget, given: string, namespace: string | undefined, io: CommandIo) {
  try {
    const job = await findJob(target, { given, namespace }, io)
    return { id: job.text('ID'), namespace: job.text('Namespace') }
  } catch (error) {
    if (namespace === undefined || !(error instanceof AgentRefusal) || error.status !== 403) throw error
    return { id: given, namespace }
  }
}

/** The shortest unique IDs of the job's allocations; full IDs for allocations that start later, and without permission to list them. */
async function shortIds(target: AgentTarget, jobId: string, namespace: string): Promise<(id: string) => string> {
  try {
    const records = await listRecords(target, `/v1/job/${encodeURIComponent(jobId)}/allocations`, { namespace })
    return shortIdsOf(records.map((record) => fieldsOf(record).text('ID')))
  } catch (error) {
    if (error instanceof AgentRefusal && error.status === 403) return (id) => id
    throw error
  }
}

const STATES = ['Running', 'Starting', 'Failed', 'Complete', 'Lost', 'Unknown'] as const

/** Number of allocations of a job by state. */
function stateCounts(job: JsonFields): number[] {
  const groups = job.under('JobSummary').under('Summary')
  const names = job.under('JobSummary').names('Summary')
  return STATES.map((state) => names.reduce((sum, name) => sum + groups.under(name).number(state), 0))
}

const STATE_COLUMNS: readonly string[] = STATES

/** The same by task group. */
function groupsTable(job: JsonFields): string {
  const groups = job.under('JobSummary').under('Summary')
  const names = job.under('JobSummary').names('Summary').sort()
  const rows = names.map((name) => [
    escapeLine(name),
    ...STATES.map((state) => String(groups.under(name).number(state))),
  ])
  return formatTable(['Task Group', ...STATES], rows, ['left', ...STATES.map(() => 'right' as const)])
}

export const commands = [list, status, logs]
