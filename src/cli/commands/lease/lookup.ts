/** `outpost lease lookup`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { fieldOption, formatOption, printSecret } from '../../core/secret-output.ts'

export const command = defineCommand({
  name: 'lease lookup',
  summary: 'Show what is known of a lease',
  options: { ...fieldOption, ...formatOption, ...coreOptions },
  operands: { shown: 'ID', min: 1, max: 1, missing: 'which lease?' },
  async run(values, [id], io) {
    const request = { method: 'PUT', path: 'sys/leases/lookup', body: { lease_id: id } } as const
    printSecret(await requireCore(coreOf(values, io), request), values, io)
    return 0
  },
})
