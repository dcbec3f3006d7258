/** `outpost node list|gc|purge`. */
import { agentOf, agentOptions, type AgentTarget, jsonOption, printJson } from '../client/agent-target.ts'
import { nodesTable, statusOf } from '../client/fleet-view.ts'
import { equals, filterOf, listRecords, AgentRefusal, requestJson, requestText } from '../client/http-client.ts'
import { findNode, nodeIdOption, nodeQuery } from '../client/id-prefix.ts'
import { confirmOptions, requireYes } from '../core/confirmation.ts'
import { defineCommand } from '../framework/define-command.ts'
import { choice, flag, text, texts, UsageError } from '../framework/options.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { type JsonFields, fieldsOf } from '../output/json.ts'
import { fitted, terminalOf } from '../output/terminal.ts'

const list = defineCommand({
  name: 'node list',
  summary: 'List nodes',
  details: [
    'For nodes that are not ready, shows the time of the last status change. An agent that is connected to NATS',
    'gets the list from a server. An agent without NATS lists itself.',
    '',
    'Examples:',
    '  outpost node list -status down',
    '  outpost node list -meta rack=r7 -meta role=edge',
    `  outpost node list -filter 'Name matches "^db" and "raw_exec" in Drivers'`,
  ].join('\n'),
  options: {
    status: choice({
      placeholder: 'STATUS',
      help: 'Filter by status',
      choices: ['ready', 'down', 'disconnected'],
    }),
    meta: texts('KEY=VALUE', 'Filter by metadata; several filters are combined with AND'),
    filter: text({ placeholder: 'EXPRESSION', help: 'Filter by expression', fallback: undefined }),
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

const gc = defineCommand({
  name: 'node gc',
  summary: 'Remove the directories of all stopped allocations',
  details: 'Returns before the removal is complete. The agent logs directories that it cannot remove.',
  options: { 'node-id': nodeIdOption, ...agentOptions },
  async run(values, _operands, io) {
    const target = agentOf(values, io)
    await requestText(target, { path: '/v1/client/gc', query: await nodeQuery(target, values, io) })
    io.out('Garbage collection started\n')
    return 0
  },
})

const purge = defineCommand({
  name: 'node purge',
  summary: 'Remove a node and its allocations from a server',
  details: [
    'Use this command after a host was reinstalled with the same node ID and a new key. It changes the',
    'addressed server only: run it against each server. If the node is running, it registers again with its',
    'next message and its current key. Asks for confirmation on a terminal.',
  ].join('\n'),
  options: { ...confirmOptions, ...agentOptions },
  operands: { shown: 'NODE', min: 1, max: 1 },
  async run(values, [given = ''], io) {
    const target = agentOf(values, io)
    const id = await findNode(target, given, io)
    const node = await nodeOf(target, id)
    const name = node ? `${escapeLine(node.text('Name'))} (${id})` : id
    const effect = `remove a node, its key and its allocations from the server at ${target.url.origin}`
    const shown = `${name}, ${node ? escapeLine(statusOf(node)) : 'unknown'}`
    await requireYes(() => `This will ${effect}.\nNode: ${shown}`, values.yes, io)
    await requestJson(target, { method: 'PUT', path: `/v1/node/${id}/purge` })
    io.out(`Purged ${name}\n`)
    return 0
  },
})

/** Undefined for an unknown node: the server may still have allocations that belong to it. */
async function nodeOf(target: AgentTarget, id: string): Promise<JsonFields | undefined> {
  try {
    return fieldsOf(await requestJson(target, { path: `/v1/node/${id}` }))
  } catch (error) {
    if (error instanceof AgentRefusal && error.status === 404) return undefined
    throw error
  }
}

export const commands = [list, gc, purge]
