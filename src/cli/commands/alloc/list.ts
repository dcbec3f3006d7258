/** `outpost alloc list`. */
import { agentOptions, printJson } from '../../client/agent-access.ts'
import type { AgentTarget } from '../../client/agent-target.ts'
import { dataDirOption, listAllocations, type LocalAllocation } from '../../../supervisor/alloc-directory.ts'
import { allocSource, SOURCE_DETAILS } from '../../client/alloc-source.ts'
import { allocationJson, allocationTable } from '../../client/local-allocations.ts'
import { fieldsOf } from '../../output/answer.ts'
import { CommandError, defineCommand } from '../../framework/command-shape.ts'
import { allocationsTable } from '../../client/fleet-view.ts'
import { findNode } from '../../client/id-prefix.ts'
import { equals, filterOf, listRecords } from '../../client/list-pages.ts'
import { flag, text, type ValuesOf } from '../../framework/options.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

const OPTIONS = {
  job: text({ placeholder: 'JOB', help: 'Only allocations of this job', fallback: undefined }),
  node: text({ placeholder: 'NODE', help: 'Only those of this node: name or ID prefix', fallback: undefined }),
  status: text({ placeholder: 'STATUS', help: 'Only those with this status, such as running', fallback: undefined }),
  namespace: text({ placeholder: 'NAME', help: 'Only those in this namespace', fallback: undefined }),
  verbose: flag('Print full IDs'),
  json: flag('Print a JSON array'),
  'data-dir': dataDirOption,
  ...agentOptions,
}

export const command = defineCommand({
  name: 'alloc list',
  summary: 'List allocations of a host or of all hosts of a server',
  details: [
    'Newest first. A server lists the allocations of all hosts, an agent those that it knows, in every',
    'namespace that the token may read.',
    '',
    ...SOURCE_DETAILS,
  ].join('\n'),
  options: OPTIONS,
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

type Values = ValuesOf<typeof OPTIONS>

function listOf(target: AgentTarget, values: Values, nodeId: string | undefined): Promise<unknown[]> {
  const { job, namespace = '*', status } = values
  const filter = filterOf([equals('JobID', job), equals('NodeID', nodeId), equals('ClientStatus', status)])
  return listRecords(target, '/v1/allocations', { namespace, filter })
}

/** Throws CommandError for a filter that the directories of a host cannot answer. */
function matcherOf({ job, namespace, node, status }: Values): (allocation: LocalAllocation) => boolean {
  if (node !== undefined) {
    throw new CommandError('-node needs an agent or server to ask: give -address or set OUTPOST_ADDR')
  }
  return ({ manifest, status: found }) =>
    isWanted(job, manifest?.JobID) && isWanted(namespace, manifest?.Namespace) && isWanted(status, found)
}

function isWanted(wanted: string | undefined, value: string | undefined): boolean {
  return wanted === undefined || wanted === value
}
