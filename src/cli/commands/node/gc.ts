/** `outpost node gc`. */
import { agentOf, agentOptions } from '../../client/agent-access.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { requestText } from '../../client/http-client.ts'
import { nodeIdOption, nodeQuery } from '../../client/node-argument.ts'

export const command = defineCommand({
  name: 'node gc',
  summary: 'Remove the directories of all allocations that have ended',
  details: 'Returns at once; the agent removes them one after another, and logs what it could not remove.',
  options: { 'node-id': nodeIdOption, ...agentOptions },
  async run(values, _operands, io) {
    const target = agentOf(values, io)
    await requestText(target, { path: '/v1/client/gc', query: await nodeQuery(target, values, io) })
    io.out('The agent removes what has ended\n')
    return 0
  },
})
