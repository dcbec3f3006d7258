/** `outpost operator members`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-target.ts'
import { requestJson } from '../../client/http-client.ts'
import { CommandError, defineCommand } from '../../framework/define-command.ts'
import { escapeLine } from '../../framework/terminal-escapes.ts'
import { fieldsOf, type JsonFields } from '../../output/json.ts'
import { formatTable, humanSeconds } from '../../output/table.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

export const command = defineCommand({
  name: 'operator members',
  summary: 'List the servers of the region',
  details: [
    'Shows version, address and the state of the secrets core of each server that answers the addressed server',
    'over NATS. * is the server that made the list. "silent" is a server that does not answer: it has stopped or',
    'is not connected. An agent requests any server. Requires node:read.',
    '',
    'Core: active serves secrets; standby is a DR secondary; sealed needs key shares; fenced is a DR primary that',
    'was replaced; none forwards requests for secrets.',
    '',
    'Exit code 1: a server does not answer.',
  ].join('\n'),
  options: { json: jsonOption, ...agentOptions },
  async run(values, _operands, io) {
    const target = agentOf(values, io)
    const answer = await requestJson(target, { path: '/v1/operator/members' })
    if (!Array.isArray(answer)) {
      throw new CommandError(`${target.url.origin} did not return a list, check that it is an outpost server`)
    }
    const members = answer.map((each: unknown) => fieldsOf(each))
    const silent = members.filter((member) => member.text('Status') !== 'alive').length
    if (values.json) printJson(answer, io)
    else {
      const table = formatTable(
        ['', 'Name', 'Address', 'Version', 'Status', 'Core', 'Cluster ID'],
        members.map((member) => cellsOf(member).map(escapeLine)),
      )
      io.out(fitted(table, terminalOf(1, io.env, values['no-color'])))
    }
    if (silent > 0) io.err(`${silent} of ${members.length} servers ${silent === 1 ? 'does' : 'do'} not answer\n`)
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
