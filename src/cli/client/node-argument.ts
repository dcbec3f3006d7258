/** The node that `-node-id` names. */
import type { AgentTarget } from './agent-target.ts'
import type { CommandIo } from '../framework/command-shape.ts'
import { findNode } from './id-prefix.ts'
import { text } from '../framework/options.ts'

export const nodeIdOption = text({
  placeholder: 'NODE',
  help: 'Another host, to which the agent or server forwards the request: ID, ID prefix or name',
  fallback: undefined,
})

/** The query of a request to that node. Throws CommandError. */
export async function nodeQuery(
  target: AgentTarget,
  values: { readonly 'node-id': string | undefined },
  io: CommandIo,
): Promise<{ readonly node_id: string | undefined }> {
  const given = values['node-id']
  return { node_id: given === undefined ? undefined : await findNode(target, given, io) }
}
