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
    'stopped or is not connected; servers announce themselves once a minute. "unknown": the server that created',
    'the list is not connected to NATS. An agent forwards the request to any server. Requires node:read.',
    '',
    'Core: active serves secrets; ha_standby forwards to the active server; standby is a DR secondary; sealed',
    'requires key shares; fenced is a DR primary that was replaced or is isolated; none forwards requests for secrets.',
    '',
    'With high availability, also shows the role, the position in the log of commits, and the lag (rows that the',
    'server has not applied). A lost server has not reported for 10 s: start it, or remove it with "outpost',
    'operator members remove".',
    '',
    'Exit code 1: a server does not respond.',
  ].join('\n'),
  options: { json: jsonOption, ...agentOptions },
  async run(values, _operands, io) {
    const target = agentOf(values, io)
    const servers = await requestList(target, { path: '/v1/operator/members' })
    const members = servers.map((server) => fieldsOf(server))
    const missing = members.filter((member) => member.text('Status') !== 'alive')
    const isUnknown = missing.some((member) => member.text('Status') === 'unknown')
    if (values.json) printJson(servers, io)
    else {
      const hasRoles = members.some((member) => member.text('Role') !== '')
      const table = formatTable(
        ['', 'Name', 'Address', 'Version', 'Status', 'Core', ...(hasRoles ? ROLE_COLUMNS : []), 'Cluster ID'],
        members.map((member) => cellsOf(member, hasRoles).map(escapeLine)),
      )
      io.out(fitted(table, terminalOf(1, io.env, values['no-color'])))
    }
    const verb = missing.length === 1 ? 'does' : 'do'
    if (isUnknown)
      io.err('the server that created the list is not connected to NATS: the state of the others is unknown\n')
    else if (missing.length > 0) io.err(`${missing.length} of ${members.length} servers ${verb} not respond\n`)
    return missing.length > 0 ? 1 : 0
  },
})

const ROLE_COLUMNS = ['Role', 'Position', 'Lag']

function cellsOf(member: JsonFields, hasRoles: boolean): string[] {
  const status = member.text('Status')
  const age = humanSeconds(member.number('SecondsSinceAnnouncement'))
  return [
    member.boolean('IsSelf') ? '*' : '',
    member.text('Name') || member.text('ID'),
    member.text('Address') || '-',
    member.text('Version') || '-',
    status === 'alive' ? status : `${status}, announced ${age} ago`,
    coreOf(member),
    ...(hasRoles ? roleCells(member) : []),
    member.text('ClusterID') || '-',
  ]
}

/** A server without an applied commit has no position. */
function roleCells(member: JsonFields): string[] {
  const role = member.text('Role')
  if (role === '') return ['-', '-', '-']
  const position = member.number('Position')
  return [role, position === 0 ? '-' : String(position), String(member.number('Lag'))]
}

/** A server of an older version does not report its state. */
function coreOf(member: JsonFields): string {
  if (!member.boolean('HasCore')) return 'none'
  return member.text('CoreState') || 'unknown'
}
