/** `outpost node meta read|apply`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-target.ts'
import { requestJson } from '../../client/http-client.ts'
import { nodeIdOption, nodeQuery } from '../../client/id-prefix.ts'
import { defineCommand } from '../../framework/define-command.ts'
import { flag, texts, UsageError } from '../../framework/options.ts'
import { escapeLine } from '../../framework/terminal-escapes.ts'
import { fieldsOf } from '../../output/json.ts'
import { formatPairs } from '../../output/table.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

const SECTIONS = [
  ['Meta', 'Effective'],
  ['Dynamic', 'Set by API'],
  ['Static', 'From configuration'],
] as const

const read = defineCommand({
  name: 'node meta read',
  summary: 'Show the metadata of a node',
  details: [
    'Shows the effective metadata: the configured metadata with the changes of "outpost node meta apply". A',
    'key that was unset is shown as <unset>.',
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
      return [escapeLine(key), under.value(key) === null ? '<unset>' : escapeLine(under.text(key))]
    })
    return `${title}:\n${pairs.length === 0 ? 'none\n' : formatPairs(pairs)}`
  }).join('\n')
}

const apply = defineCommand({
  name: 'node meta apply',
  summary: 'Set or unset metadata of a node',
  details: [
    'KEY=VALUE sets a key. KEY= or KEY alone sets it to an empty string. -unset KEY,... unsets keys, including',
    'those of the configuration. Other keys do not change. The change is durable when the command returns.',
    '',
    'Example: outpost node meta apply -unset maintenance rack=r7 zone=b',
  ].join('\n'),
  options: {
    unset: texts('KEY,...', 'Keys to unset'),
    json: flag('Print the resulting metadata as JSON'),
    'node-id': nodeIdOption,
    ...agentOptions,
  },
  operands: { shown: '[KEY=VALUE...]', min: 0, max: Number.POSITIVE_INFINITY },
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

/** A key that is both set and unset is unset. Throws UsageError without changes. */
function changesOf(operands: readonly string[], unset: readonly string[]): Record<string, string | null> {
  const changes = new Map<string, string | null>()
  for (const operand of operands) {
    const equals = operand.indexOf('=')
    const key = equals < 0 ? operand : operand.slice(0, equals)
    if (key === '') throw new UsageError(`expected KEY=VALUE, got ${JSON.stringify(operand)}`)
    changes.set(key, equals < 0 ? '' : operand.slice(equals + 1))
  }
  for (const key of unset.flatMap((list) => list.split(','))) if (key !== '') changes.set(key, null)
  if (changes.size === 0) throw new UsageError('missing KEY=VALUE or -unset KEY')
  return Object.fromEntries(changes)
}

export const commands = [read, apply]
