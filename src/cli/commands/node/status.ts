/** `outpost node status`. */
import { agentOf, agentOptions, jsonOption, printJson } from '../../client/agent-access.ts'
import { type Answer, fieldsOf } from '../../output/answer.ts'
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import type { AgentTarget } from '../../client/agent-target.ts'
import { allocationsTable, nodesTable, statusOf } from '../../client/fleet-view.ts'
import { RefusedByAgent, requestJson } from '../../client/http-client.ts'
import { findNode } from '../../client/id-prefix.ts'
import { listRecords } from '../../client/list-pages.ts'
import { flag } from '../../framework/options.ts'
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

/** In the answer of a server that is no host to a request about its own node. */
const NO_LOCAL_NODE = 'No local Node'

type Source = keyof typeof SOURCES

export const command = defineCommand({
  name: 'node status',
  summary: 'Show a host: identity, status, load, metadata, allocations',
  details: [
    'Without NODE: the host of the agent that is addressed; a server that is no host lists all hosts, as',
    '"outpost node list" does.',
    'With NODE (a name or the beginning of an ID): that host as the server knows it, also when it is down,',
    'then with the time and the reason. What the token does not permit is left out, and named.',
  ].join('\n'),
  options: { verbose: flag('Print full IDs'), json: jsonOption, ...agentOptions },
  operands: { shown: '[NODE]', min: 0, max: 1, missing: '' },
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
    const own = await askAll(target)
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

/** A host as a server knows it. */
async function nodeText(target: AgentTarget, node: Answer, isVerbose: boolean): Promise<string> {
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
  const pairs: Pairs = known.filter(([, value]) => value !== '').map(([key, value]) => [key, shownName(value)])
  const head = formatPairs([...pairs, ...statsPairs(stats), ...metadataPairs({ Meta: node.value('Meta') })])
  const allocations = (listed ?? []).map(fieldsOf)
  return allocations.length === 0 ? head : `${head}\n${allocationsTable(allocations, isVerbose)}`
}

/** Undefined for what is refused or cannot be reached at present: the rest is shown. */
async function permitted<T>(request: Promise<T>): Promise<T | undefined> {
  try {
    return await request
  } catch (error) {
    if (error instanceof RefusedByAgent) return undefined
    throw error
  }
}

type Answers = { readonly [K in Source]?: unknown }

/** What the process reports about its own host; `no host` for a server without one. Throws CommandError. */
async function askAll(target: AgentTarget): Promise<{ answers: Answers; denied: Source[] } | 'no host'> {
  const answers: { [K in Source]?: unknown } = {}
  const denied: Source[] = []
  let refusal: RefusedByAgent | undefined
  let isHost = true
  const ask = async (source: Source) => {
    try {
      answers[source] = await requestJson(target, { path: SOURCES[source] })
    } catch (error) {
      if (!(error instanceof RefusedByAgent)) throw error
      if (error.status === 400 && error.message.includes(NO_LOCAL_NODE)) {
        isHost = false
        return
      }
      if (error.status !== 403) throw error
      denied.push(source)
      refusal ??= error
    }
  }
  await Promise.all([ask('Agent'), ask('Metadata'), ask('Stats')])
  if (!isHost) return 'no host'
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
