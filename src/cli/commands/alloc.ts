/**
 * `outpost alloc list|status|stats|gc`. `alloc list` and `alloc status` read the allocation directories of this host, or query an
 * agent or server. With an address, the local disk is never read (docs/decisions/094).
 */
import { existsSync } from 'node:fs'
import { allocRoot, listAllocations, type LocalAllocation, matchAllocations } from '../../supervisor/alloc-directory.ts'
import { agentOf, agentOptions, type AgentTarget, jsonOption, printJson } from '../client/agent-target.ts'
import { allocationId, allocOperand, allocOptions } from '../client/alloc-argument.ts'
import { allocationsTable, allocationText } from '../client/fleet-view.ts'
import { equals, filterOf, listRecords, AgentRefusal, requestJson, requestText } from '../client/http-client.ts'
import { findAllocation, findNode } from '../client/id-prefix.ts'
import {
  allocationDetails,
  allocationJson,
  allocationTable,
  dataDirOption,
  findOne,
} from '../client/local-allocations.ts'
import { CommandError, type CommandIo, defineCommand } from '../framework/define-command.ts'
import { flag, text, UsageError, type OptionValues } from '../framework/options.ts'
import { escapeLine } from '../framework/terminal-escapes.ts'
import { type JsonFields, fieldsOf } from '../output/json.ts'
import { formatTable, humanBytes } from '../output/table.ts'
import { fitted, terminalOf } from '../output/terminal.ts'

const SOURCE_DETAILS = [
  'With an address (-address, OUTPOST_ADDR, NOMAD_ADDR or VAULT_ADDR), queries that agent or server and does',
  'not read the local disk. Without an address, reads the data directory of this host, which requires no',
  'agent. If the data directory does not exist, queries the agent at http://127.0.0.1:4646. -data-dir always',
  'reads DIR.',
]

const LIST_OPTIONS = {
  job: text({ placeholder: 'JOB', help: 'List allocations of this job only', fallback: undefined }),
  node: text({ placeholder: 'NODE', help: 'Filter by node name or ID prefix', fallback: undefined }),
  status: text({ placeholder: 'STATUS', help: 'Filter by client status', fallback: undefined }),
  namespace: text({ placeholder: 'NAME', help: 'Filter by namespace', fallback: undefined }),
  verbose: flag('Print full IDs'),
  json: flag('Print a JSON array'),
  'data-dir': dataDirOption,
  ...agentOptions,
}

const list = defineCommand({
  name: 'alloc list',
  summary: 'List allocations',
  details: [
    'Lists the newest allocations first, in all namespaces that the token may read. A server lists the',
    'allocations of all hosts.',
    '',
    ...SOURCE_DETAILS,
  ].join('\n'),
  options: LIST_OPTIONS,
  async run(values, _operands, io) {
    const { root, target } = allocSource(values, io)
    const terminal = terminalOf(1, io.env, values['no-color'])
    if (root !== undefined) {
      const allocations = listAllocations(root).filter(matcherOf(values))
      if (values.json) printJson(allocations.map(allocationJson), io)
      else io.out(allocations.length === 0 ? 'No allocations\n' : fitted(allocationTable(allocations), terminal))
      return 0
    }
    const nodeId = values.node === undefined ? undefined : await findNode(target, values.node, io)
    const records = await listOf(target, values, nodeId)
    if (values.json) printJson(records, io)
    else {
      const allocations = records.map(fieldsOf)
      io.out(
        allocations.length === 0 ? 'No allocations\n' : fitted(allocationsTable(allocations, values.verbose), terminal),
      )
    }
    return 0
  },
})

type ListFilters = OptionValues<typeof LIST_OPTIONS>

function listOf(target: AgentTarget, filters: ListFilters, nodeId: string | undefined): Promise<unknown[]> {
  const { job, namespace = '*', status } = filters
  const filter = filterOf([equals('JobID', job), equals('NodeID', nodeId), equals('ClientStatus', status)])
  return listRecords(target, '/v1/allocations', { namespace, filter })
}

/** Throws CommandError for -node, which the directories of one host cannot answer. */
function matcherOf({ job, namespace, node, status }: ListFilters): (allocation: LocalAllocation) => boolean {
  if (node !== undefined) {
    throw new CommandError('-node requires an agent or server: set -address or OUTPOST_ADDR')
  }
  return (allocation) =>
    isMatch(job, allocation.manifest?.JobID) &&
    isMatch(namespace, allocation.manifest?.Namespace) &&
    isMatch(status, allocation.status)
}

function isMatch(filter: string | undefined, value: string | undefined): boolean {
  return filter === undefined || filter === value
}

export interface AllocSource {
  /** The directory to read; undefined: only the agent is queried. */
  readonly root: string | undefined
  /** True: the agent is not queried if the directory has no match. */
  readonly isLocalOnly: boolean
  readonly target: AgentTarget
}

