/** `outpost fs tail`. */
import { agentOf, agentOptions } from '../../client/agent-access.ts'
import { allocationId, allocOptions } from '../../client/alloc-argument.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { FollowSession } from '../../streams/follow-session.ts'
import { tailOptions, tailQuery } from '../../streams/logs-options.ts'
import { flag, UsageError } from '../../framework/options.ts'
import { rawOutput } from '../../streams/stream-output.ts'

export const command = defineCommand({
  name: 'fs tail',
  summary: 'Print the end of a file of an allocation, or follow it',
  details: [
    'Prints the last 10 lines, or what -n and -c say; -f goes on with what is written, as long as the file',
    'is the same one. A connection that breaks is resumed where it was: nothing is lost, nothing repeated.',
    'A log is better followed with "outpost logs", which goes on in the next file when it is rotated.',
  ].join('\n'),
  options: { f: flag('Follow: go on with what is written'), ...tailOptions, ...allocOptions, ...agentOptions },
  operands: { shown: 'ALLOC PATH', min: 2, max: 2, missing: 'which file? give the allocation and a path in it' },
  async run(values, [given = '', path = ''], io) {
    if (values.n !== undefined && values.c !== undefined) {
      throw new UsageError('options -n and -c exclude each other, give one of them')
    }
    const target = agentOf(values, io)
    const id = await allocationId(given, values, target, io)
    const session = new FollowSession({
      target,
      io,
      follow: values.f,
      resume: !values['no-resume'],
      splits: false,
    })
    const output = rawOutput({ out: session.sinks.out, err: session.sinks.out })
    const query = { path, follow: values.f, ...tailQuery(values) }
    return session.run(output, () => session.copy(`/v1/client/fs/stream/${id}`, query, output))
  },
})
