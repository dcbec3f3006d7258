/** `outpost lease renew`. */
import { defineCommand } from '../../framework/command-shape.ts'
import { text } from '../../framework/options.ts'
import { coreOf, coreOptions, requireCore } from '../../core/core-access.ts'
import { fieldOption, formatOption, printSecret } from '../../core/secret-output.ts'

const DURATION = { placeholder: 'DURATION', fallback: undefined }

export const command = defineCommand({
  name: 'lease renew',
  summary: 'Let a lease last longer',
  options: {
    increment: text({ ...DURATION, help: 'For how long from now; what it was given for without it' }),
    i: text({ ...DURATION, help: 'The same as -increment' }),
    ...fieldOption,
    ...formatOption,
    ...coreOptions,
  },
  operands: { shown: 'ID', min: 1, max: 1, missing: 'which lease?' },
  async run(values, [id], io) {
    const body = { lease_id: id, increment: values.increment ?? values.i }
    printSecret(await requireCore(coreOf(values, io), { method: 'PUT', path: 'sys/leases/renew', body }), values, io)
    return 0
  },
})