/** Throws CommandError and UsageError. */
export function allocSource(
  values: { readonly 'data-dir': string | undefined; readonly address: string | undefined },
  io: CommandIo,
): AllocSource {
  const { address, 'data-dir': dataDir } = values
  if (dataDir !== undefined && address !== undefined) {
    throw new UsageError(
      '-data-dir and -address are mutually exclusive: -data-dir reads this host, -address an agent or server',
    )
  }
  const root = allocRoot(dataDir, io.env)
  const target = agentOf({ address }, io)
  if (dataDir !== undefined) return { root, isLocalOnly: true, target }
  const isLocal = target.from === undefined && existsSync(root)
  return { root: isLocal ? root : undefined, isLocalOnly: false, target }
}

const status = defineCommand({
  name: 'alloc status',
  summary: 'Show an allocation',
  details: [
    'ID may be a unique ID prefix. An agent or server requires at least two characters.',
    '',
    ...SOURCE_DETAILS,
    'If the default data directory has no match, queries the agent too.',
  ].join('\n'),
  options: { 'data-dir': dataDirOption, json: flag('Print the allocation as JSON'), ...agentOptions },
  operands: { shown: 'ID', min: 1, max: 1 },
  async run(values, [given = ''], io) {
    const source = allocSource(values, io)
    const terminal = terminalOf(1, io.env, values['no-color'])
    const local = localMatch(source, given, io)
    if (local) {
      if (values.json) printJson(allocationJson(local), io)
      else io.out(fitted(allocationDetails(local), terminal))
      return 0
    }
    const allocation = await requestAllocation(source, given, io)
    if (values.json) printJson(allocation, io)
    else {
      const fields = fieldsOf(allocation)
      io.out(fitted(allocationText(fields, await nodeOf(source.target, fields.text('NodeID'))), terminal))
    }
    return 0
  },
})

/** Undefined: query the agent. Throws CommandError. */
function localMatch({ isLocalOnly, root }: AllocSource, given: string, io: CommandIo): LocalAllocation | undefined {
  if (root === undefined) return undefined
  return isLocalOnly || matchAllocations(root, given).length > 0 ? findOne(root, given, io) : undefined
}

async function requestAllocation({ root, target }: AllocSource, given: string, io: CommandIo): Promise<unknown> {
  try {
    const id = await findAllocation(target, given, io)
    return await requestJson(target, { path: `/v1/allocation/${id}` })
  } catch (error) {
    if (root === undefined || !(error instanceof CommandError)) throw error
    throw new CommandError(`no allocation ${JSON.stringify(given)} in ${root}; ${error.message}`, 1, {
      cause: error,
    })
  }
}

/** Undefined if the token may not read nodes. */
async function nodeOf(target: AgentTarget, nodeId: string): Promise<JsonFields | undefined> {
  try {
    return fieldsOf(await requestJson(target, { path: `/v1/node/${nodeId}` }))
  } catch (error) {
    if (error instanceof AgentRefusal) return undefined
    throw error
  }
}

const stats = defineCommand({
  name: 'alloc stats',
  summary: 'Show the resource usage of an allocation',
  details: 'CPU is a percentage of one core; memory is the resident set size.',
  options: {
    task: text({ placeholder: 'TASK', help: 'Show this task only', fallback: undefined }),
    json: jsonOption,
    ...allocOptions,
    ...agentOptions,
  },
  operands: allocOperand,
  async run(values, [given = ''], io) {
    const target = agentOf(values, io)
    const id = await allocationId(given, values, target, io)
    const query = { task: values.task }
    const answer = await requestJson(target, { path: `/v1/client/allocation/${id}/stats`, query })
    if (values.json) {
      printJson(answer, io)
      return 0
    }
    const fields = fieldsOf(answer)
    const tasks = fields.under('Tasks')
    const rows = fields
      .names('Tasks')
      .sort()
      .map((name) => usageCells(name, tasks.under(name)))
    if (rows.length === 0) {
      io.out('No statistics yet\n')
      return 0
    }
    const right = 'right' as const
    const table = formatTable(['Task', 'CPU', 'Memory', 'Swap', 'Processes'], rows, [
      'left',
      right,
      right,
      right,
      right,
    ])
    io.out(fitted(table, terminalOf(1, io.env)))
    return 0
  },
})

function usageCells(name: string, task: JsonFields): string[] {
  const usage = task.under('ResourceUsage')
  const cpu = usage.under('CpuStats')
  const memory = usage.under('MemoryStats')
  return [
    escapeLine(name),
    `${cpu.number('Percent').toFixed(1)} %`,
    humanBytes(memory.number('RSS')),
    humanBytes(memory.number('Swap')),
    String(task.names('Pids').length),
  ]
}

const gc = defineCommand({
  name: 'alloc gc',
  summary: 'Remove the directory of a stopped allocation',
  details: [
    'Deletes the files and logs of the allocation before the command returns. Fails if the allocation is',
    'running: stop it first. A directory without a manifest is removed if no process uses it.',
  ].join('\n'),
  options: { ...allocOptions, ...agentOptions },
  operands: allocOperand,
  async run(values, [given = ''], io) {
    const target = agentOf(values, io)
    const id = await allocationId(given, values, target, io)
    await requestText(target, { path: `/v1/client/allocation/${id}/gc` })
    io.out(`Removed ${id}\n`)
    return 0
  },
})

export const commands = [list, status, stats, gc]
