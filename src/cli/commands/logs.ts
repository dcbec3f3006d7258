/** `outpost logs`. */
import { agentOf, agentOptions } from '../client/agent-target.ts'
import { allocationId, allocOptions, onlyTask } from '../client/alloc-argument.ts'
import type { CommandIo } from '../framework/define-command.ts'
import { defineCommand } from '../framework/define-command.ts'
import { FollowSession } from '../streams/follow-session.ts'
import { type Query, AgentRefusal } from '../client/http-client.ts'
import { faultOf, logsOptions, type LogsOptionValues, queryOf, typesOf, withTailCount } from './logs/logs-options.ts'
import { UsageError } from '../framework/options.ts'
import { jsonOutput, prefixedOutput, rawOutput, type StreamOutput } from '../streams/stream-output.ts'
import { terminalOf } from '../output/terminal.ts'

export const command = defineCommand({
  name: 'logs',
  summary: 'Print or follow the log of a task',
  details: [
    'Prints the whole log of TASK, or only its end with -tail. -f also prints new lines. TASK is optional',
    'if the allocation has only one task. ALLOC is the ID or ID prefix of an allocation on any host of the',
    'addressed server. Without an address, prefixes are first resolved in the data directory of this host.',
    '',
    'Without -stdout, -stderr or -type, prints both outputs: stdout to stdout, stderr to stderr. -f starts with',
    'the newest file of each output.',
    '',
    'After a broken connection, the command resumes at the same position without loss or repetition. It reports',
    'each outage on stderr once.',
    '',
    'The exit code is 0 at the end of the log, after Ctrl-C with -f, and when the reader of the output has',
    'exited.',
    '',
    'Examples:',
    '  outpost logs -f ALLOC                           both outputs of the only task',
    '  outpost logs -tail 100 ALLOC web                the last 100 lines of both outputs',
    "  outpost logs -f -since 10m -grep 'ERROR|WARN' ALLOC web",
    '  outpost logs -f -all ALLOC                      all tasks, each line prefixed with its task',
  ].join('\n'),
  options: { ...logsOptions, ...allocOptions, ...agentOptions },
  operands: { shown: 'ALLOC [TASK]', min: 1, max: 3 },
  async run(all, operands, io) {
    const [values, [given = '', operandTask, extra]] = withTailCount(all, operands)
    if (extra !== undefined) throw new UsageError(`unexpected argument ${JSON.stringify(extra)}`)
    const fault = faultOf(values, operandTask)
    if (fault !== undefined) throw new UsageError(fault)
    const target = agentOf(values, io)
    const id = await allocationId(given, values, target, io)
    const named = operandTask === undefined ? values.task : [operandTask]
    const tasks = values.all ? ['*'] : named.length > 0 ? named : [await onlyTask(target, id)]
    const types = typesOf(values)
    const session = new FollowSession({
      target,
      io,
      follow: values.f,
      resume: !values['no-resume'],
      splits: types === '*' && !values.json,
    })
    const output = outputOf(values, session, io, tasks)
    const path = `/v1/client/fs/logs/${id}`
    const copyTask = (task: string) => copyTypes(session, path, { ...queryOf(values), task }, types, output)
    return session.run(output, async () => {
      if (values.f) await session.copyAll(tasks.map((task) => () => copyTask(task)))
      else for (const task of tasks) await copyTask(task)
    })
  },
})

function outputOf(
  values: LogsOptionValues,
  session: FollowSession,
  io: CommandIo,
  tasks: readonly string[],
): StreamOutput {
  if (values.json) return jsonOutput(session.sinks)
  const prefixed = values.prefix || values.all || tasks.length > 1
  return prefixed ? prefixedOutput(session.sinks, terminalOf(1, io.env, values['no-color'])) : rawOutput(session.sinks)
}

/** One stream for both types; two if the server does not support that, as a Nomad agent. */
async function copyTypes(
  session: FollowSession,
  path: string,
  query: Query,
  types: string,
  output: StreamOutput,
): Promise<void> {
  try {
    await session.copy(path, { ...query, type: types }, output)
  } catch (error) {
    const unknown = error instanceof AgentRefusal && error.status === 400 && /log type/.test(error.message)
    if (types !== '*' || !unknown) throw error
    const both = ['stdout', 'stderr'].map((type) => () => session.copy(path, { ...query, type }, output))
    if (query['follow'] === true) await session.copyAll(both)
    else for (const copy of both) await copy()
  }
}
