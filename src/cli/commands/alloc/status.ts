/** `outpost alloc status`. */
import { agentOptions, printJson } from '../../client/agent-access.ts'
import type { AgentTarget } from '../../client/agent-target.ts'
import { dataDirOption, type LocalAllocation, matchAllocations } from '../../../supervisor/alloc-directory.ts'
import { type AllocSource, allocSource, SOURCE_DETAILS } from '../../client/alloc-source.ts'
import { allocationDetails, allocationJson, findOne } from '../../client/local-allocations.ts'
import { type Answer, fieldsOf } from '../../output/answer.ts'
import { CommandError, type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { allocationText } from '../../client/fleet-view.ts'
import { RefusedByAgent, requestJson } from '../../client/http-client.ts'
import { findAllocation } from '../../client/id-prefix.ts'
import { flag } from '../../framework/options.ts'
import { fitted, terminalOf } from '../../output/terminal.ts'

export const command = defineCommand({
  name: 'alloc status',
  summary: 'Show one allocation of a host or of any host of a server',
  details: [
    'ID may be the beginning of an ID (at least two characters for an agent or server), as long as only',
    'one allocation has it.',
    '',
    ...SOURCE_DETAILS,
    'If the data directory has no match and was not given, the agent is asked, too.',
  ].join('\n'),
  options: { 'data-dir': dataDirOption, json: flag('Print the allocation as JSON'), ...agentOptions },
  operands: { shown: 'ID', min: 1, max: 1, missing: 'which allocation? give its ID or the beginning of it' },
  async run(values, [given = ''], io) {
    const source = allocSource(values, io)
    const terminal = terminalOf(1, io.env, values['no-color'])
    const local = localMatch(source, given, io)
    if (local) {
      if (values.json) printJson(allocationJson(local), io)
      else io.out(fitted(allocationDetails(local), terminal))
      return 0
    }
    const allocation = await remote(source, given, io)
    if (values.json) printJson(allocation, io)
    else {
      const fields = fieldsOf(allocation)
      io.out(fitted(allocationText(fields, await nodeOf(source.target, fields.text('NodeID'))), terminal))
    }
    return 0
  },
})

/** Undefined: the agent is to be asked. Throws CommandError. */
function localMatch({ isLocalOnly, root }: AllocSource, given: string, io: CommandIo): LocalAllocation | undefined {
  if (root === undefined) return undefined
  return isLocalOnly || matchAllocations(root, given).length > 0 ? findOne(root, given, io) : undefined
}

async function remote({ root, target }: AllocSource, given: string, io: CommandIo): Promise<unknown> {
  try {
    const id = await findAllocation(target, given, io)
    return await requestJson(target, { path: `/v1/allocation/${id}` })
  } catch (error) {
    if (root === undefined || !(error instanceof CommandError)) throw error
    throw new CommandError(`no allocation ${JSON.stringify(given)} under ${root}, and: ${error.message}`, 1, {
      cause: error,
    })
  }
}

/** Undefined for a token that may not read nodes. */
async function nodeOf(target: AgentTarget, nodeId: string): Promise<Answer | undefined> {
  try {
    return fieldsOf(await requestJson(target, { path: `/v1/node/${nodeId}` }))
  } catch (error) {
    if (error instanceof RefusedByAgent) return undefined
    throw error
  }
}
