/** `outpost node purge`. */
import { agentOf, agentOptions } from '../../client/agent-access.ts'
import type { AgentTarget } from '../../client/agent-target.ts'
import { type Answer, fieldsOf } from '../../output/answer.ts'
import { CommandError, type CommandIo, defineCommand } from '../../framework/command-shape.ts'
import { statusOf } from '../../client/fleet-view.ts'
import { RefusedByAgent, requestJson } from '../../client/http-client.ts'
import { findNode } from '../../client/id-prefix.ts'
import { confirmOptions, isAnswered } from '../../core/confirmation.ts'
import { shownName } from '../../framework/shown.ts'

export const command = defineCommand({
  name: 'node purge',
  summary: 'Make a server forget a host with its key and its allocations',
  details: [
    'For a host that was set up again with the same node ID and has another key. The server that is',
    'addressed forgets the host; repeat the command on each server. A host that runs comes back with its',
    'next message, with the key that it has then. On a terminal it asks for confirmation.',
  ].join('\n'),
  options: { ...confirmOptions, ...agentOptions },
  operands: { shown: 'NODE', min: 1, max: 1, missing: 'which node? give its name or the beginning of its ID' },
  async run(values, [given = ''], io) {
    const target = agentOf(values, io)
    const id = await findNode(target, given, io)
    const node = await nodeOf(target, id)
    const name = node ? `${shownName(node.text('Name'))} (${id})` : id
    await confirm(`${name}, ${node ? shownName(statusOf(node)) : 'unknown'}`, target.url.origin, values.yes, io)
    await requestJson(target, { method: 'PUT', path: `/v1/node/${id}/purge` })
    io.out(`Purged ${name}\n`)
    return 0
  },
})

/** Undefined for a node that the server does not know: it may still own allocations that it does not report at present. */
async function nodeOf(target: AgentTarget, id: string): Promise<Answer | undefined> {
  try {
    return fieldsOf(await requestJson(target, { path: `/v1/node/${id}` }))
  } catch (error) {
    if (error instanceof RefusedByAgent && error.status === 404) return undefined
    throw error
  }
}

/** Throws CommandError, with nothing changed, unless the answer is "yes". Asks only if a terminal can answer. */
async function confirm(node: string, origin: string, isGiven: boolean, io: CommandIo): Promise<void> {
  const { isatty } = process.getBuiltinModule('node:tty')
  if (isGiven || !isatty(0) || !isatty(2)) return
  io.err(`This will make the server at ${origin} forget a node, its key and its allocations.\nNode: ${node}\n`)
  if (!(await isAnswered('yes', io))) throw new CommandError('not confirmed, nothing was changed')
}
