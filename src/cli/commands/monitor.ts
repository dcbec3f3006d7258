/** `outpost monitor`. */
import { agentOf, agentOptions } from '../client/agent-target.ts'
import { findNode } from '../client/id-prefix.ts'
import { defineCommand } from '../framework/define-command.ts'
import { logLevelOption } from '../framework/log-level-option.ts'
import { flag, text } from '../framework/options.ts'
import { FollowSession } from '../streams/follow-session.ts'
import { rawOutput } from '../streams/stream-output.ts'

export const command = defineCommand({
  name: 'monitor',
  summary: 'Follow the log of an agent or server',
  details: [
    'Prints log lines of the addressed process from now on, even below its configured level. With -node,',
    'the addressed server requests the log of that node. If this command reads too slowly, lines are dropped',
    'and their number is reported. Requires agent:read.',
    '',
    'Exit code 0 on Ctrl-C and when the reader of the output exits; 1 when the connection is lost.',
    '',
    'Examples:',
    '  outpost monitor -log-level debug',
    '  outpost monitor -node web-7 -json | jq \'.["@message"]\'',
  ].join('\n'),
  options: {
    node: text({ placeholder: 'NODE', help: 'Name or ID prefix of the node', fallback: undefined }),
    'log-level': logLevelOption('info'),
    json: flag('Print one JSON object per line'),
    ...agentOptions,
  },
  async run(values, _operands, io) {
    const target = agentOf(values, io)
    const nodeId = values.node === undefined ? undefined : await findNode(target, values.node, io)
    // The stream has no cursors, so the lines of an outage are lost: an outage ends the command.
    const session = new FollowSession({
      target,
      io,
      follow: true,
      resume: false,
      splits: false,
      onEvent: () => undefined,
    })
    const query = { log_level: values['log-level'] ?? 'info', log_json: values.json, node_id: nodeId }
    const output = rawOutput(session.sinks)
    return session.run(output, () => session.copy('/v1/agent/monitor', query, output))
  },
})
