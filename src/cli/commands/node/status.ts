/** `outpost node status`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-target.ts'
import { type JsonFields, fieldsOf } from '../../output/json.ts'
import { CommandError, defineCommand } from '../../framework/define-command.ts'
import type { AgentTarget } from '../../client/agent-target.ts'
import { allocationsTable, nodesTable, statusOf } from '../../client/fleet-view.ts'
import { AgentRefusal, listRecords, requestJson } from '../../client/http-client.ts'
import { findNode } from '../../client/id-prefix.ts'
import { flag } from '../../framework/options.ts'
import { formatPairs, humanBytes, humanSeconds } from '../../output/table.ts'
import { escapeLine } from '../../framework/terminal-escapes.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

/** Endpoints that describe the agent's node; each requires its own permission. */
const SOURCES = {
  Agent: '/v1/agent/self',
  Metadata: '/v1/client/metadata',
  Stats: '/v1/client/stats',
} as const

/** Text of a server without the agent role in response to a request for its node. */
const NO_LOCAL_NODE = 'No local Node'

type Source = keyof typeof SOURCES

export const command = defineCommand({
  name: 'node status',
  summary: 'Show the status of a node',
  details: [
    'Without NODE, shows the node of the addressed agent. A server without the agent role lists all nodes, as',
    '"outpost node list" does. With NODE (a name or an ID prefix), shows that node as the server knows',
    'it. If the node is down, shows since when and why. Sections that the token may not read are omitted and',
    'listed as "Not permitted".',
  ].join('\n'),
  options: { verbose: flag('Print full IDs'), json: jsonOption, ...agentOptions },
  operands: { shown: '[NODE]', min: 0, max: 1 },
  async run(values, [given], io) {
    const target = agentOf(values, io)
    const terminal = terminalOf(1, io.env, values['no-color'])
    if (given !== undefined) {
      const id = await findNode(target, given, io)
      const node = await requestJson(target, { path: `/v1/node/${id}` })
      if (values.json) printJson(node, io)
      else io.out(fitted(await nodeText(target, fieldsOf(node), values.verbose), terminal))
      return 0
    }
    const own = await requestAll(target)
    if (own === 'no host') {
      const nodes = await listRecords(target, '/v1/nodes', { status_time: true })
      if (values.json) printJson(nodes, io)
      else io.out(nodes.length === 0 ? 'No nodes\n' : fitted(nodesTable(nodes, values.verbose), terminal))
      return 0
    }
    const { answers, denied } = own
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
    io.out(fitted(text, terminal))
    return 0
  },
})

/** A node as a server knows it. */
async function nodeText(target: AgentTarget, node: JsonFields, isVerbose: boolean): Promise<string> {
  const id = node.text('ID')
  const isReady = node.text('Status') === 'ready'
  const stats = isReady
    ? await permitted(requestJson(target, { path: SOURCES.Stats, query: { node_id: id } }))
    : undefined
  const listed = await permitted(listRecords(target, `/v1/node/${id}/allocations`))
  const known = [
    ['ID', id],
    ['Name', node.text('Name')],
    ['Status', statusOf(node)],
    ['Address', node.text('HTTPAddr')],
    ['Datacenter', node.text('Datacenter')],
    ['Class', node.text('NodeClass')],
    ['Pool', node.text('NodePool')],
  ] as const
  const pairs: Pairs = known.filter(([, value]) => value !== '').map(([key, value]) => [key, escapeLine(value)])
  const head = formatPairs([...pairs, ...statsPairs(stats), ...metadataPairs({ Meta: node.value('Meta') })])
  const allocations = (listed ?? []).map(fieldsOf)
  return allocations.length === 0 ? head : `${head}\n${allocationsTable(allocations, isVerbose)}`
}

/** Undefined if the request is refused: the other sections are shown. */
async function permitted<T>(request: Promise<T>): Promise<T | undefined> {
  try {
    return await request
  } catch (error) {
    if (error instanceof AgentRefusal) return undefined
    throw error
  }
}

type SourceBodies = { readonly [K in Source]?: unknown }

/** Queries all endpoints that describe the node of the process itself; `no host` for a server without the agent role. Throws CommandError. */
async function requestAll(target: AgentTarget): Promise<{ answers: SourceBodies; denied: Source[] } | 'no host'> {
  const answers: { [K in Source]?: unknown } = {}
  const denied: Source[] = []
  let refusal: AgentRefusal | undefined
  let isHost = true
  const request = async (source: Source) => {
    try {
      answers[source] = await requestJson(target, { path: SOURCES[source] })
    } catch (error) {
      if (!(error instanceof AgentRefusal)) throw error
      if (error.status === 400 && error.message.includes(NO_LOCAL_NODE)) {
        isHost = false
        return
      }
      if (error.status !== 403) throw error
      denied.push(source)
      refusal ??= error
    }
  }
  await Promise.all([request('Agent'), request('Metadata'), request('Stats')])
  if (!isHost) return 'no host'
  if (Object.keys(answers).length > 0) return { answers, denied }
  throw refusal ?? new CommandError(`${target.url.origin} returned no data about its node`)
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
  return pairs.filter(([, value]) => value !== '').map(([key, value]) => [key, escapeLine(value)])
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

function diskText(disk: JsonFields): string {
  return `${humanBytes(disk.number('Used'))} used of ${humanBytes(disk.number('Size'))}`
}

function metadataPairs(answer: unknown): Pairs {
  const fields = fieldsOf(answer)
  const meta = fields.under('Meta')
  return fields
    .names('Meta')
    .sort()
    .map((key) => [`Meta ${escapeLine(key)}`, escapeLine(meta.text(key))])
}
