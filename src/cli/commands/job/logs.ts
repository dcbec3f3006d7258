/** `outpost job logs`. */
import { agentOf, agentOptions } from '../../client/agent-access.ts'
import type { AgentTarget } from '../../client/agent-target.ts'
import { fieldsOf } from '../../output/answer.ts'
import { type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { FollowSession } from '../../streams/follow-session.ts'
import type { Frame } from '../../streams/frame-reader.ts'
import { RefusedByAgent } from '../../client/http-client.ts'
import { findJob, shortIdsOf } from '../../client/id-prefix.ts'
import { listRecords } from '../../client/list-pages.ts'
import { faultsOf, logsOptions, type LogsValues, queryOf, typesOf } from '../../streams/logs-options.ts'
import { text, UsageError } from '../../framework/options.ts'
import { shownName } from '../../framework/shown.ts'
import { jsonOutput, prefixedOutput } from '../../streams/stream-output.ts'
import { terminalOf } from '../../output/terminal.ts'
import { namespaceOption } from './job-allocations.ts'

const { all: _all, 'no-resume': _resume, prefix: _prefix, task: _task, ...sharedOptions } = logsOptions

export const command = defineCommand({
  name: 'job logs',
  summary: 'Print or follow the logs of all allocations of a job',
  details: [
    'Each line has its allocation and its task in front. Lines of one allocation are in order; those of',
    'several are merged as they arrive. -tail counts lines of each allocation. -grep runs on the hosts, so',
    'only matching lines travel. With -f, allocations that start later join.',
    '',
    'A log that cannot be read is reported on stderr; without -f the exit code is 1 then. A connection that',
    'breaks ends the command with exit code 1: run it again with -since, or follow one allocation with',
    '"outpost logs -f", which resumes.',
    '',
    'Examples:',
    '  outpost job logs -tail 20 shop',
    "  outpost job logs -f -since 10m -grep 'timeout|refused' shop",
  ].join('\n'),
  options: {
    ...sharedOptions,
    task: text({ placeholder: 'TASK', help: 'Only this task', fallback: undefined }),
    namespace: namespaceOption,
    ...agentOptions,
  },
  operands: { shown: 'JOB', min: 1, max: 2, missing: 'which job? give its ID or the beginning of it' },
  async run(given, operands, io) {
    const { job: name, tail } = withTailCount(given, operands)
    const values: LogsValues = { ...given, tail, all: false, prefix: true, task: [], 'no-resume': true }
    const fault = faultsOf(values, undefined)
    if (fault !== undefined) throw new UsageError(fault)
    const target = agentOf(given, io)
    const { id, namespace } = await jobOf(target, name, given.namespace, io)
    let hasFailed = false
    const onEvent = ({ allocationId = '', error, event }: Frame) => {
      if (event === 'log ended') return
      hasFailed ||= event === 'log failed'
      const reason = error === undefined ? '' : `: ${error}`
      io.err(`outpost: allocation ${shownName(`${allocationId}: ${event}${reason}`)}\n`)
    }
    const types = typesOf(values)
    const splits = types === '*' && !given.json
    const session = new FollowSession({ target, io, follow: given.f, resume: false, splits, onEvent })
    const output = given.json
      ? jsonOutput(session.sinks)
      : prefixedOutput(session.sinks, terminalOf(1, io.env, given['no-color']), await shortIds(target, id, namespace))
    const query = { ...queryOf(values), namespace, type: types, task: given.task }
    const path = `/v1/job/${encodeURIComponent(id)}/logs`
    const code = await session.run(output, () => session.copy(path, query, output))
    return hasFailed && !given.f ? 1 : code
  },
})

/** `-tail 100 JOB`: with two operands, the first one is the number of lines. Throws UsageError. */
function withTailCount({ n, tail }: Pick<LogsValues, 'n' | 'tail'>, [first = '', second]: readonly string[]) {
  if (second === undefined) return { job: first, tail }
  if (tail === true && n === undefined && /^\d{1,9}$/.test(first)) return { job: second, tail: Number(first) }
  throw new UsageError(`unexpected argument ${JSON.stringify(second)}`)
}

/** A token for logs only cannot list jobs: with -namespace, JOB is taken as the full ID then. */
async function jobOf(target: AgentTarget, given: string, namespace: string | undefined, io: CommandIo) {
  try {
    const job = await findJob(target, { given, namespace }, io)
    return { id: job.text('ID'), namespace: job.text('Namespace') }
  } catch (error) {
    if (namespace === undefined || !(error instanceof RefusedByAgent) || error.status !== 403) throw error
    return { id: given, namespace }
  }
}

/** As short as tells the allocations of the job apart, full for those that join; full without the right to list them. */
async function shortIds(target: AgentTarget, jobId: string, namespace: string): Promise<(id: string) => string> {
  try {
    const records = await listRecords(target, `/v1/job/${encodeURIComponent(jobId)}/allocations`, { namespace })
    return shortIdsOf(records.map((record) => fieldsOf(record).text('ID')))
  } catch (error) {
    if (error instanceof RefusedByAgent && error.status === 403) return (id) => id
    throw error
  }
}
