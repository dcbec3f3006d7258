/** `outpost node meta apply`. */
import { agentOf, agentOptions, printJson } from '../../client/agent-access.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { requestJson } from '../../client/http-client.ts'
import { nodeIdOption, nodeQuery } from '../../client/node-argument.ts'
import { flag, texts, UsageError } from '../../framework/options.ts'

export const command = defineCommand({
  name: 'node meta apply',
  summary: "Set and unset keys of a node's metadata",
  details: [
    'KEY=VALUE sets a key, KEY= or KEY alone sets it to the empty text; -unset KEY,... unsets keys, also',
    'those of the configuration. Keys that are not named stay as they are. The change is stored before the',
    'command returns and outlives a restart of the agent.',
    '',
    'Example: outpost node meta apply -unset maintenance rack=r7 zone=b',
  ].join('\n'),
  options: {
    unset: texts('KEY,...', 'Keys to unset, separated by commas'),
    json: flag('Print the metadata that is in force afterwards'),
    'node-id': nodeIdOption,
    ...agentOptions,
  },
  operands: { shown: '[KEY=VALUE...]', min: 0, max: Number.POSITIVE_INFINITY, missing: '' },
  async run(values, operands, io) {
    const meta = changesOf(operands, values.unset)
    const target = agentOf(values, io)
    const query = await nodeQuery(target, values, io)
    const answer = await requestJson(target, {
      method: 'POST',
      path: '/v1/client/metadata',
      query,
      body: { Meta: meta },
    })
    if (values.json) printJson(answer, io)
    return 0
  },
})

/** A key that is to be unset and set is unset. Throws UsageError when there is nothing to do. */
function changesOf(operands: readonly string[], unset: readonly string[]): Record<string, string | null> {
  const changes = new Map<string, string | null>()
  for (const operand of operands) {
    const equals = operand.indexOf('=')
    const key = equals < 0 ? operand : operand.slice(0, equals)
    if (key === '') throw new UsageError(`${JSON.stringify(operand)} names no key, give it as KEY=VALUE`)
    changes.set(key, equals < 0 ? '' : operand.slice(equals + 1))
  }
  for (const key of unset.flatMap((list) => list.split(','))) if (key !== '') changes.set(key, null)
  if (changes.size === 0) throw new UsageError('what shall change? give KEY=VALUE or -unset KEY')
  return Object.fromEntries(changes)
}
