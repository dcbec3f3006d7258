/** `outpost operator members`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-target.ts'
import { requestList } from '../../client/http-client.ts'
import { defineCommand } from '../../framework/define-command.ts'
import { escapeLine } from '../../framework/terminal-escapes.ts'
import { fieldsOf, type JsonFields } from '../../output/json.ts'
import { formatTable, humanSeconds } from '../../output/table.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

export const command = defineCommand({
  name: 'operator members',
  summary: 'List the servers of the region',
  details: [
    'Shows version, address and the state of the secrets core of each server that responds to the addressed',
    'server over NATS. * marks the server that created the list. A "silent" server does not respond: it has',
    'stopped or is not connected. An agent forwards the request to any server. Requires node:read.',
    '',
    'Core: active serves secrets; standby is a DR secondary; sealed requires key shares; fenced is a DR primary',
    'that was replaced; none forwards requests for secrets.',
    '',
    'Exit code 1: a server does not respond.',
  ].join('\n'),
  options: { json: jsonOption, ...agentOptions },
  async run(values, _operands, io) {
    const target = agentOf(values, io)
    const servers = await requestList(target, { path: '/v1/operator/members' })
    const members = servers.map((server) => fieldsOf(server))
    const silent = members.filter((member) => member.text('Status') !== 'alive').length
    if (values.json) printJson(servers, io)
    else {
      const table = formatTable(
        ['', 'Name', 'Address', 'Version', 'Status', 'Core', 'Cluster ID'],
        members.map((member) => cellsOf(member).map(escapeLine)),
      )
      io.out(fitted(table, terminalOf(1, io.env, values['no-color'])))
    }
    if (silent > 0) io.err(`${silent} of ${members.length} servers ${silent === 1 ? 'does' : 'do'} not respond\n`)
    return silent > 0 ? 1 : 0
  },
})

function cellsOf(member: JsonFields): string[] {
  const isAlive = member.text('Status') === 'alive'
  const age = humanSeconds(member.number('SecondsSinceAnnouncement'))
  return [
    member.boolean('IsSelf') ? '*' : '',
    member.text('Name') || member.text('ID'),
    member.text('Address') || '-',
    member.text('Version') || '-',
    isAlive ? 'alive' : `silent for ${age}`,
    coreOf(member),
    member.text('ClusterID') || '-',
  ]
}

/** A server of an older version does not report its state. */
function coreOf(member: JsonFields): string {
  if (!member.boolean('HasCore')) return 'none'
  return member.text('CoreState') || 'unknown'
}
