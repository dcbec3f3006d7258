/** `outpost operator seal`. */
import { defineCommand } from '../command-shape.ts'
import { askCore, coreOf, coreOptions } from '../secrets/core-access.ts'

export const command = defineCommand({
  name: 'operator seal',
  summary: 'Close the secrets: nothing can be read until they are opened again',
  details: [
    'Needs a token that may do so (sudo). Logs and allocations are served as ever. Key shares open the',
    'secrets again (outpost operator unseal), or, with a static seal, a restart of the server.',
  ].join('\n'),
  options: { ...coreOptions },
  async run(values, _operands, io) {
    await askCore(coreOf(values, io), { method: 'PUT', path: 'sys/seal' })
    io.out('Success! The secrets are sealed.\n')
    return 0
  },
})
