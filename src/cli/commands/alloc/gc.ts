/** `outpost alloc gc`. */
import { agentOf, agentOptions } from '../../client/agent-access.ts'
import { allocationId, allocOperand, allocOptions } from '../../client/alloc-argument.ts'
import { defineCommand } from '../../framework/command-shape.ts'
import { requestText } from '../../client/http-client.ts'

export const command = defineCommand({
  name: 'alloc gc',
  summary: 'Remove the directory of an allocation that has ended',
  details:
    'Its files and logs are gone when the command returns. One that still runs is refused: stop it first.\nA directory without a manifest is removed if no process uses it.',
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
