/** `outpost node meta read`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-access.ts'
import { fieldsOf } from '../../output/answer.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { requestJson } from '../../client/http-client.ts'
import { nodeIdOption, nodeQuery } from '../../client/node-argument.ts'
import { formatPairs } from '../../output/table.ts'
import { shownName } from '../../framework/shown.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

const SECTIONS = [
  ['Meta', 'In force'],
  ['Dynamic', 'Set over the API'],
  ['Static', 'From the configuration'],
] as const

export const command = defineCommand({
  name: 'node meta read',
  summary: "Show a node's metadata",
  details: [
    'In force is what the configuration says, with what "outpost node meta apply" set over it;',
    'a key that was unset there is shown as <unset>.',
  ].join('\n'),
  options: { json: jsonOption, 'node-id': nodeIdOption, ...agentOptions },
  async run(values, _operands, io) {
    const target = agentOf(values, io)
    const query = await nodeQuery(target, values, io)
    const answer = await requestJson(target, { path: '/v1/client/metadata', query })
    if (values.json) printJson(answer, io)
    else io.out(fitted(metadataText(answer), terminalOf(1, io.env)))
    return 0
  },
})

/** The three sections, keys in order. */
function metadataText(answer: unknown): string {
  const fields = fieldsOf(answer)
  return SECTIONS.map(([name, title]) => {
    const keys = fields.names(name).sort()
    const under = fields.under(name)
    const pairs = keys.map((key): [string, string] => {
      return [shownName(key), under.value(key) === null ? '<unset>' : shownName(under.text(key))]
    })
    return `${title}:\n${pairs.length === 0 ? 'nothing\n' : formatPairs(pairs)}`
  }).join('\n')
}
