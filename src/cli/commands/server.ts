/** `outpost server members`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../client/agent-target.ts'
import { requestJson } from '../client/http-client.ts'
import { defineCommand } from '../framework/define-command.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { fieldsOf } from '../output/json.ts'
import { formatTable } from '../output/table.ts'
import { fitted, terminalOf } from '../output/terminal.ts'

export const command = defineCommand({
  name: 'server members',
  summary: 'Show the addressed server',
  details: [
    'Servers do not keep a list of each other: each server lists only itself. An agent forwards the request to any',
    'server. Requires node:read.',
  ].join('\n'),
  options: { json: jsonOption, ...agentOptions },
  async run(values, _operands, io) {
    const answer = await requestJson(agentOf(values, io), { path: '/v1/agent/members' })
    if (values.json) {
      printJson(answer, io)
      return 0
    }
    const rows = fieldsOf(answer)
      .list('Members')
      .map((member) => {
        const tags = member.under('Tags')
        const cells = [member.text('Name'), member.text('Addr'), String(member.number('Port')), member.text('Status')]
        return [...cells, tags.text('build'), tags.text('dc'), tags.text('region')].map(escapeLine)
      })
    const table = formatTable(['Name', 'Address', 'Port', 'Status', 'Version', 'Datacenter', 'Region'], rows)
    io.out(fitted(table, terminalOf(1, io.env, values['no-color'])))
    return 0
  },
})
