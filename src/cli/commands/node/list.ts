/** `outpost node list`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-access.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { nodesTable } from '../../client/fleet-view.ts'
import { equals, filterOf, listRecords } from '../../client/list-pages.ts'
import { choice, flag, text, texts, UsageError } from '../../framework/options.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

export const command = defineCommand({
  name: 'node list',
  summary: 'List the hosts that a server knows',
  details: [
    'A host that is not ready is shown with the time since when it is not. An agent with NATS asks a',
    'server; one without NATS lists itself.',
    '',
    'Examples:',
    '  outpost node list -status down',
    '  outpost node list -meta rack=r7 -meta role=edge',
    `  outpost node list -filter 'Name matches "^db" and "raw_exec" in Drivers'`,
  ].join('\n'),
  options: {
    status: choice({
      placeholder: 'STATUS',
      help: 'Only hosts with this status',
      choices: ['ready', 'down', 'disconnected'],
    }),
    meta: texts('KEY=VALUE', 'Only hosts whose metadata has this value; all of them if given several times'),
    filter: text({ placeholder: 'EXPRESSION', help: 'Only hosts that match this expression', fallback: undefined }),
    verbose: flag('Print full IDs'),
    json: jsonOption,
    ...agentOptions,
  },
  async run(values, _operands, io) {
    const target = agentOf(values, io)
    const filter = filterOf([equals('Status', values.status), values.filter])
    const nodes = await listRecords(target, '/v1/nodes', { status_time: true, filter, ...metaQuery(values.meta) })
    if (values.json) printJson(nodes, io)
    else if (nodes.length === 0) io.out('No nodes\n')
    else io.out(fitted(nodesTable(nodes, values.verbose), terminalOf(1, io.env, values['no-color'])))
    return 0
  },
})

/** Throws UsageError. */
function metaQuery(pairs: readonly string[]): Record<string, string[]> {
  const query: Record<string, string[]> = {}
  for (const pair of pairs) {
    const at = pair.indexOf('=')
    if (at <= 0) throw new UsageError(`option -meta: expected KEY=VALUE, got ${JSON.stringify(pair)}`)
    ;(query[`meta.${pair.slice(0, at)}`] ??= []).push(pair.slice(at + 1))
  }
  return query
}
