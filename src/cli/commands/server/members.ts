/** `outpost server members`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-access.ts'
import { fieldsOf } from '../../output/answer.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { requestJson } from '../../client/http-client.ts'
import { shownName } from '../../framework/shown.ts'
import { formatTable } from '../../output/table.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

export const command = defineCommand({
  name: 'server members',
  summary: 'Show the server that is addressed',
  details: [
    'Servers are equal and keep no list of each other, so each names itself. An agent asks any server.',
    'Needs node:read.',
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
        return [...cells, tags.text('build'), tags.text('dc'), tags.text('region')].map(shownName)
      })
    const table = formatTable(['Name', 'Address', 'Port', 'Status', 'Version', 'Datacenter', 'Region'], rows)
    io.out(fitted(table, terminalOf(1, io.env, values['no-color'])))
    return 0
  },
})
