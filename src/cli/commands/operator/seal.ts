/** `outpost operator seal`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { confirm, confirmOptions } from '../../core/confirmation.ts'
import { askCore, coreOf, coreOptions } from '../../core/core-access.ts'

export const command = defineCommand({
  name: 'operator seal',
  summary: 'Seal the secrets core',
  details: [
    'No secret can be read or written until the core is unsealed: with key shares (outpost operator',
    'unseal), or, with a static seal, by a restart of the server. Logs and allocations are still served.',
    'Needs sudo on sys/seal. On a terminal it asks for confirmation.',
  ].join('\n'),
  options: { ...confirmOptions, ...coreOptions },
  async run(values, _operands, io) {
    const core = coreOf(values, io)
    await confirm(core, 'seal the secrets core: no secret can be read or written until it is unsealed', values.yes, io)
    await askCore(core, { method: 'PUT', path: 'sys/seal' })
    io.out('Success! The secrets are sealed.\n')
    return 0
  },
})
