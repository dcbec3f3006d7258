/** `outpost node status`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-access.ts'
import { type Answer, fieldsOf } from '../../output/answer.ts'
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import type { AgentTarget } from '../../client/agent-target.ts'
import { RefusedByAgent, requestJson } from '../../client/http-client.ts'
import { humanBytes, humanSeconds } from '../../output/quantities.ts'
import { formatPairs } from '../../output/table.ts'
import { shownName } from '../../framework/shown.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

/** What an agent tells of its node, each behind a permission of its own. */
const SOURCES = {
  Agent: '/v1/agent/self',
  Metadata: '/v1/client/metadata',
  Stats: '/v1/client/stats',
} as const

type Source = keyof typeof SOURCES

export const command = defineCommand({
  name: 'node status',
  summary: 'Show what is known of the node: identity, roles, load, metadata',
  details: 'What the token does not permit is left out, and named.',
  options: { json: jsonOption, ...agentOptions },
  async run(values, _operands, io) {
    const target = agentOf(values, io)
    const { answers, denied } = await askAll(target)
    if (values.json) {
      printJson(answers, io)
      return 0
    }
    const text = formatPairs([
      ['Address', target.url.origin],
      ...agentPairs(answers.Agent),
      ...statsPairs(answers.Stats),
      ...metadataPairs(answers.Metadata),
      ...(denied.length === 0 ? [] : [['Not permitted', denied.map((source) => SOURCES[source]).join(', ')] as const]),
    ])
    io.out(fitted(text, terminalOf(1, io.env)))
    return 0
  },
})

type Answers = { readonly [K in Source]?: unknown }

/** Throws CommandError when nothing can be had. */
async function askAll(target: AgentTarget): Promise<{ answers: Answers; denied: Source[] }> {
  const answers: { [K in Source]?: unknown } = {}
  const denied: Source[] = []
  let refusal: RefusedByAgent | undefined
  const ask = async (source: Source) => {
    try {
      answers[source] = await requestJson(target, { path: SOURCES[source] })
    } catch (error) {
      if (!(error instanceof RefusedByAgent) || error.status !== 403) throw error
      denied.push(source)
      refusal ??= error
    }
  }
  await Promise.all([ask('Agent'), ask('Metadata'), ask('Stats')])
  if (Object.keys(answers).length > 0) return { answers, denied }
  throw refusal ?? new CommandError('the agent told nothing')
}

type Pairs = (readonly [string, string])[]

function agentPairs(answer: unknown): Pairs {
  if (answer === undefined) return []
  const self = fieldsOf(answer)
  const config = self.under('config')
  const client = self.under('stats').under('client')
  const runtime = self.under('stats').under('runtime')
  const roles = ['Client', 'Server'].filter((role) => config.under(role).boolean('Enabled'))
  const pairs: Pairs = [
    ['Node ID', client.text('node_id')],
    ['Name', self.under('member').text('Name')],
    ['Region', config.text('Region')],
    ['Datacenter', config.text('Datacenter')],
    ['Roles', roles.map((role) => (role === 'Client' ? 'agent' : 'server')).join(', ')],
    ['Version', config.under('Version').text('Version')],
    ['Agent Uptime', humanSeconds(Number(runtime.text('uptime_seconds')) || 0)],
    ['Agent Memory', humanBytes(Number(runtime.text('rss_bytes')) || 0)],
    ['Allocations', client.text('num_allocations')],
  ]
  return pairs.filter(([, value]) => value !== '').map(([key, value]) => [key, shownName(value)])
}

function statsPairs(answer: unknown): Pairs {
  if (answer === undefined) return []
  const stats = fieldsOf(answer)
  const memory = stats.under('Memory')
  const cores = stats.list('CPU')
  const busy = cores.reduce((sum, core) => sum + core.number('TotalPercent'), 0) / Math.max(cores.length, 1)
  return [
    ['Host Uptime', humanSeconds(stats.number('Uptime'))],
    ['Processors', `${cores.length}, ${busy.toFixed(0)} % busy`],
    ['Memory', `${humanBytes(memory.number('Used'))} used of ${humanBytes(memory.number('Total'))}`],
    ['Allocation Disk', diskText(stats.under('AllocDirStats'))],
  ]
}

function diskText(disk: Answer): string {
  return `${humanBytes(disk.number('Used'))} used of ${humanBytes(disk.number('Size'))}`
}

function metadataPairs(answer: unknown): Pairs {
  const fields = fieldsOf(answer)
  const meta = fields.under('Meta')
  return fields
    .names('Meta')
    .sort()
    .map((key) => [`Meta ${shownName(key)}`, shownName(meta.text(key))])
}
