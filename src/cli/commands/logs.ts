/** `outpost logs`. */
import { agentOf, agentOptions } from '../client/agent-access.ts'
import { allocationId, allocOptions, onlyTask } from '../client/alloc-argument.ts'
import type { CommandIo } from '../framework/command-shape.ts'
import { defineCommand } from '../framework/command-shape.ts'
import { FollowSession } from '../streams/follow-session.ts'
import { type Query, RefusedByAgent } from '../client/http-client.ts'
import { faultsOf, logsOptions, type LogsValues, queryOf, typesOf, withTailCount } from '../streams/logs-options.ts'
import { UsageError } from '../framework/options.ts'
import { jsonOutput, prefixedOutput, rawOutput, type StreamOutput } from '../streams/stream-output.ts'
import { terminalOf } from '../output/terminal.ts'

export const command = defineCommand({
  name: 'logs',
  summary: "Print or follow a task's log",
  details: [
    'Prints the whole log of TASK, or its end with -tail; -f goes on with what is written. TASK may be left',
    'out when the allocation has only one. ALLOC is an ID or the beginning of one, of any host of the',
    'server that is addressed. Without an address, the data directory of this host completes it first.',
    '',
    'Without -stdout, -stderr or -type it is both: lines of stdout go to stdout, those of stderr to',
    'stderr. -f begins with the newest file of each.',
    '',
    'When the connection breaks, because the agent restarts or the network fails, it is resumed where it',
    'was: nothing is lost and nothing repeated. That is said on stderr, once for each outage.',
    '',
    'Exit code 0 at the end, on Ctrl-C with -f, and when the reader of the output leaves.',
    '',
    'Examples:',
    '  outpost logs -f ALLOC                           both outputs of the only task',
    '  outpost logs -tail 100 ALLOC web                the last 100 lines of both outputs',
    "  outpost logs -f -since 10m -grep 'ERROR|WARN' ALLOC web",
    '  outpost logs -f -all ALLOC                      all tasks, each line with its task in front',
  ].join('\n'),
  options: { ...logsOptions, ...allocOptions, ...agentOptions },
  operands: { shown: 'ALLOC [TASK]', min: 1, max: 3, missing: 'which allocation? give its ID, and a task' },
  async run(all, operands, io) {
    const [values, [given = '', operandTask, tooMuch]] = withTailCount(all, operands)
    if (tooMuch !== undefined) throw new UsageError(`unexpected argument ${JSON.stringify(tooMuch)}`)
    const fault = faultsOf(values, operandTask)
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

function outputOf(values: LogsValues, session: FollowSession, io: CommandIo, tasks: readonly string[]): StreamOutput {
  if (values.json) return jsonOutput(session.sinks)
  const prefixed = values.prefix || values.all || tasks.length > 1
  return prefixed ? prefixedOutput(session.sinks, terminalOf(1, io.env, values['no-color'])) : rawOutput(session.sinks)
}

/** One stream for both types; two where the server does not know that, as a Nomad agent does not. */
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
    const unknown = error instanceof RefusedByAgent && error.status === 400 && /log type/.test(error.message)
    if (types !== '*' || !unknown) throw error
    const both = ['stdout', 'stderr'].map((type) => () => session.copy(path, { ...query, type }, output))
    if (query['follow'] === true) await session.copyAll(both)
    else for (const copy of both) await copy()
  }
}
